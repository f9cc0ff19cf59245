UPDATE trials SET state = '';

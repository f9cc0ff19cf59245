UPDATE trials SET state = 'DONE';

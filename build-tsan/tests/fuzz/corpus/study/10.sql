UPDATE trials SET number = 'one';

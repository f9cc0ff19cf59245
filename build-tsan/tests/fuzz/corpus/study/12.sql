UPDATE trials SET datetime_start = 'yesterday';

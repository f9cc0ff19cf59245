UPDATE trials SET datetime_start = 5, datetime_complete = 6.5;

UPDATE trials SET datetime_complete = x'00ff';

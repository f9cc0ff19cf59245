UPDATE trials SET study_id = 2;

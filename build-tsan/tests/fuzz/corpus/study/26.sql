INSERT INTO studies VALUES (2, 't'), (3, 'u'), (4, 'v'), (5, 'w'); UPDATE trials SET study_id = number + 1;

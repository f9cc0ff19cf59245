INSERT INTO study_directions VALUES (3, 'MINIMIZE', 1, 2);

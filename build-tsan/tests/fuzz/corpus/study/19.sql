DELETE FROM study_directions WHERE objective = 0;

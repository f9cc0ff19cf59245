UPDATE study_directions SET objective = 2147483647 WHERE objective = 1;

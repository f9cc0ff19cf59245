UPDATE study_directions SET objective = -1;

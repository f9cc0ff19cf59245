UPDATE study_directions SET objective = objective + 1;

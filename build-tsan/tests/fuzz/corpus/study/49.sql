UPDATE trial_values SET objective = 7;

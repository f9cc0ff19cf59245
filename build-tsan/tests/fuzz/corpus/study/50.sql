UPDATE trial_values SET objective = -7, value = 'x';

UPDATE trial_values SET value = NULL;

UPDATE trial_intermediate_values SET step = -1 - step;

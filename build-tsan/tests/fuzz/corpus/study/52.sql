UPDATE trial_intermediate_values SET step = 9223372036854775807 - step;

UPDATE trial_intermediate_values SET intermediate_value_type = 'INF_NEG';

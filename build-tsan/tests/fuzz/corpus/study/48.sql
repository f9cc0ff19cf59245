UPDATE trial_values SET value_type = 'NAN';

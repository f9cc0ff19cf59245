UPDATE trial_params SET param_name = 'x' WHERE param_id > 1; UPDATE trial_params SET trial_id = param_id;

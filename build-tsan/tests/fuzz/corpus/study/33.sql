UPDATE trial_params SET param_value = 'a';

UPDATE trial_params SET param_value = 9e999;

UPDATE trial_params SET param_value = -0.5;

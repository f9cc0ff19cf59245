UPDATE trial_params SET param_name = NULL;

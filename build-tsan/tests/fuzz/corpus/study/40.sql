UPDATE trial_params SET distribution_json = 'null';

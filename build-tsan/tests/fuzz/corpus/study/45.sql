UPDATE trial_params SET distribution_json = '{"name": "CategoricalDistribution", "attributes": {"choices": []}}';

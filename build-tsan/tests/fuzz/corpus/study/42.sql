UPDATE trial_params SET distribution_json = '{"name": "UniformDistribution", "attributes": {"low": 0, "high": 1}}';

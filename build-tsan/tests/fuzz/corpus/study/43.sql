UPDATE trial_params SET distribution_json = '{"name": "IntDistribution", "attributes": {"low": 5, "high": 1}}';

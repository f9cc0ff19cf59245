UPDATE trial_params SET distribution_json = '{"name": "IntDistribution", "attributes": {"log": true, "low": 0, "high": 9, "step": 2}}';

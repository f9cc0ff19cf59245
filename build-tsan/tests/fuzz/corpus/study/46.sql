UPDATE trial_params SET distribution_json = '{"name": "FloatDistribution", "attributes": {"low": NaN, "high": Infinity}}';

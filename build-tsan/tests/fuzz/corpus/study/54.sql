UPDATE trial_system_attributes SET value_json = '{';

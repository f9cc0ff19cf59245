UPDATE study_user_attributes SET value_json = x'22ff22';

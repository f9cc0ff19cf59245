UPDATE trial_system_attributes SET "key" = NULL;

UPDATE studies SET study_name = x'ff00';

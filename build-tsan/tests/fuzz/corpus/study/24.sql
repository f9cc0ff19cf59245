UPDATE studies SET study_name = '';

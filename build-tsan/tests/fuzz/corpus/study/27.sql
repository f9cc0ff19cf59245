UPDATE study_directions SET direction = 'UP';

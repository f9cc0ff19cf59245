DELETE FROM study_directions;

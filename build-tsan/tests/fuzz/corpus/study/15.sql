DELETE FROM trials;

DELETE FROM trials WHERE number = 1;

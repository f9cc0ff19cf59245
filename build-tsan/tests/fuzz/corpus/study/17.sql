DELETE FROM studies;

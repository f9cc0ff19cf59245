DROP TABLE trials;

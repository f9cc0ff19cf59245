CREATE TABLE more (a, b);

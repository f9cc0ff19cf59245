ALTER TABLE trials RENAME COLUMN state TO status;

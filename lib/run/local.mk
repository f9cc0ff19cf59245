# lib/run

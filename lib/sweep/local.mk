# lib/sweep

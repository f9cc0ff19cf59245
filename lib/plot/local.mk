# lib/plot

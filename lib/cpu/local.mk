# lib/cpu

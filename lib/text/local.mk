# lib/text

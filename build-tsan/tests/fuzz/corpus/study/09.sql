UPDATE trials SET number = 3 - number;

UPDATE trials SET number = 0;

UPDATE trials SET number = number + 100;

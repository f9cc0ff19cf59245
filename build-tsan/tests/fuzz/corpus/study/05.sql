UPDATE trials SET number = -1;

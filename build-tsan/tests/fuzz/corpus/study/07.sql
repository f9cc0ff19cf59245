UPDATE trials SET number = NULL;

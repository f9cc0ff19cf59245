# lib/train - training
lib_libshardutils_a_SOURCES += \
    %D%/optimizer.c %D%/optimizer.h \
    %D%/parameters.c %D%/parameters.h \
    %D%/schedule.c %D%/schedule.h \
    %D%/trainer.c %D%/trainer.h

# lib/train - training
lib_libshardutils_a_SOURCES += \
    %D%/corpus.c %D%/corpus.h \
    %D%/data.c %D%/data.h \
    %D%/optimizer.c %D%/optimizer.h \
    %D%/parameters.c %D%/parameters.h \
    %D%/schedule.c %D%/schedule.h \
    %D%/textfile.c %D%/textfile.h \
    %D%/texts.c %D%/texts.h \
    %D%/trainer.c %D%/trainer.h

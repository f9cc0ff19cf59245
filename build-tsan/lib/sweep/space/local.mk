# lib/sweep/space - search spaces, distributions and what trials were
lib_libshardutils_a_SOURCES += \
    %D%/dist.c %D%/dist.h \
    %D%/history.c %D%/history.h \
    %D%/settings.c %D%/settings.h \
    %D%/space.c %D%/space.h \
    %D%/special.c %D%/special.h \
    %D%/truncnorm.c %D%/truncnorm.h

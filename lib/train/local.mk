# lib/train - training
lib_libshardutils_a_SOURCES += \
    %D%/parameters.c %D%/parameters.h

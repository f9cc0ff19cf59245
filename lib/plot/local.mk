# lib/plot - pictures
lib_libshardutils_a_SOURCES += \
    %D%/canvas.c %D%/canvas.h

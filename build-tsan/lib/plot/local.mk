# lib/plot - pictures
lib_libshardutils_a_SOURCES += \
    %D%/canvas.c %D%/canvas.h \
    %D%/chart.c %D%/chart.h \
    %D%/parallel.c %D%/parallel.h

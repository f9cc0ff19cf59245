# lib/plot - pictures, and pages that hold them
lib_libshardutils_a_SOURCES += \
    %D%/canvas.c %D%/canvas.h \
    %D%/chart.c %D%/chart.h \
    %D%/html.c %D%/html.h \
    %D%/parallel.c %D%/parallel.h \
    %D%/stacks.c %D%/stacks.h

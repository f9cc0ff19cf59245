# lib/sweep/job - commands that run, and what they report
lib_libshardutils_a_SOURCES += \
    %D%/devices.c %D%/devices.h \
    %D%/grep.c %D%/grep.h \
    %D%/guard.c %D%/guard.h \
    %D%/job.c %D%/job.h \
    %D%/joblog.c %D%/joblog.h \
    %D%/limits.c %D%/limits.h \
    %D%/measure.c %D%/measure.h \
    %D%/strays.c %D%/strays.h

# lib/sweep/pruner - which trials end early
lib_libshardutils_a_SOURCES += \
    %D%/halving.c \
    %D%/percentile.c \
    %D%/pruner.c %D%/pruner.h \
    %D%/wilcoxon.c

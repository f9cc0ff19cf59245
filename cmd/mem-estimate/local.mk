# mem-estimate
bin_PROGRAMS += bin/mem-estimate
bin_mem_estimate_SOURCES = \
    %D%/calibrate.c \
    %D%/cluster.c %D%/cluster.h \
    %D%/emit.c %D%/emit.h \
    %D%/estimate.c \
    %D%/estimateplot.c \
    %D%/gpus.c \
    %D%/emitframework.c %D%/emitframework.h \
    %D%/main.c \
    %D%/mem-estimate.h \
    %D%/plan.c \
    %D%/request.c %D%/request.h \
    %D%/report.c \
    %D%/planrequests.c %D%/planrequests.h \
    %D%/solve.c
bin_mem_estimate_LDADD = $(program_libs) -lpthread

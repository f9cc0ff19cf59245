# tp-shard
bin_PROGRAMS += bin/tp-shard
bin_tp_shard_SOURCES = \
    %D%/audit.c \
    %D%/diff.c \
    %D%/families.c \
    %D%/gather.c \
    %D%/main.c \
    %D%/merge.c \
    %D%/options.c \
    %D%/plan.c \
    %D%/planplot.c \
    %D%/reshard.c \
    %D%/show.c \
    %D%/split.c \
    %D%/sum.c \
    %D%/tp-shard.h \
    %D%/verify.c
bin_tp_shard_LDADD = $(program_libs) -lpthread

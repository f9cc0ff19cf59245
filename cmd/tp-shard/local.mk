# tp-shard
bin_PROGRAMS += bin/tp-shard
bin_tp_shard_SOURCES = \
    %D%/main.c \
    %D%/merge.c \
    %D%/options.c \
    %D%/reshard.c \
    %D%/split.c \
    %D%/tp-shard.h
bin_tp_shard_LDADD = $(program_libs)

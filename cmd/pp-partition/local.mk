# pp-partition
bin_PROGRAMS += bin/pp-partition
bin_pp_partition_SOURCES = \
    %D%/main.c \
    %D%/merge.c \
    %D%/plan.c \
    %D%/pp-partition.h \
    %D%/schedule.c \
    %D%/split.c \
    %D%/stages.c %D%/stages.h
bin_pp_partition_LDADD = $(program_libs) -lpthread

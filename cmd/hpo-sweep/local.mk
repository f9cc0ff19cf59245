# hpo-sweep
bin_PROGRAMS += bin/hpo-sweep
bin_hpo_sweep_SOURCES = \
    %D%/ask.c \
    %D%/best.c \
    %D%/directory.c \
    %D%/ending.c \
    %D%/find.c \
    %D%/hpo-sweep.h \
    %D%/lease.c \
    %D%/lineage.c \
    %D%/importance.c \
    %D%/loop.c \
    %D%/main.c \
    %D%/panels.c \
    %D%/plot.c \
    %D%/points.c \
    %D%/plot.h \
    %D%/progress.c \
    %D%/recover.c \
    %D%/repair.c \
    %D%/report.c \
    %D%/run.c \
    %D%/run.h \
    %D%/session.c \
    %D%/show.c \
    %D%/signals.c \
    %D%/slurm.c \
    %D%/spawn.c \
    %D%/tell.c \
    %D%/timeline.c \
    %D%/transport.c \
    %D%/trials.c \
    %D%/watch.c \
    %D%/warm.c
bin_hpo_sweep_LDADD = $(program_libs) $(SQLITE3_LIBS) $(YAML_LIBS)

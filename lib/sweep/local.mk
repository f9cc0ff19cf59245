# lib/sweep - search spaces, samplers, pruners, importance
lib_libshardutils_a_SOURCES += \
    %D%/cma-es.c \
    %D%/cma.c %D%/cma.h \
    %D%/devices.c %D%/devices.h \
    %D%/dist.c %D%/dist.h \
    %D%/format-optuna.c %D%/format-ray.c %D%/format-sigopt.c %D%/format-wandb.c \
    %D%/formats.h \
    %D%/grep.c %D%/grep.h \
    %D%/grid.c \
    %D%/guard.c %D%/guard.h \
    %D%/halving.c \
    %D%/history.c %D%/history.h \
    %D%/importance.c %D%/importance.h \
    %D%/journal.c \
    %D%/linalg.c %D%/linalg.h \
    %D%/nsga2.c \
    %D%/pareto.c %D%/pareto.h \
    %D%/parzen.c %D%/parzen.h \
    %D%/percentile.c \
    %D%/pruner.c %D%/pruner.h \
    %D%/postgres.c \
    %D%/qmc.c %D%/qmc.h \
    %D%/random.c \
    %D%/job.c %D%/job.h \
    %D%/joblog.c %D%/joblog.h \
    %D%/measure.c %D%/measure.h \
    %D%/replay.c %D%/replay.h \
    %D%/sampler.c %D%/sampler.h \
    %D%/settings.c %D%/settings.h \
    %D%/sobol.c %D%/sobol.h \
    %D%/space.c %D%/space.h \
    %D%/special.c %D%/special.h \
    %D%/sqlite.c \
    %D%/storage.c %D%/storage.h \
    %D%/transfer.c %D%/transfer.h \
    %D%/study.c %D%/study.h \
    %D%/sweepfile.c %D%/sweepfile.h \
    %D%/tables.c %D%/tables.h \
    %D%/tpe.c \
    %D%/truncnorm.c %D%/truncnorm.h \
    %D%/wandb-command.c \
    %D%/words.c %D%/words.h \
    %D%/yaml.c %D%/yaml.h

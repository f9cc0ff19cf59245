# lib/sweep/format - sweep files in all their formats
lib_libshardutils_a_SOURCES += \
    %D%/format-optuna.c \
    %D%/format-ray.c \
    %D%/format-sigopt.c \
    %D%/format-wandb.c \
    %D%/formats.h \
    %D%/sweepfile.c %D%/sweepfile.h \
    %D%/wandb-command.c \
    %D%/words.c %D%/words.h \
    %D%/yaml.c %D%/yaml.h

# lib/sweep/storage - studies on disk
lib_libshardutils_a_SOURCES += \
    %D%/journal.c \
    %D%/postgres.c \
    %D%/replay.c %D%/replay.h \
    %D%/salvage.c %D%/salvage.h \
    %D%/sqlite.c \
    %D%/storage.c %D%/storage.h \
    %D%/study.c %D%/study.h \
    %D%/tables.c %D%/tables.h \
    %D%/transfer.c %D%/transfer.h

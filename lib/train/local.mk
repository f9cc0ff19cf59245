# lib/train - training
lib_libshardutils_a_SOURCES += \
    %D%/adaptersave.c %D%/adaptersave.h \
    %D%/blend.c %D%/blend.h \
    %D%/chats.c %D%/chats.h \
    %D%/corpus.c %D%/corpus.h \
    %D%/data.c %D%/data.h \
    %D%/decompress.c %D%/decompress.h \
    %D%/events.c %D%/events.h \
    %D%/frozen.c %D%/frozen.h \
    %D%/gradients.c %D%/gradients.h \
    %D%/init.c %D%/init.h \
    %D%/labelled.c %D%/labelled.h \
    %D%/losses.c %D%/losses.h \
    %D%/masking.c %D%/masking.h \
    %D%/optimizer.c %D%/optimizer.h \
    %D%/parameters.c %D%/parameters.h \
    %D%/restore.c %D%/restore.h \
    %D%/save.c %D%/save.h \
    %D%/schedule.c %D%/schedule.h \
    %D%/shards.c %D%/shards.h \
    %D%/sharing.c %D%/sharing.h \
    %D%/squares.c %D%/squares.h \
    %D%/textfile.c %D%/textfile.h \
    %D%/texts.c %D%/texts.h \
    %D%/tokenfile.c %D%/tokenfile.h \
    %D%/tokenwriter.c %D%/tokenwriter.h \
    %D%/trainer.c %D%/trainer.h

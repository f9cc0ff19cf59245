# lib/train - training
lib_libshardutils_a_SOURCES += \
    %D%/adaptersave.c %D%/adaptersave.h \
    %D%/blend.c %D%/blend.h \
    %D%/chats.c %D%/chats.h \
    %D%/codes8.c %D%/codes8.h \
    %D%/corpus.c %D%/corpus.h \
    %D%/data.c %D%/data.h \
    %D%/decompress.c %D%/decompress.h \
    %D%/events.c %D%/events.h \
    %D%/gradients.c %D%/gradients.h \
    %D%/init.c %D%/init.h \
    %D%/labelled.c %D%/labelled.h \
    %D%/verdict.c %D%/verdict.h \
    %D%/rated.c %D%/textline.h \
    %D%/losses.c %D%/losses.h \
    %D%/magnitudes.c %D%/magnitudes.h \
    %D%/masking.c %D%/masking.h \
    %D%/offload.c %D%/offload.h \
    %D%/optimizer.c %D%/optimizer.h \
    %D%/paired.c \
    %D%/parameters.c %D%/parameters.h \
    %D%/restore.c %D%/restore.h \
    %D%/rounded.c %D%/rounded.h \
    %D%/save.c %D%/save.h \
    %D%/scaler.c %D%/scaler.h \
    %D%/schedule.c %D%/schedule.h \
    %D%/shards.c %D%/shards.h \
    %D%/sharing.c %D%/sharing.h \
    %D%/squad.c %D%/squad.h \
    %D%/squares.c %D%/squares.h \
    %D%/textfile.c %D%/textfile.h \
    %D%/texts.c %D%/texts.h \
    %D%/ties.c %D%/ties.h \
    %D%/tokenfile.c %D%/tokenfile.h \
    %D%/tokenwriter.c %D%/tokenwriter.h \
    %D%/trainer.c %D%/trainer.h \
    %D%/wholes.c %D%/wholes.h

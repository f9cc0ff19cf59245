# lib/text - tokenizers
lib_libshardutils_a_SOURCES += \
    %D%/added.c %D%/added.h \
    %D%/bpe.c \
    %D%/bytelevel.c %D%/bytelevel.h \
    %D%/chars.c %D%/chars.h \
    %D%/charsmap.c %D%/charsmap.h \
    %D%/decoder.c %D%/decoder.h \
    %D%/frame.c %D%/frame.h \
    %D%/normalizer.c %D%/normalizer.h \
    %D%/oldfiles.c %D%/oldfiles.h \
    %D%/onig.c \
    %D%/origins.c %D%/origins.h \
    %D%/pattern.c %D%/pattern.h \
    %D%/pieces.c %D%/pieces.h \
    %D%/setting.c %D%/setting.h \
    %D%/splitter.c %D%/splitter.h \
    %D%/stops.c %D%/stops.h \
    %D%/subword.c %D%/subword.h \
    %D%/tekken.c %D%/tekken.h \
    %D%/tokenizer.c %D%/tokenizer.h \
    %D%/unicode.c %D%/unicode.h \
    %D%/unigram.c \
    %D%/vocab.c %D%/vocab.h \
    %D%/wordlevel.c \
    %D%/wordpiece.c

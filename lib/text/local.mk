# lib/text - tokenizers
lib_libshardutils_a_SOURCES += \
    %D%/bpe.c %D%/bpe.h \
    %D%/split.c %D%/split.h \
    %D%/tokenizer.c %D%/tokenizer.h

# lib/text - tokenizers
lib_libshardutils_a_SOURCES += \
    %D%/bpe.c %D%/bpe.h \
    %D%/splitter.c %D%/splitter.h \
    %D%/tokenizer.c %D%/tokenizer.h

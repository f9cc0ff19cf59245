# lib/cpu/attention - softmax(scale q k^T) v: attention; decode-TYPE reads a cache for one query, decode-int8
# for any; prefill-bf16 is of many queries by tiles of bf16; relative adds scores by distance, longformer has
# global tokens
lib_libshardutils_a_SOURCES += \
    %D%/attention.c \
    %D%/decode-float.c %D%/decode-float.h %D%/decode-float-avx2.c \
    %D%/decode-int8.c %D%/decode-int8.h \
    %D%/longformer.c \
    %D%/prefill-bf16.c %D%/prefill-bf16.h \
    %D%/relative.c

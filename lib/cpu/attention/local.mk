# lib/cpu/attention - softmax(scale q k^T) v: attention opens it, prefill makes it for many queries, decode for
# one.  bias is what is added to scores, softmax makes weights of them, kv-products reads keys and values.
# Loops over a cache for one query: decode-float in f32 (caches in f32, bf16 and, without VNNI, int8),
# decode-int8 in integers.  prefill-bf16: many queries by tiles of bf16 (AMX, AVX512-BF16).
# Of other models: relative adds scores by distance (DeBERTa, XLNet, Funnel), longformer has global tokens, side a row for
# each block of tokens (LongT5).
lib_libshardutils_a_SOURCES += \
    %D%/attention.c %D%/attention.h \
    %D%/attention-room.c \
    %D%/bias.c \
    %D%/decode.c \
    %D%/decode-float.c %D%/decode-float.h %D%/decode-float-avx2.c \
    %D%/decode-int8.c %D%/decode-int8.h \
    %D%/kv-products.c \
    %D%/longformer.c \
    %D%/prefill.c \
    %D%/prefill-bf16.c %D%/prefill-bf16.h \
    %D%/relative.c \
    %D%/side.c \
    %D%/softmax.c

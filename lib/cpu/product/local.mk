# lib/cpu/product - products by weights: y = x W^T and y = x W (linear).  Their loops: tile-TYPE for f32 and
# 16 bits, tile-bf16dot for bf16 by x rounded to bf16, codes-TYPE for 8 and 4 bits by x rounded to integers;
# FILE-avx2 for CPUs without AVX-512.  Of many rows: amx-rows by AMX, bf16tile-transposed by AMX or
# AVX512-BF16.  autotune chooses among loops by the clock, onednn is a library's products.
lib_libshardutils_a_SOURCES += \
    %D%/amx-rows.c \
    %D%/autotune.h \
    %D%/bf16tile-transposed.c \
    %D%/codes-avx2.c \
    %D%/codes-int4.c \
    %D%/codes-int8.c \
    %D%/codes-linear.c %D%/codes-linear.h \
    %D%/codes-loops.h \
    %D%/linear.c \
    %D%/onednn.c %D%/onednn.h \
    %D%/streams.h \
    %D%/tile.h %D%/tile-loops.h \
    %D%/tile-avx2.c \
    %D%/tile-bf16.c \
    %D%/tile-bf16dot.c \
    %D%/tile-f16.c \
    %D%/tile-f32.c

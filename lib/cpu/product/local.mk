# lib/cpu/product - products by weights.  Equations: y = x W^T (linear, by its number of rows), y = x W (matmul),
# C += A^T B (outer), those of f32 alone (dots); arrange puts x and weights in the order that loops read.
# Of many rows in bf16: amx-rows, bf16dot-rows (AVX512-BF16), bf16tile-transposed (either).
# Loops: tile-TYPE for f32 and 16 bits, tile-bf16dot for bf16 by x rounded to bf16, codes-TYPE for 8 and 4 bits
# by x rounded to integers; FILE-avx2 for CPUs without AVX-512.
# autotune chooses among loops by the clock, streams deals weights to threads, onednn is a library.
lib_libshardutils_a_SOURCES += \
    %D%/amx-rows.c \
    %D%/arrange.c \
    %D%/autotune.h \
    %D%/bf16dot-rows.c \
    %D%/bf16tile-transposed.c \
    %D%/codes-avx2.c \
    %D%/codes-back.c \
    %D%/codes-fp8.c \
    %D%/codes-int4.c \
    %D%/codes-int8.c \
    %D%/codes-linear.c %D%/codes-linear.h \
    %D%/codes-loops.h \
    %D%/dots.c \
    %D%/head-product.c \
    %D%/linear.c %D%/linear.h \
    %D%/linear-few-rows.c \
    %D%/linear-many-rows.c \
    %D%/linear-one-row.c \
    %D%/matmul.c \
    %D%/onednn.c %D%/onednn.h \
    %D%/outer.c \
    %D%/product-room.c \
    %D%/streams.h \
    %D%/tile.h %D%/tile-loops.h \
    %D%/tile-avx2.c \
    %D%/tile-bf16.c \
    %D%/tile-bf16dot.c \
    %D%/tile-f16.c \
    %D%/tile-f32.c

# lib/cpu - the operations on the CPU, one to a file; tile-TYPE are the loops of linear
include %D%/simd/local.mk
lib_libshardutils_a_SOURCES += \
    %D%/attention.c \
    %D%/backend.c \
    %D%/cached.c \
    %D%/cpu.h \
    %D%/dropout.c \
    %D%/elementwise.c \
    %D%/embedding.c \
    %D%/globals.c \
    %D%/gradient.c \
    %D%/kernels.c \
    %D%/keybytes.c %D%/keybytes.h \
    %D%/keyrows.c %D%/keyrows.h %D%/keyrows-avx2.c \
    %D%/linear.c %D%/linear.h \
    %D%/norm.c \
    %D%/packed.c %D%/packed.h %D%/streams.h \
    %D%/many.c \
    %D%/machine.c %D%/machine.h \
    %D%/onednn.c %D%/onednn.h \
    %D%/rotate.c \
    %D%/relate.c \
    %D%/route.c \
    %D%/sample.c \
    %D%/taps.c \
    %D%/team.c \
    %D%/turned.c \
    %D%/tiled.c %D%/tiled.h \
    %D%/tile.h %D%/tile-avx2.c %D%/tile-bf16.c %D%/tile-f16.c %D%/tile-f32.c %D%/tile-pairs.c \
    %D%/tile-codes.h %D%/tile-codes-avx2.c %D%/tile-int4.c %D%/tile-int8.c \
    %D%/ways.h

# lib/cpu - the backend of this machine: the kernel of each operation (kernels), threads (team), what the
# machine reaches (machine); the loops are in rooms
include %D%/simd/local.mk
include %D%/product/local.mk
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
    %D%/machine.c %D%/machine.h \
    %D%/norm.c \
    %D%/relate.c \
    %D%/rotate.c \
    %D%/route.c \
    %D%/sample.c \
    %D%/taps.c \
    %D%/team.c \
    %D%/tiled.c %D%/tiled.h

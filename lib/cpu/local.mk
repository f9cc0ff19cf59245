# lib/cpu - the backend of this machine: the kernel of each operation (kernels), threads (team), what the
# machine reaches (machine); the loops are in rooms
include %D%/simd/local.mk
include %D%/product/local.mk
include %D%/cache/local.mk
include %D%/attention/local.mk
lib_libshardutils_a_SOURCES += \
    %D%/backend.c \
    %D%/cpu.h \
    %D%/dropout.c \
    %D%/elementwise.c \
    %D%/embedding.c \
    %D%/gradient.c \
    %D%/kernels.c \
    %D%/machine.c %D%/machine.h \
    %D%/norm.c \
    %D%/rotate.c \
    %D%/route.c \
    %D%/sample.c \
    %D%/taps.c \
    %D%/team.c

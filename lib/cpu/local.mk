# lib/cpu - the backend of this machine: the kernel of each operation (kernels), threads (team), what the
# machine reaches (machine).  cpu.h declares the loops behind the kernels, which are in rooms; each local.mk
# says what its files are.
include %D%/simd/local.mk
include %D%/product/local.mk
include %D%/cache/local.mk
include %D%/attention/local.mk
include %D%/rows/local.mk
include %D%/reverse/local.mk
lib_libshardutils_a_SOURCES += \
    %D%/arrays.c \
    %D%/rounding.c \
    %D%/backend.c \
    %D%/cpu.h \
    %D%/kernels.c \
    %D%/machine.c %D%/machine.h \
    %D%/room.c %D%/room.h \
    %D%/team.c

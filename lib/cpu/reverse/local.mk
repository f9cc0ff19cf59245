# lib/cpu/reverse - the kernels of the reverse: gradients of the other rooms' operations
lib_libshardutils_a_SOURCES += \
    %D%/attention-back.c \
    %D%/gradient.c

# lib/cpu/reverse - the kernels of the reverse: FILE-back has the gradients of the operations of FILE in the
# other rooms, rows-back those of what kernels.c does itself
lib_libshardutils_a_SOURCES += \
    %D%/attention-back.c \
    %D%/elementwise-back.c \
    %D%/experts-back.c \
    %D%/gradient.h \
    %D%/norm-back.c \
    %D%/product-back.c \
    %D%/rows-back.c

# lib/cpu/rows - what is no product and no attention, row by row: an operation, or some that belong together,
# to a file.  conv-pool has those that read neighbouring rows, experts the choice of experts and their rows.
lib_libshardutils_a_SOURCES += \
    %D%/conv-pool.c \
    %D%/dropout.c \
    %D%/elementwise.c \
    %D%/embedding.c \
    %D%/experts.c \
    %D%/norm.c \
    %D%/rope.c \
    %D%/sample.c

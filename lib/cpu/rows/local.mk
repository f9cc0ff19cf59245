# lib/cpu/rows - what is no product and no attention: an operation, or some that belong together, to a file.
# experts has the choice of the top-k experts and their rows; conv-pool has convolutions, pools and shifts, which
# read neighbouring rows; rowwise what takes whole rows.
lib_libshardutils_a_SOURCES += \
    %D%/balance.c \
    %D%/conv-pool.c \
    %D%/state-conv.c \
    %D%/state-scan.c \
    %D%/dropout.c \
    %D%/elementwise.c \
    %D%/embedding.c \
    %D%/experts.c \
    %D%/norm.c \
    %D%/rope.c \
    %D%/rowwise.c \
    %D%/sample.c

# lib/program - the forward pass of one rank, compiled
lib_libshardutils_a_SOURCES += \
    %D%/activation.c %D%/activation.h \
    %D%/arena.c \
    %D%/attention-shape.h \
    %D%/boundary.c %D%/boundary.h \
    %D%/build.c %D%/build.h \
    %D%/check.c %D%/check.h \
    %D%/cost.c %D%/cost.h \
    %D%/eval.c \
    %D%/heads.c \
    %D%/line.c %D%/line.h \
    %D%/mixture.c \
    %D%/neighbours.c \
    %D%/packable.c %D%/packable.h \
    %D%/op.c %D%/op.h \
    %D%/print.c %D%/print.h \
    %D%/program.c %D%/program.h \
    %D%/reverse.c %D%/reverse.h \
    %D%/rotary.c %D%/rotary.h \
    %D%/rules.c

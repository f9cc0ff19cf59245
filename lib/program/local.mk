# lib/program - the forward pass of one rank, compiled
lib_libshardutils_a_SOURCES += \
    %D%/activation.c %D%/activation.h \
    %D%/arena.c \
    %D%/attention-shape.h \
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
    %D%/pass.c %D%/pass.h \
    %D%/fuse.h \
    %D%/gaps.c %D%/gaps.h \
    %D%/pass-adapters.c \
    %D%/pass-boundary.c \
    %D%/pass-chunks.c \
    %D%/pass-fuse.c \
    %D%/pass-lifetimes.c \
    %D%/pass-order.c \
    %D%/pass-recompute.c \
    %D%/pass-reverse.c %D%/pass-reverse.h \
    %D%/pass-sequence.c \
    %D%/pass-split.c \
    %D%/pass-types.c \
    %D%/pass-unused.c \
    %D%/pass-weights.c \
    %D%/print.c %D%/print.h \
    %D%/program.c %D%/program.h \
    %D%/recompute.c %D%/recompute.h \
    %D%/rotary.c %D%/rotary.h \
    %D%/roundable.c %D%/roundable.h \
    %D%/rows.c %D%/rows.h \
    %D%/rules.c \
    %D%/recurrence.c %D%/recurrence.h \
    %D%/units.c %D%/units.h

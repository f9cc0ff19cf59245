# lib/sweep/sampler - where the next trial is
lib_libshardutils_a_SOURCES += \
    %D%/cma-es.c \
    %D%/cma.c %D%/cma.h \
    %D%/fanova.c %D%/fanova.h \
    %D%/gaussian.c %D%/gaussian.h \
    %D%/gp.c \
    %D%/grid.c \
    %D%/linalg.c %D%/linalg.h \
    %D%/minimize.c %D%/minimize.h \
    %D%/nsga2.c \
    %D%/pareto.c %D%/pareto.h \
    %D%/parzen.c %D%/parzen.h \
    %D%/pbt.c \
    %D%/pedanova.c %D%/pedanova.h \
    %D%/qmc.c %D%/qmc.h \
    %D%/random.c \
    %D%/sampler.c %D%/sampler.h \
    %D%/sobol.c %D%/sobol.h \
    %D%/tpe.c

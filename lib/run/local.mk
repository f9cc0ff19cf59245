# lib/run - ranks and the engine
lib_libshardutils_a_SOURCES += \
    %D%/attend.c %D%/attend.h \
    %D%/engine.c %D%/engine.h \
    %D%/exchange.c %D%/exchange.h \
    %D%/launch.c %D%/launch.h \
    %D%/runner.c %D%/runner.h \
    %D%/sequence.c %D%/sequence.h \
    %D%/weights.c %D%/weights.h

# lib/run - ranks and the engine
lib_libshardutils_a_SOURCES += \
    %D%/adapter.c %D%/adapter.h \
    %D%/adapterconfig.c %D%/adapterconfig.h \
    %D%/adaptermerge.c %D%/adaptermerge.h \
    %D%/adapternorm.c %D%/adapternorm.h \
    %D%/adapterstack.c %D%/adapterstack.h \
    %D%/attend.c %D%/attend.h \
    %D%/backends.c \
    %D%/beams.c %D%/beams.h \
    %D%/base.c %D%/base.h \
    %D%/blockpool.c %D%/blockpool.h \
    %D%/cache.c %D%/cache.h \
    %D%/choice.c %D%/choice.h \
    %D%/chosenrows.c %D%/chosenrows.h \
    %D%/draft.c %D%/draft.h \
    %D%/encode.c %D%/encode.h \
    %D%/engine.c %D%/engine.h \
    %D%/feeds.c %D%/feeds.h \
    %D%/alltoall.c %D%/alltoall.h \
    %D%/held.c %D%/held.h \
    %D%/launch.c %D%/launch.h \
    %D%/link.c %D%/link.h \
    %D%/pick.c %D%/pick.h \
    %D%/plan.c %D%/plan.h \
    %D%/processors.c %D%/processors.h \
    %D%/rates.c %D%/rates.h \
    %D%/replays.c %D%/replays.h \
    %D%/replica.c %D%/replica.h \
    %D%/resident.c %D%/resident.h \
    %D%/runner.c %D%/runner.h \
    %D%/scheduler.c %D%/scheduler.h \
    %D%/serving.c %D%/serving.h \
    %D%/sequence.c %D%/sequence.h \
    %D%/states.c %D%/states.h \
    %D%/upload.c %D%/upload.h \
    %D%/weights.c %D%/weights.h \
    %D%/wires.c %D%/wires.h

# lib/estimate - memory and time predicted
lib_libshardutils_a_SOURCES += \
    %D%/costmodel.c %D%/costmodel.h \
    %D%/backward.c %D%/backward.h \
    %D%/bubble.c %D%/bubble.h \
    %D%/foretold.c %D%/foretold.h \
    %D%/gpu.c %D%/gpu.h \
    %D%/habits.c %D%/habits.h \
    %D%/measured.c %D%/measured.h \
    %D%/memory.c %D%/memory.h \
    %D%/part.c %D%/part.h \
    %D%/planner.c %D%/planner.h \
    %D%/reversed.c %D%/reversed.h \
    %D%/served.c %D%/served.h \
    %D%/stagecut.c %D%/stagecut.h \
    %D%/steptime.c %D%/steptime.h \
    %D%/tally.c %D%/tally.h \
    %D%/torch.c %D%/torch.h \
    %D%/training.c %D%/training.h \
    %D%/values.c %D%/values.h \
    %D%/weighttype.c %D%/weighttype.h \
    %D%/work.c %D%/work.h

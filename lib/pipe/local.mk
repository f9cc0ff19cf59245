# lib/pipe - pipeline schedules: made, checked, simulated
lib_libshardutils_a_SOURCES += \
    %D%/action.c %D%/action.h \
    %D%/calibration.c %D%/calibration.h \
    %D%/csv.c %D%/csv.h \
    %D%/passtimes.c %D%/passtimes.h \
    %D%/order.c %D%/order.h \
    %D%/partition.c %D%/partition.h \
    %D%/search.c %D%/search.h \
    %D%/simulate.c %D%/simulate.h \
    %D%/vshape.c %D%/vshape.h

# lib/device - what a backend is (device.h): its operations on arrays (arrays.h), its structures in memory
# (layout.h), the table of optimizers (optimizers.h), and what C and CUDA compute alike (positions.h, updates.h, rounding.h)
lib_libshardutils_a_SOURCES += %D%/arraynames.c %D%/arrays.h %D%/device.h %D%/layout.h %D%/ledger.c %D%/ledger.h \
    %D%/operands.c %D%/optimizers.c %D%/optimizers.h %D%/positions.h %D%/rounding.h %D%/updates.h

# lib/device - what a backend is (device.h), its structures in memory (layout.h), and what C and CUDA compute
# alike (positions.h)
lib_libshardutils_a_SOURCES += %D%/device.h %D%/layout.h %D%/ledger.c %D%/ledger.h %D%/positions.h

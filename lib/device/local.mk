# lib/device - what a backend is
lib_libshardutils_a_SOURCES += %D%/device.h %D%/layout.h

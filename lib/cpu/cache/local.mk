# lib/cpu/cache - rows of the KV cache, in each of its types
lib_libshardutils_a_SOURCES += \
    %D%/kv-cache.c \
    %D%/kv-rows.c %D%/kv-rows.h

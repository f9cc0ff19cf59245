# lib/cpu/simd - instruction sets: vectors of floats and what they are loaded from (vec, widen), loops for
# AVX2 (avx2), the tiles of AMX (amx), the same on CPUs with AVX512-BF16 alone (avx512bf16), and on either
# (bf16tile)
lib_libshardutils_a_SOURCES += \
    %D%/amx.c %D%/amx.h \
    %D%/avx2.h \
    %D%/avx512bf16.c %D%/avx512bf16.h \
    %D%/bf16tile.c %D%/bf16tile.h \
    %D%/vec.c %D%/vec.h \
    %D%/widen.c

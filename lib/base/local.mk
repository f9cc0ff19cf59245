# lib/base - what everything stands on
lib_libshardutils_a_SOURCES += \
    %D%/base64.c %D%/base64.h \
    %D%/cached.h \
    %D%/clock.c %D%/clock.h \
    %D%/ggml.c %D%/ggml.h \
    %D%/codes.c %D%/codes.h \
    %D%/dtype.c %D%/dtype.h \
    %D%/err.c %D%/err.h \
    %D%/format.c %D%/format.h \
    %D%/fs.c %D%/fs.h \
    %D%/hash.c %D%/hash.h \
    %D%/hostdevice.h \
    %D%/json.c %D%/json.h \
    %D%/jsonlex.c %D%/jsonlex.h \
    %D%/mem.c %D%/mem.h \
    %D%/merges.c %D%/merges.h \
    %D%/output.c %D%/output.h \
    %D%/pool.c %D%/pool.h \
    %D%/rng.c %D%/rng.h \
    %D%/scan.c %D%/scan.h \
    %D%/sha256.c %D%/sha256.h \
    %D%/shares.c %D%/shares.h \
    %D%/sort.c %D%/sort.h \
    %D%/spin.h \
    %D%/str.c %D%/str.h

# lib/ckpt - checkpoints on disk
lib_libshardutils_a_SOURCES += \
    %D%/manifest.c %D%/manifest.h \
    %D%/outdir.c %D%/outdir.h \
    %D%/safetensors.c %D%/safetensors.h \
    %D%/source.c %D%/source.h \
    %D%/tensor.c %D%/tensor.h

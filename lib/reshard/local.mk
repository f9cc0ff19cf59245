# lib/reshard - checkpoints: one set of files into another
lib_libshardutils_a_SOURCES += \
    %D%/audit.c %D%/audit.h \
    %D%/bitscan.c %D%/bitscan.h \
    %D%/checkpoint.c %D%/checkpoint.h \
    %D%/compare.c %D%/compare.h \
    %D%/convert.c %D%/convert.h \
    %D%/cut.c %D%/cut.h \
    %D%/describe.c %D%/describe.h \
    %D%/export.c %D%/export.h %D%/exporting.c %D%/exporting.h %D%/exportforms.h %D%/exportitems.c %D%/exportitems.h %D%/placed.c %D%/placed.h \
    %D%/exportdcp.c %D%/exportgguf.c %D%/exportmegatron.c %D%/exportzero.c \
    %D%/exportgroups.c %D%/exportgroups.h %D%/exporttrainer.c \
    %D%/gather.c \
    %D%/grow.c %D%/grow.h \
    %D%/idrange.c %D%/idrange.h \
    %D%/inspect.c %D%/inspect.h \
    %D%/inspection.c %D%/inspection.h \
    %D%/nonfinite.c %D%/nonfinite.h \
    %D%/numbered.c %D%/numbered.h \
    %D%/partset.c %D%/partset.h \
    %D%/pytorchgroups.c %D%/pytorchgroups.h \
    %D%/quantize.c %D%/quantize.h \
    %D%/renamed.c %D%/renamed.h \
    %D%/smallfile.c %D%/smallfile.h \
    %D%/summary.c %D%/summary.h \
    %D%/rankconfig.c %D%/rankconfig.h \
    %D%/surroundings.c %D%/surroundings.h \
    %D%/target.c %D%/target.h \
    %D%/unpack.c %D%/unpack.h

# lib/ckpt - checkpoints on disk
lib_libshardutils_a_SOURCES += \
    %D%/beside.c %D%/beside.h \
    %D%/boxes.c %D%/boxes.h \
    %D%/dcp.c %D%/dcp.h \
    %D%/dcpdir.c %D%/dcpdir.h \
    %D%/dcpgroups.c %D%/dcpgroups.h \
    %D%/dictindex.c %D%/dictindex.h \
    %D%/flatvec.c %D%/flatvec.h \
    %D%/foreignforms.h %D%/megatrondir.c %D%/megatronargs.c %D%/megatronargs.h %D%/megatronranks.c %D%/megatronranks.h %D%/megatronstates.c %D%/megatronstates.h %D%/metadir.c %D%/nanogptdir.c %D%/llmcfile.c %D%/hubshards.c \
    %D%/form.c %D%/form.h \
    %D%/fourbit.c %D%/fourbit.h \
    %D%/gguf.c %D%/gguf.h %D%/gguffile.c %D%/ggufwriter.c %D%/ggufwriter.h %D%/ggufconfig.c %D%/ggufconfig.h %D%/gguftokens.c %D%/gguftokens.h \
    %D%/hubdir.c %D%/hubdir.h \
    %D%/locate.c %D%/locate.h \
    %D%/manifest.c %D%/manifest.h %D%/manifestwriter.c \
    %D%/npy.c %D%/npy.h \
    %D%/numberedstate.c %D%/numberedstate.h \
    %D%/outdir.c %D%/outdir.h \
    %D%/trainprogress.c %D%/trainprogress.h %D%/trainerstate.c %D%/trainerstate.h \
    %D%/pickle.c %D%/pickle.h %D%/pickler.c %D%/pickler.h \
    %D%/rankfiles.c %D%/rankfiles.h \
    %D%/records.c %D%/records.h \
    %D%/safetensors.c %D%/safetensors.h \
    %D%/source.c %D%/source.h \
    %D%/steps.c %D%/steps.h \
    %D%/tensor.c %D%/tensor.h \
    %D%/torchsave.c %D%/torchsave.h \
    %D%/unpickle.c %D%/unpickle.h \
    %D%/zerodir.c %D%/zerodir.h %D%/zerotag.c %D%/zerotag.h %D%/zerovectors.c %D%/zerovectors.h \
    %D%/zip.c %D%/zip.h

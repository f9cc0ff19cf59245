# lib/gpu - the CUDA backend: one operation, or some that belong together, to a file.  The kernels are
# compiled by nvcc where that is, and by g++ for the tests (tests/emu).
gpu_sources = %D%/abi.c %D%/blas.c %D%/blas.h %D%/calls.c %D%/cublaslt.h %D%/cuda.c %D%/cuda.h %D%/gpuround.h \
    %D%/library.c %D%/library.h %D%/nccl.c %D%/nccl.h %D%/ncclapi.h
# bounds of memory, which predictions need without CUDA
room_sources = %D%/back.h %D%/bounds.h %D%/room.c %D%/room.h
lib_libshardutils_a_SOURCES += $(room_sources)
gpu_headers = %D%/bounds.h %D%/cached.cuh %D%/device.cuh %D%/gpu.h %D%/mma.cuh %D%/quads.cuh %D%/score.cuh %D%/warps.cuh %D%/words.cuh
gpu_kernels = \
    %D%/arrays.cu \
    %D%/attention.cu \
    %D%/attention-back.cu \
    %D%/blocks.cu \
    %D%/chunks.cu \
    %D%/codes.cu \
    %D%/columns.cu \
    %D%/conv-pool.cu \
    %D%/state-conv.cu \
    %D%/cores.cu \
    %D%/cores-back.cu \
    %D%/elementwise.cu \
    %D%/elementwise-back.cu \
    %D%/embedding.cu \
    %D%/experts.cu \
    %D%/experts-back.cu \
    %D%/kv-cache.cu \
    %D%/linear.cu \
    %D%/longformer.cu \
    %D%/norm.cu \
    %D%/norm-back.cu \
    %D%/product-back.cu \
    %D%/relative.cu \
    %D%/result.cu \
    %D%/rope.cu \
    %D%/rounding.cu \
    %D%/rows-back.cu \
    %D%/sample.cu \
    %D%/side.cu \
    %D%/skinny.cu \
    %D%/split.cu \
    %D%/stream.cu \
    %D%/tiles.cu
# what C and CUDA both compile
shared_headers = lib/base/cached.h lib/base/hostdevice.h lib/device/layout.h lib/device/arrays.h lib/device/positions.h lib/device/updates.h \
    lib/program/attention-shape.h
%D%/attention-back.o %D%/attention-back.emo %D%/cores-back.o %D%/cores-back.emo %D%/elementwise-back.o %D%/elementwise-back.emo %D%/experts-back.o %D%/experts-back.emo %D%/norm-back.o %D%/norm-back.emo \
    %D%/product-back.o %D%/product-back.emo %D%/rope.o %D%/rope.emo %D%/rows-back.o %D%/rows-back.emo: %D%/back.h
%D%/elementwise.o %D%/elementwise.emo %D%/elementwise-back.o %D%/elementwise-back.emo: lib/program/activation.h
%D%/rounding.o %D%/rounding.emo: %D%/gpuround.h lib/device/rounding.h
gpu_objects = $(gpu_kernels:.cu=.o)
EXTRA_DIST += $(gpu_sources) $(gpu_headers) $(gpu_kernels)
SUFFIXES = .cu .emo

if HAVE_CUDA
lib_libshardutils_a_SOURCES += $(gpu_sources)
lib_libshardutils_a_LIBADD = $(gpu_objects)
CLEANFILES += $(gpu_objects)
endif

AM_V_NVCC = $(am__v_NVCC_@AM_V@)
am__v_NVCC_ = $(am__v_NVCC_@AM_DEFAULT_V@)
am__v_NVCC_0 = @echo "  NVCC    " $@;
am__v_NVCC_1 =
.cu.o:
	$(AM_V_NVCC)$(MKDIR_P) $(@D) && $(NVCC) -std=c++17 $(CUDA_GENCODE) -Xcompiler -fPIC,-Wall,-fno-exceptions,-fno-threadsafe-statics \
	    -I$(top_srcdir) $(NVCCFLAGS) -c -o $@ $<
$(gpu_objects): $(gpu_headers) $(shared_headers)

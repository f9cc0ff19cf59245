# lib - the library that every program links, not installed
noinst_LIBRARIES += %D%/libshardutils.a
lib_libshardutils_a_SOURCES =

include %D%/base/local.mk
include %D%/text/local.mk
include %D%/text/grammar/local.mk
include %D%/text/template/local.mk
include %D%/ckpt/local.mk
include %D%/model/local.mk
include %D%/reshard/local.mk
include %D%/program/local.mk
include %D%/device/local.mk
include %D%/cpu/local.mk
include %D%/gpu/local.mk
include %D%/comm/local.mk
include %D%/run/local.mk
include %D%/serve/local.mk
include %D%/train/local.mk
include %D%/sweep/local.mk
include %D%/plot/local.mk
include %D%/estimate/local.mk
include %D%/pipe/local.mk

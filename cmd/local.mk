# cmd - the programs
noinst_LIBRARIES += %D%/libcmd.a
cmd_libcmd_a_SOURCES = %D%/cmd.c %D%/cmd.h
program_libs = %D%/libcmd.a lib/libshardutils.a

include %D%/tp-run/local.mk
include %D%/tp-shard/local.mk

# cmd - the programs
noinst_LIBRARIES += %D%/libcmd.a
cmd_libcmd_a_SOURCES = %D%/cmd.c %D%/cmd.h %D%/conversion.c %D%/conversion.h %D%/meshopt.c %D%/meshopt.h
program_libs = %D%/libcmd.a lib/libshardutils.a

include %D%/hpo-sweep/local.mk
include %D%/mem-estimate/local.mk
include %D%/pp-partition/local.mk
include %D%/tp-run/local.mk
include %D%/tp-shard/local.mk

# completion by bash, which loads the file that has the program's name
completiondir = $(datadir)/bash-completion/completions
EXTRA_DIST += %D%/completion.bash
install-data-local:
	$(MKDIR_P) '$(DESTDIR)$(completiondir)'
	for p in $(bin_PROGRAMS); do $(INSTALL_DATA) '$(srcdir)/%D%/completion.bash' \
	    '$(DESTDIR)$(completiondir)'/"$${p##*/}" || exit; done
uninstall-local:
	for p in $(bin_PROGRAMS); do rm -f '$(DESTDIR)$(completiondir)'/"$${p##*/}"; done

# cmd - the programs
noinst_LIBRARIES += %D%/libcmd.a
cmd_libcmd_a_SOURCES = \
    %D%/cmd.c %D%/cmd.h \
    %D%/conversion.c %D%/conversion.h \
    %D%/foreign.c %D%/foreign.h \
    %D%/meshopt.c %D%/meshopt.h \
    %D%/picture.c %D%/picture.h \
    %D%/pipechart.c %D%/pipechart.h \
    %D%/table.c %D%/table.h \
    %D%/terminal.c %D%/terminal.h
program_libs = %D%/libcmd.a lib/libshardutils.a

include %D%/hpo-sweep/local.mk
include %D%/mem-estimate/local.mk
include %D%/pp-partition/local.mk
include %D%/tp-run/local.mk
include %D%/tp-shard/local.mk

# completion: bash and fish load the file that has the program's name, zsh what #compdef says
bashdir = $(datadir)/bash-completion/completions
fishdir = $(datadir)/fish/vendor_completions.d
zshdir = $(datadir)/zsh/site-functions
EXTRA_DIST += %D%/completion.bash %D%/completion.fish %D%/completion.zsh
install-data-local:
	$(MKDIR_P) '$(DESTDIR)$(bashdir)' '$(DESTDIR)$(fishdir)' '$(DESTDIR)$(zshdir)'
	for p in $(bin_PROGRAMS); do \
	    $(INSTALL_DATA) '$(srcdir)/%D%/completion.bash' '$(DESTDIR)$(bashdir)'/"$${p##*/}" && \
	    $(INSTALL_DATA) '$(srcdir)/%D%/completion.fish' '$(DESTDIR)$(fishdir)'/"$${p##*/}".fish || exit; done
	$(INSTALL_DATA) '$(srcdir)/%D%/completion.zsh' '$(DESTDIR)$(zshdir)/_shardutils'
uninstall-local:
	for p in $(bin_PROGRAMS); do \
	    rm -f '$(DESTDIR)$(bashdir)'/"$${p##*/}" '$(DESTDIR)$(fishdir)'/"$${p##*/}".fish; done
	rm -f '$(DESTDIR)$(zshdir)/_shardutils'

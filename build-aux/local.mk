# build-aux - tools of the build and checks of the house
EXTRA_DIST += .ci/run %D%/bundle-families %D%/check-layers %D%/check-style

# make lint: what needs no compiler
lint:
	$(SHELL) $(srcdir)/%D%/check-layers $(srcdir)
	$(SHELL) $(srcdir)/%D%/check-style $(srcdir)
	if test -e $(srcdir)/.git; then \
	    cd $(srcdir) && git ls-files -ci --exclude-standard | \
	        awk '{ print $$0 ": committed, and ignored" } END { exit NR > 0 }'; fi
	for p in $(srcdir)/man/*.[1-8]; do mandoc -T lint -W warning "$$p" || exit; done
	if command -v clang-format > /dev/null; then \
	    cd $(srcdir) && find lib cmd tests -name '*.[ch]' ! -name builtins.c | \
	        xargs clang-format --style=file --dry-run --Werror; fi
	if command -v shellcheck > /dev/null; then \
	    cd $(srcdir) && shellcheck -S warning -s sh -e SC1091,SC2154,SC2034,SC2086 bootstrap examples/*.sh tests/*.t \
	        build-aux/check-layers build-aux/check-style build-aux/bundle-families && \
	    shellcheck -S warning cmd/completion.bash .ci/run; fi
.PHONY: lint

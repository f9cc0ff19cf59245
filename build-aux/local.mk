# build-aux - tools of the build and checks of the house
EXTRA_DIST += .ci/run %D%/bundle-families %D%/check-layers %D%/check-release %D%/check-style %D%/gen-cuda-arch %D%/make-html %D%/make-news %D%/make-sbom %D%/conda/build.sh %D%/conda/recipe.yaml
EXTRA_DIST += debian/changelog debian/control debian/copyright debian/rules debian/shardutils.docs \
    debian/shardutils.examples debian/shardutils.lintian-overrides debian/source/format debian/tests/control debian/tests/demo

# Releases: two archives, of which the second has what only tests read and is unpacked over the first.
# Whoever makes them gets the same bytes: sorted, nobody's, at the time of the last commit.
AM_DISTCHECK_CONFIGURE_FLAGS = --without-cuda
tests_archive = $(distdir)-tests.tar.gz
DIST_TARGETS = dist-gzip dist-tests
DIST_ARCHIVES = $(distdir).tar.gz $(tests_archive)
GZIP_ENV = -9n
archive_time = $${SOURCE_DATE_EPOCH:-`if test -e $(srcdir)/.git; then \
    cd $(srcdir) && git log -1 --format=%ct; else date -r $(srcdir)/NEWS +%s; fi`}
tar_same = LC_ALL=C $${TAR-tar} --format=ustar --sort=name --owner=0 --group=0 --numeric-owner \
    --mode=u=rwX,go=rX --mtime=@$(archive_time) -chf -
am__tar = $(tar_same) --exclude="$$tardir"/tests/data --exclude="$$tardir"/tests/fuzz/corpus "$$tardir"
dist-tests: distdir
	$(tar_same) $(distdir)/tests/data $(distdir)/tests/fuzz/corpus | gzip $(GZIP_ENV) -c > $(tests_archive)
distcheck-hook:
	chmod -R u+w $(distdir)/tests
	gzip -dc $(tests_archive) | $(am__untar)
	chmod -R a-w $(distdir)/tests
EXTRA_DIST += news.d
# before a release: the notes of news.d become part of NEWS
news:
	$(SHELL) $(srcdir)/%D%/make-news $(VERSION) $(srcdir)/news.d $(srcdir)/NEWS > NEWS.tmp
	mv NEWS.tmp $(srcdir)/NEWS
	find $(srcdir)/news.d -type f ! -name README -exec rm -f {} +
# what the programs of this build are made of
sbom: all
	$(SHELL) $(srcdir)/%D%/make-sbom $(VERSION) $(archive_time) $(bin_PROGRAMS) > $(distdir).cdx.json.tmp
	mv $(distdir).cdx.json.tmp $(distdir).cdx.json
CLEANFILES += $(distdir).cdx.json
# what a release promises: the same archives twice, below 8 MB, and the same programs from two directories
check-release: dist
	sha256sum $(DIST_ARCHIVES) > release.sums
	$(MAKE) $(AM_MAKEFLAGS) dist
	sha256sum -c release.sums
	rm -f release.sums
	FLAGS='$(AM_DISTCHECK_CONFIGURE_FLAGS)' $(SHELL) $(srcdir)/%D%/check-release $(distdir).tar.gz
dist-hook:
	find $(distdir) -name __pycache__ -prune -exec rm -rf {} +
.PHONY: check-release dist-tests news sbom

# make lint: what needs no compiler
lint:
	$(SHELL) $(srcdir)/%D%/check-layers $(srcdir)
	$(SHELL) $(srcdir)/%D%/check-style $(srcdir)
	$(SHELL) $(srcdir)/%D%/make-news $(VERSION) $(srcdir)/news.d $(srcdir)/NEWS > /dev/null
	if test -e $(srcdir)/.git; then \
	    cd $(srcdir) && git ls-files -ci --exclude-standard | \
	        awk '{ print $$0 ": committed, and ignored" } END { exit NR > 0 }'; fi
	for p in $(srcdir)/man/*.[1-8]; do mandoc -T lint -W warning "$$p" || exit; done
	if command -v clang-format > /dev/null; then \
	    cd $(srcdir) && find lib cmd tests -name '*.[ch]' ! -name builtins.c | \
	        xargs clang-format --style=file --dry-run --Werror; fi
	if command -v shellcheck > /dev/null; then \
	    cd $(srcdir) && shellcheck -S warning -s sh -e SC1091,SC2154,SC2034,SC2086 bootstrap examples/*.sh tests/*.t \
	        build-aux/check-layers build-aux/check-style build-aux/bundle-families build-aux/gen-cuda-arch build-aux/make-html build-aux/make-news build-aux/make-sbom build-aux/check-release debian/tests/demo tests/mutants/run && \
	    shellcheck -S warning cmd/completion.bash .ci/run; fi
.PHONY: lint

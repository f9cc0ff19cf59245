# tests - TAP, through automake's driver
TEST_EXTENSIONS = .t
LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
T_LOG_DRIVER = $(LOG_DRIVER)
T_LOG_COMPILER = $(SHELL)
AM_TESTS_ENVIRONMENT = \
    top_srcdir='$(abs_top_srcdir)'; export top_srcdir; \
    top_builddir='$(abs_top_builddir)'; export top_builddir; \
    PATH="$(abs_top_builddir)/bin:$$PATH"; export PATH; \
    LC_ALL=C.UTF-8; export LC_ALL;
test_libs = lib/libshardutils.a
EXTRA_DIST += %D%/lib.sh %D%/tap.h

# unit tests: unit-NAME.c
unit_tests = %D%/unit-model
check_PROGRAMS += $(unit_tests)
TESTS += $(unit_tests)
tests_unit_model_LDADD = $(test_libs)

# programs and pipelines
shell_tests =
dist_check_SCRIPTS += $(shell_tests)
TESTS += $(shell_tests)

# fuzz targets: fuzz/fuzz-NAME.c has LLVMFuzzerTestOneInput; with its corpus it is also a test
fuzz_targets =
check_PROGRAMS += $(fuzz_targets)
EXTRA_DIST += %D%/fuzz/replay.t

# the tests again under AddressSanitizer and UBSan, in a build of their own
check-asan:
	rm -rf build-asan && mkdir build-asan
	cd build-asan && ../$(srcdir)/configure -q CFLAGS='-O1 -g -fsanitize=address,undefined \
	    -fno-sanitize-recover=undefined -fno-omit-frame-pointer' $(ASAN_CONFIGURE)
	cd build-asan && $(MAKE) $(AM_MAKEFLAGS) check

check-valgrind: all $(unit_tests)
	for t in $(unit_tests); do \
	    valgrind -q --error-exitcode=9 --leak-check=full ./$$t > /dev/null || exit; done
.PHONY: check-asan check-valgrind

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

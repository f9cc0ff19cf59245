#!/bin/sh
# alloc.t - out of memory, anywhere: tests/alloc/run on two jobs
. "${top_srcdir:?}/tests/lib.sh"
shim=$top_builddir/tests/fail-alloc.so
if LD_PRELOAD=$shim tp-shard --version > version.out 2> version.err && [ ! -s version.err ]; then
    for job in split ask; do
        run sh "$top_srcdir/tests/alloc/run" -a -k "$job"
        status_is 0 "each allocation of $job may fail"
        [ "$status" -eq 0 ] || head -n 20 out | sed 's/^/# /'
    done
else
    skip "each allocation may fail" "nothing can be preloaded"
fi
done_testing

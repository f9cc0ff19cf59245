#!/bin/sh
# barriers.sh - take each barrier of the kernels away and expect a test to fail:
# barriers.sh MAKE [FLAG]... -- KERNEL...
set -u
make=
while [ "$1" != -- ]; do
    make="$make $1"
    shift
done
shift
top_srcdir=$PWD top_builddir=$PWD
export top_srcdir top_builddir
bad=0
tests="tests/unit-gpu tests/gpu-models"
$make -s $tests || exit
for file; do
    cp "$file" barrier.tmp
    for line in $(grep -nE '^ *__sync(threads|warp)\(\);$' "$file" | cut -d: -f1); do
        sed "${line}s/__sync[a-z]*();/;/" barrier.tmp > "$file"
        if ! $make -s $tests > barrier.log 2>&1; then
            echo "$file:$line: does not build without"
            tail -n 5 barrier.log
            bad=1
        elif tests/unit-gpu > barrier.log 2>&1 && tests/gpu-models > barrier.log 2>&1; then
            echo "$file:$line: no test misses this barrier"
            bad=1
        else
            echo "$file:$line: missed"
        fi
        cp barrier.tmp "$file"
    done
done
rm -f barrier.tmp barrier.log
exit $bad

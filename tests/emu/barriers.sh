#!/bin/sh
# barriers.sh - take each barrier of the kernels away and expect a test to fail:
# barriers.sh TREE RACES FLAG... -- KERNEL...
# TREE, in this directory, is a plain build, in which the tests run in several orders of threads; what passes
# there is tried in RACES, a build with ThreadSanitizer, made with the FLAGs.
#
# tests/emu/fragments.cu is not among the kernels: its barrier orders shared memory
# before ldmatrix; here the shuffles of mma_twin do, and only a GPU would miss it.
set -u
tree=$1 races=$2
shift 2
flags=
while [ "$1" != -- ]; do
    flags="$flags $1"
    shift
done
shift
make=${MAKE:-make}
bad=0

# try DIR FILE LINE [FLAG]...: does the test pass without that barrier?
try() (
    cd "$1" || exit
    top_srcdir=$PWD top_builddir=$PWD
    export top_srcdir top_builddir
    file=$2 line=$3
    shift 3
    part=$(basename "$file" .cu)
    test=tests/unit-gpu
    case $part in
    cores) part=attention ;;
    device) part=norm ;;
    result) test=tests/gpu-models part= ;;
    esac
    cp -p "$file" barrier.tmp
    sed "${line}s/__sync[a-z]*();/;/" barrier.tmp > "$file"
    # shellcheck disable=SC2086 # no part: no word
    if $make -s "$@" $test > barrier.log 2>&1; then
        $test $part > barrier.log 2>&1
        ret=$?
    else
        tail -n 5 barrier.log
        ret=0
    fi
    cat barrier.tmp > "$file"
    rm barrier.tmp
    exit $ret
)

cd "$tree" && $make -s tests/unit-gpu tests/gpu-models && top_srcdir=$PWD tests/unit-gpu > barrier.log ||
    exit
cd .. || exit
# shellcheck disable=SC2086 # the flags are words
for file; do
    for line in $(grep -nE '^ *__sync(threads|warp)\(\);$' "$tree/$file" | cut -d: -f1); do
        if ! try "$tree" "$file" "$line"; then
            echo "$file:$line: missed"
        elif ! try "$races" "$file" "$line" $flags; then
            echo "$file:$line: missed by ThreadSanitizer"
        else
            echo "$file:$line: no test misses this barrier"
            bad=1
        fi
    done
done
exit $bad

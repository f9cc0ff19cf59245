#!/bin/sh
# barriers.sh - leave each barrier of the kernels out and expect a test to fail:
# barriers.sh PLAIN RACES KERNEL...
# PLAIN is a build whose tests run in several orders of threads; what passes there is
# tried in RACES, a build with ThreadSanitizer.  The emulation leaves the barrier out
# (EMU_WITHOUT, tests/emu/emu.h), so nothing is built again.
#
# The verdicts go to barriers.state, and a later run starts with the first barrier that
# it lacks; a changed kernel is tried again.  LIMIT is the seconds of one test.
#
# tests/emu/fragments.cu is not among the kernels: its barrier orders shared memory
# before ldmatrix; here the shuffles of mma_twin do, and only a GPU would miss it.
set -u
plain=$1 races=$2
shift 2
state=barriers.state
limit=${LIMIT:-1200}
bad=0

# passes DIR KERNEL [FILE:LINE]: does its test pass, without that barrier?
passes() (
    part=$(basename "$2" .cu)
    test=tests/unit-gpu
    case $part in
    cores) part=attention ;;
    device.cuh) part=norm ;; # its barrier is block_sum's
    esac
    top_srcdir=$(cd "$1" && pwd) && cd "$1" || exit
    export top_srcdir
    top_builddir=$PWD EMU_WITHOUT=${3-} timeout "$limit" $test "$part" \
        > barrier.log 2>&1
)

# verdict KERNEL LINE
verdict() {
    began=$(date +%s)
    if ! passes "$plain" "$1" "$1:$2"; then
        word='wrong results'
    elif ! passes "$races" "$1" "$1:$2"; then
        word='a race'
    else
        word='no test misses it'
    fi
    echo "$word, $(($(date +%s) - began)) s"
}

touch $state
for file; do
    sum=$(cksum < "$plain/$file" | cut -d' ' -f1)
    lines=$(grep -nE '^ *__sync(threads|warp)\(\);$' "$plain/$file" | cut -d: -f1)
    for line in $lines; do
        key="$file:$line $sum: "
        if ! grep -qF "$key" $state; then
            # a test that fails with all barriers says nothing
            for tree in "$plain" "$races"; do
                grep -qF "$tree $file $sum passes" $state && continue
                if ! passes "$tree" "$file"; then
                    echo "$tree: the tests of $file fail with all barriers:" >&2
                    tail -n 5 "$tree/barrier.log" >&2
                    exit 1
                fi
                echo "$tree $file $sum passes" >> $state
            done
            echo "$key$(verdict "$file" "$line")" >> $state
        fi
        found=$(grep -F "$key" $state | tail -n 1)
        echo "$file:$line: ${found#*: }"
        case $found in *'no test'*) bad=1 ;; esac
    done
done
exit $bad

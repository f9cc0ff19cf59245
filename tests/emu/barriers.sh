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

# passes DIR KERNEL [FILE:LINE]: does its test pass, without that barrier?  It ends with the first failure.
passes() (
    part=$(basename "$2" .cu)
    case $part in
    chunks | cores) part=attention ;;
    device.cuh) part=norm ;; # its barrier is block_sum's
    warps.cuh) part=relative ;; # and join_parts
    esac
    top_srcdir=$(cd "$1" && pwd) && cd "$1" || exit
    export top_srcdir top_builddir="$top_srcdir" EMU_WITHOUT="${3-}" TSAN_OPTIONS=halt_on_error=1
    { timeout "$limit" stdbuf -oL tests/unit-gpu "$part" 2>&1 || echo "not ok"; } |
        sed -n 'w barrier.log
        /^not ok/{p;q;}' > barrier.first
    ! test -s barrier.first
)

# good TREE KERNEL: its test passes with all barriers; else it says nothing
good() {
    sum=$(cksum < "$2" | cut -d' ' -f1)
    grep -qF "$1 $2 $sum passes" $state && return
    if ! passes "$1" "$2"; then
        echo "$1: the tests of $2 fail with all barriers:" >&2
        tail -n 5 "$1/barrier.log" >&2
        exit 1
    fi
    echo "$1 $2 $sum passes" >> $state
}

# verdict KERNEL LINE
verdict() {
    began=$(date +%s)
    good "$plain" "$1" || exit 1
    if ! passes "$plain" "$1" "$1:$2"; then
        word='wrong results'
    else
        good "$races" "$1" || exit 1
        word='no test misses it'
        passes "$races" "$1" "$1:$2" || word='a race'
    fi
    echo "$3$word, $(($(date +%s) - began)) s" >> $state
}

touch $state
for file; do
    sum=$(cksum < "$plain/$file" | cut -d' ' -f1)
    lines=$(grep -nE '^ *__sync(threads|warp)\(\);$' "$plain/$file" | cut -d: -f1)
    for line in $lines; do
        key="$file:$line $sum: "
        grep -qF "$key" $state || verdict "$file" "$line" "$key"
        found=$(grep -F "$key" $state | tail -n 1)
        echo "$file:$line: ${found#*: }"
        case $found in *'no test'*) bad=1 ;; esac
    done
done
exit $bad

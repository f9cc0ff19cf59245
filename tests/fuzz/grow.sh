#!/bin/sh
# grow.sh - add to a corpus what libFuzzer finds, the fewest small inputs that reach all of it, up to MOST (300) in all
#
# usage: tests/fuzz/grow.sh BUILD NAME...
#
# BUILD is a tree of fuzz targets (build-fuzz, by `make fuzz`).  Of each target NAME the corpus is changed for EACH seconds
# (60); what then reaches code that the corpus does not is added under found-NN, the shortest first.
set -eu
src=$(cd "$(dirname "$0")/../.." && pwd)
build=$1
shift
most=${MOST:-300}
largest=4096
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for name; do
    corpus=$src/tests/fuzz/corpus/$name
    target=$build/tests/fuzz/fuzz-$name
    mkdir -p "$work/$name.least" "$build/found/$name"
    "$target" -max_len=$largest -max_total_time="${EACH:-60}" "$build/found/$name" "$corpus" > "$work/log" 2>&1 ||
        { tail -n 20 "$work/log" >&2; exit 1; }
    # of those that reach what the corpus does not, the shortest
    cp "$corpus"/* "$work/$name.least"
    "$target" -set_cover_merge=1 "$work/$name.least" "$build/found/$name" > "$work/log" 2>&1
    n=$(find "$corpus" -type f | wc -l)
    i=0
    for seed in $(find "$work/$name.least" -type f -size -${largest}c -printf '%s %f\n' | sort -n | sed 's/^[0-9]* //'); do
        [ $n -lt $most ] || break
        if [ ! -e "$corpus/$seed" ]; then
            i=$((i + 1)) n=$((n + 1))
            cp "$work/$name.least/$seed" "$corpus/found-$(printf %02d $i)"
        fi
    done
    echo "$name: $n seeds"
done

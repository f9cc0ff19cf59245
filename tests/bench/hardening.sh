#!/bin/sh
# hardening.sh - what hardened builds cost: the same work by two builds of this tree, in turns
#
# usage: tests/bench/hardening.sh [DIR]
#
# In a built tree (top_srcdir and top_builddir, or this directory): builds it twice in DIR (in TMPDIR unless given), as
# configured by default and with --disable-hardening, and prints for each job the median of TURNS turns (9 unless it is
# set) of the hardened build as a share of the other's, each going first in every other turn: at most 1.01 is wanted.
# A quiet machine is wanted, and some minutes.
set -eu
src=${top_srcdir:-.}
dir=$(mktemp -d "${1:-${TMPDIR:-/tmp}}/shardutils-hardening.XXXXXX")
trap 'rm -rf "$dir"' EXIT
src=$(cd "$src" && pwd)
for build in hard soft; do
    if [ $build = soft ]; then flags=--disable-hardening; else flags=; fi
    {
        make -s -C "${top_builddir:-.}" tree TREE="$dir/$build" TREE_FLAGS="$flags" &&
            make -s -j"$(nproc)" -C "$dir/$build" all tests/bench/make-model
    } > "$dir/log" 2>&1 || { tail -n 20 "$dir/log" && exit 1; } >&2
done
cd "$dir"
hard/tests/bench/make-model model BF16 1024 12 2816 16 8 32000
printf 'x: uniform(0, 1)\ny: uniform(0, 1)\n' > sweep.yaml
hard/bin/hpo-sweep run -q -S study.db --study s --sampler random --trials 300 sweep.yaml -- echo '{x}'
cp -r "$src/examples/bard" bard

split() {
    rm -rf cut
    "$1/bin/tp-shard" split -q --tp 4 model cut
}
tokens() {
    "$1/bin/tp-run" generate -q --ids 1,2,3 --max-tokens 16 model > text
}
score() {
    "$1/bin/tp-run" score -q --window 256 bard/heldout.txt bard > text
}
plan() {
    for _ in 1 2 3 4 5; do
        "$1/bin/mem-estimate" plan --mode train --gpu h100-80g --gpus 64 --global-batch 256 --seq 2048 bard > text || :
    done
}
ask() {
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        "$1/bin/hpo-sweep" show -S study.db --study s > text
    done
}
once() {
    start=$(date +%s.%N)
    "$2" "$1"
    date +%s.%N | awk -v s="$start" '{ print $1 - s }'
}
median() {
    sort -g "$1" | awk '{ t[NR] = $1 } END { print (t[int((NR + 1) / 2)] + t[int((NR + 2) / 2)]) / 2 }'
}
jobs="split tokens score plan ask"
turn=0
while [ $turn -le "${TURNS:-9}" ]; do # the first does not count
    for job in $jobs; do
        if [ $((turn % 2)) -eq 0 ]; then order='hard soft'; else order='soft hard'; fi
        for build in $order; do once $build "$job" >> "times.$job.$build"; done
    done
    [ $turn -gt 0 ] || rm times.*
    turn=$((turn + 1))
done
for job in $jobs; do
    awk -v job="$job" -v h="$(median "times.$job.hard")" -v s="$(median "times.$job.soft")" \
        'BEGIN { printf "%-8s hardened %.4f s, not %.4f s: %.3f (at most 1.01)\n", job, h, s, h / s }'
done

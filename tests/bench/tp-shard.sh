#!/bin/sh
# tp-shard.sh - cutting and merging beside cp, and verifying beside cat, in the same run
#
# split, merge, reshard   seconds as a multiple of `cp --reflink=never` of the same bytes, all synced, CRC-32s included
# verify                  bytes a second as a share of cat's
#
# Medians of TURNS turns, 7 unless it is set; a quiet machine is wanted.
# Each is timed with free memory that has been used just before: a virtual machine's host takes pages
# back that lie idle, and who needs them next would pay for them, not who wrote most.
#
# DIR (in TMPDIR unless given as the first argument) needs room for five times the model.
set -eu
: "${top_builddir:?}"
bin=$top_builddir/bin
dir=$(mktemp -d "${1:-${TMPDIR:-/tmp}}/shardutils-bench.XXXXXX")
trap 'rm -rf "$dir"' EXIT
"$top_builddir/tests/bench/make-model" "$dir/model" BF16 2048 24 5504 16 8 32000
cd "$dir"
cat model/model.safetensors > /dev/null

seconds() {
    rm -rf "$2"
    sync
    warm_memory
    start=$(date +%s.%N)
    "$1"
    date +%s.%N | awk -v s="$start" '{ print $1 - s }'
}

# use as much memory as the model takes, and give it back
warm_memory() {
    if [ -w /dev/shm ]; then
        head -c "$(wc -c < model/model.safetensors)" /dev/zero > /dev/shm/shardutils-bench.$$ || :
        rm -f /dev/shm/shardutils-bench.$$
    fi
}

copy() {
    cp -r --reflink=never model copy && sync copy/* copy
}

split() {
    "$bin/tp-shard" split -q --tp 4 model cut
}

merge() {
    "$bin/tp-shard" merge -q cut whole
}

reshard() {
    "$bin/tp-shard" reshard -q --tp 2 --pp 2 cut anew
}

verify() {
    "$bin/tp-shard" verify -q cut
}

read_all() {
    cat cut/rank-* > /dev/null
}

median() {
    sort -g "times.$1" | awk '{ t[NR] = $1 } END { print (t[int((NR + 1) / 2)] + t[int((NR + 2) / 2)]) / 2 }'
}

ratio() {
    awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'
}

size=$(wc -c < model/model.safetensors)
# In turns, so that what else the machine does meets them all, and each goes first in every fourth: the first pays for
# memory that the host took back.  Each output stays until its next turn: who runs just after a file was removed gets
# that file's memory, which is fast, and so each removes its own.  The first turn, which has nothing to remove, does not
# count.
jobs="copy:copy split:cut merge:whole reshard:anew"
turn=0
while [ $turn -le "${TURNS:-7}" ]; do
    for job in $jobs; do
        seconds "${job%:*}" "${job#*:}" >> "times.${job%:*}"
    done
    [ $turn -eq 0 ] || jobs="${jobs#* } ${jobs%% *}"
    seconds read_all none >> times.read_all
    seconds verify none >> times.verify
    [ $turn -gt 0 ] || rm times.*
    turn=$((turn + 1))
done
cp_time=$(median copy)
printf 'tp-shard: %.2f GB: split %s x cp, merge %s x cp, reshard %s x cp (at most 1.1), verify %s of cat (at least 0.5)\n' \
    "$(awk -v n="$size" 'BEGIN { print n / 1e9 }')" "$(ratio "$(median split)" "$cp_time")" \
    "$(ratio "$(median merge)" "$cp_time")" "$(ratio "$(median reshard)" "$cp_time")" \
    "$(ratio "$(median read_all)" "$(median verify)")"

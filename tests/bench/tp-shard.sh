#!/bin/sh
# tp-shard.sh - cutting and merging beside cp, and verifying beside cat, in the same run
#
# split, merge   seconds as a multiple of `cp --reflink=never` of the same bytes, all synced, CRC-32s included
# verify         bytes a second as a share of cat's
#
# DIR (in TMPDIR unless given as the first argument) needs room for four times the model.
set -eu
: "${top_builddir:?}"
bin=$top_builddir/bin
dir=$(mktemp -d "${1:-${TMPDIR:-/tmp}}/shardutils-bench.XXXXXX")
trap 'rm -rf "$dir"' EXIT
"$top_builddir/tests/bench/make-model" "$dir/model" BF16 2048 24 5504 16 8 32000
cd "$dir"
cat model/model.safetensors > /dev/null

seconds() {
    start=$(date +%s.%N)
    "$@"
    date +%s.%N | awk -v s="$start" '{ print $1 - s }'
}

copy() {
    rm -rf copy && cp -r --reflink=never model copy && sync copy/* copy
}

split() {
    rm -rf cut && "$bin/tp-shard" split -q --tp 4 model cut
}

merge() {
    rm -rf whole && "$bin/tp-shard" merge -q cut whole
}

verify() {
    "$bin/tp-shard" verify -q cut
}

read_all() {
    cat cut/rank-* > /dev/null
}

# the middle of three
middle() {
    for i in 1 2 3; do seconds "$1"; done | sort -g | sed -n 2p
}

ratio() {
    awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'
}

size=$(wc -c < model/model.safetensors)
copy
split
cp_time=$(middle copy)
split_time=$(middle split)
merge_time=$(middle merge)
cat_time=$(middle read_all)
verify_time=$(middle verify)
printf 'tp-shard: %.2f GB: split %s x cp, merge %s x cp (at most 1.3), verify %s of cat (at least 0.5)\n' \
    "$(awk -v n="$size" 'BEGIN { print n / 1e9 }')" "$(ratio "$split_time" "$cp_time")" \
    "$(ratio "$merge_time" "$cp_time")" "$(ratio "$cat_time" "$verify_time")"

#!/bin/sh
# tp-run.sh - decoding and scoring as shares of what the machine can do in the same run
#
# decode   bytes of weights read for a token, a second, as a share of the memory-read probe
# score    operations of the matrix products, a second, as a share of the matrix-product probe
# sp       activations of a rank when N share a sequence, as a share of one rank's: 1/N is aimed at
# batch 8  the rate of eight prompts at once, all together, as a multiple of one's
# tp 2     the rate on two ranks of half the threads each, as a share of one rank's
set -eu
: "${top_builddir:?}"
bin=$top_builddir/bin
bench=$top_builddir/tests/bench
dir=$(mktemp -d "${TMPDIR:-/tmp}/shardutils-bench.XXXXXX")
trap 'rm -rf "$dir"' EXIT
threads=$(nproc)
hidden=2048 layers=8 ffn=5632 heads=16 kv=8 vocab=16384
# elements of the matrices that every token is multiplied by
elements=$((layers * (2 * hidden * hidden + 2 * hidden * hidden * kv / heads + 3 * hidden * ffn) +
    vocab * hidden))
prompt=1
seq 1 1025 > "$dir/ids"

# the middle of three
middle() {
    printf '%s\n' "$@" | sort -g | sed -n 2p
}

rate() {
    "$bin/tp-run" generate --ids $prompt --max-tokens 40 --json --tp "$1" --threads "$2" "$3" |
        sed 's/.*"tokens_per_second":\([^}]*\)}/\1/'
}

# eight prompts at once
batch() {
    for i in 1 2 3 4 5 6 7 8; do echo "{\"ids\":[$i]}"; done |
        "$bin/tp-run" generate --input - --max-tokens 40 --json --threads "$threads" "$1" |
        sed 's/.*"tokens_per_second":\([^}]*\)}/\1/' | awk '{ all += $1 } END { print all }'
}

seconds() {
    start=$(date +%s.%N)
    "$bin/tp-run" score --window 1024 --ids-file "$dir/$1" --json "$2" > /dev/null
    date +%s.%N | awk -v s="$start" '{ print $1 - s }'
}

for dtype in F32 BF16; do
    "$bench/make-model" "$dir/m" $dtype $hidden $layers $ffn $heads $kv $vocab
    size=4
    [ $dtype = F32 ] || size=2
    read -r bytes flops << EOF
$("$bench/probe" "$threads")
EOF
    one=$(middle "$(rate 1 "$threads" "$dir/m")" "$(rate 1 "$threads" "$dir/m")" \
        "$(rate 1 "$threads" "$dir/m")")
    if [ "$threads" -gt 1 ]; then
        two=$(middle "$(rate 2 $((threads / 2)) "$dir/m")" "$(rate 2 $((threads / 2)) "$dir/m")" \
            "$(rate 2 $((threads / 2)) "$dir/m")")
    else
        two=$one
    fi
    eight=$(middle "$(batch "$dir/m")" "$(batch "$dir/m")" "$(batch "$dir/m")")
    head -n 2 "$dir/ids" > "$dir/few"
    load=$(middle "$(seconds few "$dir/m")" "$(seconds few "$dir/m")" "$(seconds few "$dir/m")")
    all=$(middle "$(seconds ids "$dir/m")" "$(seconds ids "$dir/m")" "$(seconds ids "$dir/m")")
    awk -v t=$dtype -v one="$one" -v two="$two" -v e=$elements -v s=$size -v b="$bytes" -v f="$flops" \
        -v load="$load" -v all="$all" -v eight="$eight" 'BEGIN {
        printf "%-5s decode %.2f of reading memory (%.1f tokens/s)\n", t, one * e * s / b, one
        printf "%-5s score  %.2f of a matrix product\n", t, 2 * e * 1024 / (all - load) / f
        printf "%-5s batch 8 %.2f of one prompt (%.1f tokens/s)\n", t, eight / one, eight
        printf "%-5s tp 2   %.2f of one rank\n", t, two / one
    }'
done

# memory for activations when ranks share the sequence
activations() {
    "$bin/tp-run" score --window 1024 --sp "$1" --ids-file "$dir/ids" --report-memory "$dir/m" 2>&1 > /dev/null |
        sed -n 's/.*"rank":0,.*"activations":\([0-9]*\).*/\1/p'
}
one=$(activations 1)
for n in 2 4; do
    awk -v n=$n -v a="$one" -v b="$(activations $n)" 'BEGIN { printf "sp %d   activations %.3f of one rank\n", n, b / a }'
done

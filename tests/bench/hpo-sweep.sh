#!/bin/sh
# hpo-sweep.sh - asking for a trial, beside optuna's, and trials a second
#
# ask     seconds of one process after so many finished trials, the least of five, and of
#         `optuna ask` on the same file (set OPTUNA to the program)
# trials  of `echo 1`, a second, with -j 2
set -eu
: "${top_builddir:?}"
sweep=$top_builddir/bin/hpo-sweep
optuna=${OPTUNA:-optuna}
dir=$(mktemp -d "${TMPDIR:-/tmp}/shardutils-bench.XXXXXX")
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat > s.yaml << 'EOF'
a: uniform(-5, 5)
b: uniform(0, 1)
lr: loguniform(1e-6, 1e-1)
n: randint(1, 65)
c: choice([x, y, z])
EOF
space='{"a": {"name": "FloatDistribution", "attributes": {"low": -5, "high": 5}}}'

# least COMMAND... - the least of five times, in seconds
least() {
    for _ in 1 2 3 4 5; do
        start=$(date +%s.%N)
        "$@" > /dev/null 2>&1
        date +%s.%N | awk -v s="$start" '{ printf "%.4f\n", $1 - s }'
    done | sort -g | head -n 1
}

for trials in 100 1000 10000; do
    start=$(date +%s.%N)
    have=$("$sweep" show -S s.db 2> /dev/null | wc -l)
    "$sweep" run s.yaml --sampler random --seed 1 --trials $trials -j 2 -- echo 1
    rate=$(date +%s.%N | awk -v s="$start" -v n=$((trials - have)) '{ printf "%.0f", n / ($1 - s) }')
    ours=$(least "$sweep" ask s.yaml --sampler tpe)
    printf 'ask    %6d trials  %s s' $trials "$ours"
    if command -v "$optuna" > /dev/null; then
        theirs=$(least "$optuna" ask --storage sqlite:///s.db --study-name s --sampler TPESampler \
            --search-space "$space")
        printf '  optuna %s s  ratio %s' "$theirs" \
            "$(awk -v a="$theirs" -v b="$ours" 'BEGIN { printf "%.0f", a / b }')"
    fi
    printf '\ntrials %6d trials  %s per second\n' $trials "$rate"
done

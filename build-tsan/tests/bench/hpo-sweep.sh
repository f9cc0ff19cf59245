#!/bin/sh
# hpo-sweep.sh - asking for a trial, beside optuna's, and trials a second
#
# ask     milliseconds of one process after so many finished trials, the least of several, and of
#         `optuna ask` on the same file, taken in turns (set OPTUNA to the program); a process that
#         does nothing takes the milliseconds said first
# open    seconds of `show`, `best` and `ask` on 100,000 trials
# trials  of `true` a second, with -j 2, of 5,000
#
# The trials are those of five parameters at random, as ask and tell write them into a journal.
set -eu
: "${top_builddir:?}"
sweep=$top_builddir/bin/hpo-sweep
optuna=${OPTUNA:-optuna}
dir=$(mktemp -d "${TMPDIR:-/tmp}/shardutils-bench.XXXXXX")
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat > s.yaml << 'EOS'
a: uniform(-5, 5)
b: uniform(0, 1)
lr: loguniform(1e-6, 1e-1)
n: randint(1, 65)
c: choice([x, y, z])
EOS

# journal N - the lines of N trials
journal() {
    awk -v n="$1" '
    function float(low, high, scale) {
        return sprintf("{\"name\": \"FloatDistribution\", \"attributes\": " \
            "{\"log\": %s, \"step\": null, \"low\": %s, \"high\": %s}}", scale, low, high)
    }
    function line(op, rest) {
        printf "{\"op_code\":%d,\"worker_id\":\"01234567-89ab-cdef-0123-456789abcdef-1\",%s}\n", op, rest
    }
    function param(t, name, value, dist) {
        gsub(/"/, "\\\"", dist)
        line(5, sprintf("\"trial_id\":%d,\"param_name\":\"%s\",\"param_value_internal\":%s," \
            "\"distribution\":\"%s\"", t, name, value, dist))
    }
    BEGIN {
        srand(1)
        line(0, "\"study_name\":\"s\",\"directions\":[1]")
        for (t = 0; t < n; t++) {
            line(4, "\"study_id\":0,\"datetime_start\":\"2026-01-01T00:00:00.000000+00:00\"")
            param(t, "a", sprintf("%.15f", x = 10 * rand() - 5), float("-5.0", "5.0", "false"))
            param(t, "b", sprintf("%.15f", y = rand()), float("0.0", "1.0", "false"))
            param(t, "lr", sprintf("%.15g", exp(log(1e-6) + rand() * log(1e5))),
                float("1e-06", "0.1", "true"))
            param(t, "n", int(1 + 64 * rand()), "{\"name\": \"IntDistribution\", \"attributes\": " \
                "{\"log\": false, \"step\": 1, \"low\": 1, \"high\": 64}}")
            param(t, "c", int(3 * rand()), "{\"name\": \"CategoricalDistribution\", " \
                "\"attributes\": {\"choices\": [\"x\", \"y\", \"z\"]}}")
            line(6, sprintf("\"trial_id\":%d,\"state\":1,\"values\":[%.15f]," \
                "\"datetime_complete\":\"2026-01-01T00:00:01.000000+00:00\"", t, x * x + y))
        }
    }'
}

# seconds COMMAND...
seconds() {
    start=$(date +%s.%N)
    "$@" > /dev/null 2> err || { cat err >&2; exit 1; }
    date +%s.%N | awk -v s="$start" '{ printf "%.4f\n", $1 - s }'
}

# least N COMMAND... - milliseconds
least() {
    times=$1
    shift
    for _ in $(seq "$times"); do seconds "$@"; done | sort -g | awk 'NR == 1 { printf "%.1f", 1000 * $1 }'
}

optuna_ask() {
    "$optuna" ask -q --storage "$1" --study-name s --sampler TPESampler --search-space "$(cat space.json)"
}

cat > space.json << 'EOS'
{"a": {"name": "FloatDistribution", "attributes": {"low": -5, "high": 5, "log": false, "step": null}},
 "b": {"name": "FloatDistribution", "attributes": {"low": 0, "high": 1, "log": false, "step": null}},
 "lr": {"name": "FloatDistribution", "attributes": {"low": 1e-6, "high": 0.1, "log": true, "step": null}},
 "n": {"name": "IntDistribution", "attributes": {"low": 1, "high": 64, "log": false, "step": 1}},
 "c": {"name": "CategoricalDistribution", "attributes": {"choices": ["x", "y", "z"]}}}
EOS

# compare TRIALS NAME OURS THEIRS - ask in both, on the storage as each calls it
compare() {
    ours=$(least 9 "$sweep" ask s.yaml -S "$3")
    printf 'ask    %6d trials  %-7s %7s ms' "$1" "$2" "$ours"
    if command -v "$optuna" > /dev/null; then
        theirs=$(least 3 optuna_ask "$4")
        ours=$(printf '%s\n%s\n' "$ours" "$(least 9 "$sweep" ask s.yaml -S "$3")" | sort -g | head -n 1)
        printf '  optuna %7s ms  ratio %s' "$theirs" \
            "$(awk -v a="$theirs" -v b="$ours" 'BEGIN { printf "%.0f", a / b }')"
    fi
    echo
}

printf 'ask    nothing         process %7s ms\n' "$(least 9 true)"
for trials in 100 10000; do
    journal $trials > $trials.log
    "$sweep" import -S $trials.db $trials.log
    compare $trials sqlite $trials.db "sqlite:///$trials.db"
    compare $trials journal journal:$trials.log $trials.log
done
journal 100000 > open.log
"$sweep" import -S open.db open.log
for storage in open.db journal:open.log; do
    for command in show best 'ask s.yaml'; do
        printf 'open   100000 trials  %-16s %7s ms  %s\n' $storage \
            "$(least 3 "$sweep" $command -S $storage)" "${command%% *}"
    done
done

# `true` gives no number: its trials have failed, and status 1 says that none is complete
run_true() {
    "$sweep" run s.yaml -S "$1" --sampler random --seed 1 --trials 5000 -j 2 \
        --max-consecutive-failures 0 -- true || [ $? = 1 ]
}

for storage in rate.db journal:rate.log; do
    printf 'trials 5000            %-16s %7s a second\n' $storage \
        "$(seconds run_true $storage | awk '{ printf "%.0f", 5000 / $1 }')"
done

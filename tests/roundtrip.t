#!/bin/sh
# roundtrip - every model, cut for every tp: intact, answering alike, and whole again
. "${top_srcdir:?}/tests/lib.sh"

# The source's files, but for what make-models.py put beside them.
# shellcheck disable=SC2010 # names are plain
files() {
    (cd "$1" && ls | grep -v '^expected')
}

cut() {
    rm -rf cut whole
    tp-shard split -q --tp="$1" "$dir" cut && tp-shard verify cut
}

answer() {
    tp-run logits -q --ids 5,9,3,7,11,4,8 -o cut.safetensors cut &&
        tp-run logits -q --tp "$1" --ids 5,9,3,7,11,4,8 -o live.safetensors "$dir" &&
        cmp cut.safetensors live.safetensors
}

merge() {
    tp-shard merge -q cut whole && [ "$(files "$dir")" = "$(files whole)" ] || return
    for f in $(files "$dir"); do
        cmp "$dir/$f" "whole/$f" || return
    done
}

# Cutting anew gives what cutting the merged model gives.
reshard() {
    other=$(($1 % heads + 1))
    rm -rf anew direct
    tp-shard reshard -q --tp=$other cut anew && tp-shard split -q --tp=$other "$dir" direct && diff -r anew direct
}

# try CHECK TP - what it printed goes to CHECK.out when it fails for the first time
try() {
    [ -s "$1.out" ] || "$1" "$2" > printed 2>&1 || { echo "tp $2:" && head -n 5 printed; } > "$1.out"
}

# report CHECK NAME
report() {
    if [ -s "$1.out" ]; then fail "$2" "$(cat "$1.out")"; else pass "$2"; fi
}

for dir in "$data"/models/*/ "$data"/models/*/hf/; do
    dir=${dir%/}
    [ -f "$dir/config.json" ] || continue
    model=${dir#"$data/models/"}
    heads=$(sed -n 's/^ *"\(num_attention_heads\|attention_heads\|num_heads\|n_heads\|n_head\)": *\([0-9]*\).*/\2/p' "$dir/config.json" | head -n 1)
    rm -f ./*.out
    case $model in mamba | mamba-odd | falcon-mamba*) heads=3 ;; esac # sharded by channels
    ok "$model: it has heads" test "${heads:-0}" -gt 0
    some=$(tps "$heads")
    for tp in $some; do
        for check in cut answer merge reshard; do
            try $check "$tp"
        done
    done
    report cut "$model: it can be cut at tp $some, and is intact"
    report answer "$model: a cut model answers as one cut at load"
    report merge "$model: merging gives the files back byte for byte"
    report reshard "$model: resharding equals merging and splitting"
done

done_testing

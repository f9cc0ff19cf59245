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
    cut "$1" && tp-run logits -q --ids 5,9,3,7,11,4,8 -o cut.safetensors cut &&
        tp-run logits -q --tp "$1" --ids 5,9,3,7,11,4,8 -o live.safetensors "$dir" &&
        cmp cut.safetensors live.safetensors
}

merge() {
    cut "$1" && tp-shard merge -q cut whole && [ "$(files "$dir")" = "$(files whole)" ] || return
    for f in $(files "$dir"); do
        cmp "$dir/$f" "whole/$f" || return
    done
}

# Cutting anew gives what cutting the merged model gives.
reshard() {
    other=$(($1 % heads + 1))
    rm -rf anew direct
    cut "$1" && tp-shard reshard -q --tp=$other cut anew &&
        tp-shard split -q --tp=$other "$dir" direct && diff -r anew direct
}

at_every_tp() {
    for tp in $(seq 1 "$heads"); do
        if ! "$2" "$tp" > at.out 2>&1; then
            fail "$1" "tp $tp: $(head -n 5 at.out)"
            return
        fi
    done
    pass "$1"
}

for dir in "$data"/models/*/ "$data"/models/*/hf/; do
    dir=${dir%/}
    [ -f "$dir/config.json" ] || continue
    model=${dir#"$data/models/"}
    heads=$(sed -n 's/^ *"\(num_attention_heads\|num_heads\|n_heads\|n_head\)": *\([0-9]*\).*/\2/p' "$dir/config.json")
    at_every_tp "$model: a cut model answers as one cut at load, at tp 1 to $heads" answer
    at_every_tp "$model: merging gives the files back byte for byte" merge
    at_every_tp "$model: resharding equals merging and splitting" reshard
done

done_testing

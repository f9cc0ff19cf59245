#!/bin/sh
# compute.t - tp-run --compute bf16: activations are rounded before products by weights in bf16
. "${top_srcdir:?}/tests/lib.sh"

compare=$top_builddir/tests/compare-tensors

# logits FILE OPTION... - of $dir
logits() {
    out=$1
    shift
    tp-run logits --ids "$ids" -o "$out" "$@" "$dir"
}

tp-shard split -q --dtype bf16 --tp 1 "$data/models/llama-gqa" gqa # heads for four ranks
ids=1,5,3,2,7,4,9,11,12,13,14,15,16,17,18,19,20,21
while read -r dir far tps; do
    logits f32
    logits bf16 --compute bf16
    ok "${dir##*/}: near what is computed in f32" "$compare" f32 bf16 "$far" logits
    run cmp -s f32 bf16
    status_is 1 "${dir##*/}: but not it"
    logits again --compute bf16 --threads 2 --pp 2
    ok "${dir##*/}: the same bits on stages and threads" cmp bf16 again
    logits whole --compute bf16 --deterministic
    for tp in $tps; do
        rm -f ranks
        logits ranks --compute bf16 --deterministic --tp $tp
        ok "${dir##*/}: with --deterministic on $tp ranks" cmp whole ranks
    done
done << EOM
$bard 0.01 2
$data/models/gemma3 0.02 2
$PWD/gqa 0.02 2 4
EOM

# a row alone, beside others and after them
for text in ROMEO: Q 'What is'; do
    tp-run generate --compute bf16 --deterministic --json --prompt "$text" --max-tokens 12 "$bard"
done | sed 's/,"tokens_per.*//; s/"prompt":[0-9]*,//' > alone
tp-run generate --compute bf16 --deterministic --json --prompt ROMEO: --prompt Q --prompt 'What is' --max-tokens 12 "$bard" |
    sed 's/,"tokens_per.*//; s/"prompt":[0-9]*,//' > together
ok "texts are alone what they are together, with --deterministic" cmp alone together

# many rows
dir=$bard
short=$ids
ids=$(seq -s, 2 61)
logits f32
logits bf16 --compute bf16 --threads 1
ok "a long prompt: near what is computed in f32" "$compare" f32 bf16 0.01 logits
logits again --compute bf16 --threads 2 --pp 2
ok "a long prompt: the same bits on stages and threads" cmp bf16 again
seq -s, 3 51 | sed 's/.*/{"ids":[&]}/' > first
seq -s, 2 49 | sed 's/.*/{"ids":[&]}/' > second
long() {
    cat "$@" | tp-run generate --compute bf16 --deterministic --json --input - --max-tokens 12 "$bard" |
        sed 's/,"tokens_per.*//; s/"line":[0-9]*,//'
}
long first > alone
long second >> alone
long first second > together
ok "long texts are alone what they are together, with --deterministic" cmp alone together

# weights that are stored by input, of which products of 32 rows are rounded: texts of 31 tokens, and four of them
dir=$data/models/gpt2-awkward
one='{"ids":[2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32]}'
for i in 1 2 3 4; do
    echo "$one"
done > four
echo "$one" > one
for how in "--compute f32" "--compute bf16 --deterministic"; do
    # shellcheck disable=SC2086 # words
    tp-run logits --input four -o four.st $how "$dir"
    # shellcheck disable=SC2086 # words
    tp-run logits --input one -o one.st $how "$dir"
    ok "GPT-2, $how: four texts are each what it is alone" "$compare" one.st four.st 0 logits=0.logits logits=3.logits
done
tp-run logits --input four -o f32 "$dir"
tp-run logits --input four -o bf16 --compute bf16 "$dir"
ok "GPT-2: near what is computed in f32" "$compare" f32 bf16 0.02 0.logits 3.logits
tp-run logits --input four -o again --compute bf16 --threads 2 --pp 3 "$dir"
ok "GPT-2: the same bits on stages and threads" cmp bf16 again

# 512 rows: 512 tokens, of which 300 are computed alone, too; bard has 1024 logits for each
dir=$bard
for how in "--compute f32" "--compute bf16 --deterministic"; do
    ids=$(seq -s, 2 513)
    # shellcheck disable=SC2086 # words
    logits all $how
    tail -c $((512 * 1024 * 4)) all | head -c $((300 * 1024 * 4)) > first
    ids=$(seq -s, 2 301)
    # shellcheck disable=SC2086 # words
    logits few $how
    tail -c $((300 * 1024 * 4)) few > alone
    ok "512 tokens, $how: the first 300 are what they are alone" cmp first alone
done
ids=$(seq -s, 2 513)
logits f32
logits bf16 --compute bf16 --threads 1
ok "512 tokens: near what is computed in f32" "$compare" f32 bf16 0.01 logits
logits again --compute bf16 --threads 2 --pp 2
ok "512 tokens: the same bits on stages and threads" cmp bf16 again

# weights in f32 are multiplied as they were, and so are keys and values
ids=$short,$short
dir=$data/models/llama-gqa
logits f32
logits bf16 --compute bf16
ok "products by weights in f32 stay what they are" cmp f32 bf16

score() {
    tp-run score --json --window 256 "$@" "$heldout" "$bard" | sed 's/.*"perplexity":\([^,]*\),.*/\1/'
}
ok "perplexity of bard within 0.1 %" near "$(score)" "$(score --compute bf16)" 0.02

run tp-run logits --compute f16 --ids 1 -o o "$bard"
status_is 2 "another type is a usage error"

done_testing

#!/bin/sh
# tp-shard-keep.t - ranks that each have all of the vocabulary
. "${top_srcdir:?}/tests/lib.sh"
models=$data/models
ids=5,9,3,7,11,4,8

comes_back() {
    rm -rf cut whole
    tp-shard split -q --tp 4 --keep-vocab "$1" cut && tp-shard verify cut &&
        tp-shard merge -q cut whole && cmp whole/model.safetensors "$1/model.safetensors"
}

# runs MODEL TP - what a run on TP ranks says is what it says of the model, to the bit
runs() {
    tp-run logits -q --tp "$2" --ids $ids -o cut.safetensors cut &&
        tp-run logits -q --tp "$2" --ids $ids -o live.safetensors "$1" &&
        cmp cut.safetensors live.safetensors
}

for name in llama-groups neox gemma bert-mlm mixtral; do
    model=$models/$name
    ok "$name comes back" comes_back "$model"
    ok "$name runs on as many ranks" runs "$model" 4
    ok "$name runs on others" runs "$model" 3
    tp-shard plan --json --tp 4 --keep-vocab "$model" > plan
    ok "$name: parts hold what the plan names" \
        "$top_builddir/tests/plain-rows" plan cut "$model/model.safetensors"
    rm -rf anew direct
    tp-shard reshard -q cut anew
    tp-shard split -q --tp 4 "$model" direct
    ok "$name: reshard deals the vocabulary" diff -r direct anew
    rm -rf again
    tp-shard reshard -q --keep-vocab anew again
    ok "$name: or keeps it" diff -r cut again
done

rm -rf cut
tp-shard split -q --tp 2 --keep-vocab "$bard" cut
tp-shard show --json cut/rank-tp1-pp0.safetensors > out
out_has '"name":"lm_head.weight","dtype":"BF16","shape":[1024,192]' "a rank has the whole head"
out_has '"name":"model.embed_tokens.weight","dtype":"BF16","shape":[1024,192]' "and the whole table"
out_has '"name":"model.layers.0.self_attn.q_proj.weight","dtype":"BF16","shape":[64,192]' "and its heads alone"
run tp-run score --tp 2 "$heldout" cut
out_has "nll $heldout_nll" "the model scores as ever"
pp-partition split -q --pp 2 cut two
tp-shard split -q --tp 2 --pp 2 --keep-vocab "$bard" direct2
ok "pp-partition leaves the vocabulary as it is" \
    cmp direct2/rank-tp1-pp1.safetensors two/rank-tp1-pp1.safetensors

run tp-shard split --tp 2 --keep-vocab --pad-vocab 8 "$bard" never
status_is 2 "padding is for a vocabulary that is dealt"
err_has "--keep-vocab contradicts --pad-vocab" "and the contradiction named"
ok "nothing was written" test ! -e never
done_testing

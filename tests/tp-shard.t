#!/bin/sh
# tp-shard.t - cutting, merging, cutting anew, and what the other commands print
. "$top_srcdir/tests/lib.sh"
models=$data/models

# round_trip MODEL TP: split and merge give the weights and config back
round_trip() {
    rm -rf cut whole
    tp-shard split -q --tp "$2" "$1" cut && tp-shard verify -q cut &&
        tp-shard merge -q cut whole || return 1
    for f in "$1"/model*.safetensors "$1"/*.json; do
        cmp "$f" "whole/${f##*/}" || return 1
    done
}

for tp in 1 2 3 4 5 6; do
    ok "bard cut for $tp ranks merges to what it was" round_trip "$bard" "$tp"
done
for tp in 1 2 4 8; do
    ok "stories260K cut for $tp ranks merges to what it was" \
        round_trip "$models/stories260K/hf" "$tp"
done
ok "uneven heads in shared groups merge to what they were" round_trip "$models/llama-groups" 4
ok "seven heads on five ranks merge to what they were" round_trip "$models/llama-awkward" 5
ok "four files with an index merge to what they were" round_trip "$models/llama-sharded" 3
ok "fused, transposed projections merge to what they were" round_trip "$models/gpt2-awkward" 3
ok "mask buffers are carried through" round_trip "$models/gpt2-hub" 4
ok "an encoder with a pretraining head merges to what it was" round_trip "$models/bert-legacy" 4
ok "tied tensors that are stored twice stay two" round_trip "$models/bert-mlm" 5

# from one mesh to another
tp-shard split -q --tp 2 "$bard" b2
tp-shard split -q --tp 3 "$bard" b3
tp-shard split -q --mesh tp=2,pp=3 "$bard" b2p3
run tp-shard reshard -q --tp 3 b2 b23
status_is 0 "a checkpoint is cut anew"
ok "cutting anew equals merging and cutting" diff -r b3 b23
run tp-shard reshard -q --pp 3 b2 b2p3r
ok "stages are cut like ranks, and an axis that is not named is kept" diff -r b2p3 b2p3r
tp-shard reshard -q --tp 6 --pp 1 b2p3 b6 && tp-shard reshard -q --tp 1 b6 b1 &&
    tp-shard merge -q b1 back
ok "2 x 3, 6 and 1 parts come back to the original" \
    cmp "$bard/model.safetensors" back/model.safetensors
# shellcheck disable=SC3045
(
    ulimit -S -n 20
    tp-shard split -q --mesh tp=6,pp=6 "$bard" b36 && tp-shard merge -q b36 back36
) > out 2> err
ok "36 rank files are open at once where 20 are allowed at first" \
    cmp "$bard/model.safetensors" back36/model.safetensors
run tp-shard split --tp 2 b2 again
status_is 2 "split leaves what is cut to reshard"
err_lines 2 "and says so in two lines"

# types
tp-shard split -q --tp 3 --dtype f32 "$bard" f32 && tp-shard merge -q --dtype bf16 f32 bf16
ok "bfloat16 widened to f32 and narrowed again is what it was" \
    cmp "$bard/model.safetensors" bf16/model.safetensors
run tp-shard merge -q f32 wide
run tp-shard show --json wide
out_has '"dtypes":{"F32":57}' "merge keeps the type that was cut to"
run tp-shard split --tp 2 --dtype int16 "$bard" int16
status_is 2 "a type that is no real floating one is refused"

# differences
run tp-shard diff b3 "$bard"
status_is 0 "what is cut equals what is whole"
out_is "57 tensors, identical" "and it is said"
run tp-shard diff b2p3 b6
status_is 0 "two cuts of one model are equal"
run tp-shard diff --all --json b2 f32
status_is 1 "another type is a difference"
out_has '"type":"summary","tensors":57,"differing":57,"first":"lm_head.weight","max_abs":0,"max_rel":0}' \
    "though the values are the same"
cp -R "$bard" other
chmod -R u+w other
size=$(wc -c < other/model.safetensors)
printf '\200\077' | dd of=other/model.safetensors bs=1 seek=$((size - 4)) conv=notrunc 2> dd.err
run tp-shard diff "$bard" other/model.safetensors
status_is 1 "one changed element is a difference"
out_has "1 elements differ from number " "and its number is told"
run tp-shard diff "$bard" "$models/llama-gqa"
out_has "against" "other shapes are differences"
out_has "only in the first" "missing tensors too"

# show and plan
run tp-shard show --json "$bard"
status_is 0 "a directory is shown"
out_has '{"type":"summary","family":"llama","params":2828736,"buffers":0,"tensors":57,"bytes":5657472,"dtypes":{"BF16":57}}' \
    "the last line sums up"
run tp-shard show "$bard/model.safetensors"
out_has "57 tensors, 2828736 parameters, 5.40 MiB" "a single file is shown"
run tp-shard plan --tp 4 "$bard"
out_has "[32, 192] x2 [64, 192] x2" "plan tells the shapes of an uneven cut"
run tp-shard plan --tp 2 --json "$bard"
out_has '{"type":"part","part":1,"file":"rank-tp1-pp0.safetensors"' "plan tells each part's file"
run tp-shard plan --tp 7 "$bard"
status_is 1 "more ranks than heads are an honest no"
err_is "tp-shard: tp 7: the model has 6 heads; valid tp: 1 to 6; or use --pp" "which says why"

# families
run tp-shard families
out_has "llama" "families lists llama"
tp-shard families llama > llama.json
run tp-shard families --family llama.json
ok "a printed family is a family file" cmp llama.json out

# verdicts on single files
while IFS='	' read -r file verdict _; do
    case $verdict in
    accept*)
        run tp-shard show "$data/safetensors-cases/$file"
        status_is 0 "$file is taken"
        ;;
    reject*)
        run tp-shard show "$data/safetensors-cases/$file"
        status_is 3 "$file is refused"
        err_lines 1 "$file is refused in one line"
        ;;
    esac
done < "$data/safetensors-cases/expected.tsv"

# what a merge says of its type
mkdir typed
cp "$bard"/* typed
chmod -R u+w typed
sed -i 's/"\(torch_\)\{0,1\}dtype" *: *"[a-z0-9]*"/"torch_dtype": "float32"/' typed/config.json
sed -i 's/^{/{"nested": {"dtype": "float32"},/' typed/config.json
tp-shard split -q --tp 2 --dtype f16 typed typed2
tp-shard merge -q typed2 typed1
ok "a merge of weights whose type was changed names it in config.json" \
    grep -q '"torch_dtype": "float16"' typed1/config.json
ok "and changes nothing else there" test "$(diff typed/config.json typed1/config.json | grep -c '^[<>]')" -eq 2
ok "inner keys among it" grep -q '"nested": {"dtype": "float32"}' typed1/config.json
tp-shard split -q --tp 2 typed kept2
tp-shard merge -q --dtype f16 kept2 kept1
ok "so does a merge that changes it" cmp typed1/config.json kept1/config.json
tp-shard merge -q kept2 same
ok "one that does not leaves the file alone" cmp typed/config.json same/config.json

# a family by its name, and what the limits are called
sed 's/"model_type": *"[a-z]*"/"model_type": "unheard_of"/; s/LlamaForCausalLM/Unheard/' typed/config.json > config
mv config typed/config.json
run tp-shard split -q --tp 2 typed unknown2
status_is 3 "a model of no known family is refused"
run tp-shard split -q --tp 2 --family llama typed named2
status_is 0 "but cut with --family and a name"
run tp-shard plan --tp 2 --family lama typed
err_has "no family is called 'lama'; the nearest is 'llama'" "a name that is none is told"
run tp-shard plan --tp 200 "$data/models/qwen3-moe"
err_is "tp-shard: tp 200: the model has 6 heads; valid tp: 1 to 6; or use --pp" "a limit has the name that users know"
run tp-shard plan --tp 4 "$data/quantized/mxfp4"
err_is "tp-shard: tp 4: the model's intermediate_size/mxfp4_block is 3; valid tp: 1 to 3; or use --pp" "or that of the key in config.json"

# damage in a copy that is not needed
# flip FILE TENSOR - the lowest bit of the tensor's first byte
flip() {
    flip_head=$(head -c 8 "$1" | od -An -tu8 | tr -d ' ')
    flip_at=$((8 + flip_head + $(head -c $((8 + flip_head)) "$1" | tail -c +9 | tr '{' '\n' | grep -A1 "\"$2\"" | tail -n 1 | sed 's/.*data_offsets":\[\([0-9]*\),.*/\1/')))
    flip_byte=$(od -An -tu1 -j $flip_at -N 1 "$1" | tr -d ' ')
    # shellcheck disable=SC2059 # a byte
    printf "$(printf '\\%03o' $((flip_byte ^ 1)))" | dd of="$1" bs=1 seek=$flip_at conv=notrunc 2> /dev/null
}
tp-shard split -q --tp 3 "$bard" copies
flip copies/rank-tp1-pp0.safetensors model.norm.weight
flip copies/rank-tp2-pp0.safetensors model.layers.3.input_layernorm.weight
run tp-shard merge -q copies copies.merged
status_is 0 "copies that are not needed may be damaged"
ok "the output is right" cmp "$bard/model.safetensors" copies.merged/model.safetensors
ok "each is told, with its file" test "$(sed 's/ is damaged: .*; this/; this/' err | sort)" = \
    "tp-shard: copies/rank-tp1-pp0.safetensors: tensor model.norm.weight; this copy was not needed
tp-shard: copies/rank-tp2-pp0.safetensors: tensor model.layers.3.input_layernorm.weight; this copy was not needed"
run tp-shard reshard -q --tp 2 copies copies.tp2
status_is 0 "nor does reshard need them"
ok "and tells them" test "$(wc -l < err)" = 2
flip copies/rank-tp0-pp0.safetensors model.norm.weight
run tp-shard merge -q copies copies.never
status_is 3 "the one that is needed is refused"
err_has "rank-tp0-pp0.safetensors: tensor model.norm.weight is damaged" "by name"
# a dry run checks and counts, and writes nothing
run tp-shard split -n --tp 2 "$bard" dry
out_is "would write dry: 2 rank files, 5.40 MiB" "split -n says what would be written"
status_is 0 "and that it can be"
err_empty "and nothing else"
ok "and leaves nothing" sh -c '! ls -d dry* 2> /dev/null'
tp-shard split -q --tp 2 "$bard" dried
run tp-shard split -n --tp 2 "$bard" dried
err_is "tp-shard: dried: exists (-f replaces a checkpoint)
Try 'tp-shard split --help' for more." "what is in the way is told"
find dried -type f -exec cksum {} + | sort > before
run tp-shard split -n -f --tp 4 "$bard" dried
mv out would
find dried -type f -exec cksum {} + | sort > after
ok "and does not" cmp before after
run tp-shard split -f --tp 4 "$bard" dried
ok "what it says is what is written then" test "$(cat would)" = "would write $(sed 's/^tp-shard: //' err)"
run tp-shard split -n --tp 7 "$bard" dry
status_is 1 "a layout that cannot be is refused"
run tp-shard merge -n dried dry
out_is "would write dry: 57 tensors, 5.40 MiB" "merge -n counts, too"
run tp-shard reshard -n --tp 3 --dtype f32 dried dry
mv out would
tp-shard reshard --tp 3 --dtype f32 dried dry 2> err
ok "and so does reshard" test "$(cat would)" = "would write $(sed 's/^tp-shard: //' err)"
rm -r dry
run pp-partition split -n --pp 2 "$bard" dry
out_is "would write dry: 2 rank files, 5.40 MiB" "and pp-partition"
run tp-shard split -n --tp 2 --dtype int8 "$bard" dry
err_is "tp-shard: -n: not with --dtype int8
Try 'tp-shard split --help' for more." "but not of what is counted while it is made"
ok "none of them leaves anything" sh -c '! ls -d dry dry.* 2> /dev/null'
done_testing

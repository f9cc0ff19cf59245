#!/bin/sh
# quantize-files - tp-shard split --dtype int8 and int4: cut, merged, checked and run
. "${top_srcdir:?}/tests/lib.sh"

bard=$top_srcdir/examples/bard
compare=$top_builddir/tests/compare-tensors
ids=1,50,30,2,70,40,9

logits() {
    tp-run logits --ids "$ids" -o "$@"
}

# outputs in rows, in columns (gpt2), experts, a tied head
for dir in "$bard" "$data/models/gpt2-untied" "$data/models/mixtral" "$data/models/smollm"; do
    name=${dir##*/}
    case $name in bard) types="int8 int4" ;; *) types=int8 ids=1,5,3,2,7 ;; esac
    for type in $types; do
        logits want --weights $type "$dir"
        tp-shard split -q --dtype $type --tp 1 "$dir" "$name.$type.1"
        logits got "$name.$type.1"
        ok "$name in $type: files have the numbers of --weights" "$compare" want got 2e-7 logits
        tp-shard split -q --dtype $type --tp 2 "$dir" "$name.$type.2"
        logits got "$name.$type.2"
        ok "$name in $type: two rank files give the same" "$compare" want got 1e-5 logits
        logits back --tp 1 "$name.$type.2"
        logits got "$name.$type.1"
        ok "$name in $type: one rank reads two files to the bit" cmp back got
        run tp-shard verify "$name.$type.2"
        status_is 0 "$name in $type: the files are intact"
        tp-shard reshard -q --tp 1 --pp 2 "$name.$type.2" "$name.$type.pp"
        tp-shard reshard -q --tp 2 --pp 1 "$name.$type.pp" "$name.$type.back"
        ok "$name in $type: stages and back are the same rank files" \
            cmp "$name.$type.2/rank-tp1-pp0.safetensors" "$name.$type.back/rank-tp1-pp0.safetensors"
        run tp-shard merge "$name.$type.2" "$name.$type.whole"
        status_is 0 "$name in $type: can be merged"
        err_has "weights in $type became" "and says what became of the numbers"
        ok "$name in $type: the configuration is the original's" cmp "$name.$type.whole/config.json" "$dir/config.json"
        logits got "$name.$type.whole"
        ok "$name in $type: merged weights are near" "$compare" want got 0.02 logits
    done
done
run tp-shard reshard --dtype bf16 --tp 1 bard.int8.2 no
status_is 3 "their scales are not converted to another type"
err_is "tp-shard: bard.int8.2: its weights are stored in 8 bits, which have no type BF16; tp-shard merge gives them back" "which is told in one line"
ok "and nothing is written" test ! -e no
run tp-shard split --dtype int9 --tp 2 "$bard" no
status_is 2 "a type that is not known is refused"
err_has "none of f32, f16, bf16, int8, int4" "with the names of those that are"
ok "nothing else was left behind" test ! -e bard.int8.2.quantized.partial
mkdir kept.quantized
echo precious > kept.quantized/notes
run tp-shard split -q --dtype int8 --tp 2 "$bard" kept
status_is 0 "a directory of another name is in nobody's way"
ok "and stays" test -s kept.quantized/notes
mkdir kept.quantized.partial
mv kept.quantized/notes kept.quantized.partial
run tp-shard split -q -f --dtype int8 --tp 2 "$bard" kept
status_is 2 "what is not ours where the whole model would be written is refused"
err_has "holds notes, which is not ours" "and named"
ok "and stays" test -s kept.quantized.partial/notes
run tp-shard merge -f bard.int8.2 bard.int8.whole
status_is 0 "a merge takes the place of a merge"
tp-shard show --json "$bard" | sed -n 's/.*"name":"\([^"]*\)","dtype":"\([^"]*\)","shape":\(\[[^]]*\]\).*/\1 \2 \3/p' | sort > names
tp-shard show --json bard.int4.whole | sed -n 's/.*"name":"\([^"]*\)","dtype":"\([^"]*\)","shape":\(\[[^]]*\]\).*/\1 \2 \3/p' | sort > merged
ok "a merge has the original's tensors, types and shapes" cmp names merged

# bytes: of the files, and in memory
for type in int8 int4; do
    tp-run generate --report-memory --ids 1,2 --max-tokens 1 "bard.$type.1" 2>&1 > text |
        sed -n 's/.*"weights":\([0-9]*\).*/\1/p' > seen
    mem-estimate infer --framework tp-run --seq 4 --json "bard.$type.1" |
        tr '{' '\n' | sed -n 's/.*"weights":\([0-9]*\).*/\1/p' | sort -u > expected
    ok "bard in $type: as many bytes in memory as predicted" cmp expected seen
    tp-shard show --json "bard.$type.1" | sed -n 's/.*"type":"summary".*"bytes":\([0-9]*\).*/\1/p' > expected
    mem-estimate infer --framework none --seq 4 --json "bard.$type.1" |
        tr '{' '\n' | sed -n 's/.*"weights":\([0-9]*\).*/\1/p' | sort -u > seen
    ok "bard in $type: elsewhere as many as in the files" cmp expected seen
done

ids=1,50,30,2,70,40,9
tp-shard split -q --dtype int4 --tp 3 "$bard" bard.int4.3
logits got bard.int4.3
logits want bard.int4.1
ok "shards of int4 end between blocks: three ranks give the same" "$compare" want got 1e-5 logits
run tp-shard split --dtype int8 --tp 2 bard.int8.whole/nothing no
status_is 3 "a model that is not there"
run tp-run train --steps 1 --data "$bard/heldout.txt" -o run bard.int8.1
status_is 1 "training from them is refused"
err_has "weights quantized by shardutils" "and says why"

# plain safetensors: a rank file of one rank is a Hugging Face directory's
whole() {
    rm -rf bad
    mkdir bad
    cp "bard.$1.1/config.json" "bard.$1.1/tokenizer.json" bad
    cp "bard.$1.1/rank-tp0-pp0.safetensors" bad/model.safetensors
}
whole int8
logits got bad
logits want bard.int8.1
ok "a directory of one file reads as well" cmp want got
run tp-shard split --dtype int8 --tp 2 bad no
status_is 3 "it is not quantized again"
err_has "is quantized already" "and says so"
LC_ALL=C sed -i 's/lm_head.weight.scale"/lm_head.weight.scali"/' bad/model.safetensors
run tp-run generate --ids 1 bad
status_is 3 "a scale that is missing is found"
whole int4
LC_ALL=C sed -i 's/"lm_head.weight.scale":{"dtype":"F16","shape":\[1024,6\]/"lm_head.weight.scale":{"dtype":"F16","shape":[6,1024]/' bad/model.safetensors
run tp-run generate --ids 1 bad
status_is 3 "a scale of another shape is found"
err_has "lm_head.weight.scale" "with its name"
whole int8
at=$(od -An -tu8 -N8 bad/model.safetensors)
printf '\0\0\300\177' | dd of=bad/model.safetensors bs=1 seek=$((at + 8)) conv=notrunc 2> dd.err
run tp-run generate --ids 1 bad
status_is 3 "a scale that is NaN is found"
err_has "a scale is not finite" "and says so"

for type in int8 int4; do
    rm -rf bad
    mkdir bad
    cp "$data/models/llama-gqa/config.json" "$data/models/llama-gqa/model.safetensors" bad
    chmod u+w bad/model.safetensors
    run tp-shard split -q --dtype $type --tp 1 bad fine.$type
    status_is 0 "numbers become $type"
    name=model.layers.1.mlp.up_proj.weight
    at=$(tr -cd '[:print:]' < bad/model.safetensors | sed "s/.*\"$name\":{[^}]*\"data_offsets\":\[\([0-9]*\).*/\1/")
    printf '\0\0\300\177' | dd of=bad/model.safetensors bs=1 seek=$(($(od -An -tu8 -N8 bad/model.safetensors) + 8 + at)) conv=notrunc 2> dd.err
    run tp-shard split -q --dtype $type --tp 1 bad no
    status_is 3 "but NaN has no code of $type"
    err_is "tp-shard: bad: tensor $name: NaN or an infinite number has no code" "which is told by the tensor's name"
    ok "and nothing is written" test ! -e no
    rm -rf no
done

# a tall matrix of short rows: more rows in a strip than were ever read at once
tall() {
    end=0 sep=
    while read -r name rows cols; do
        printf '%s"%s":{"dtype":"F32","shape":[%s],"data_offsets":[%d,%d]}' \
            "$sep" "$name" "$rows${cols:+,$cols}" $end $((end + 4 * rows * ${cols:-1}))
        end=$((end + 4 * rows * ${cols:-1})) sep=,
    done << 'EOM'
model.embed_tokens.weight 33001 32
lm_head.weight 33001 32
model.norm.weight 32
model.layers.0.input_layernorm.weight 32
model.layers.0.post_attention_layernorm.weight 32
model.layers.0.self_attn.q_proj.weight 32 32
model.layers.0.self_attn.k_proj.weight 32 32
model.layers.0.self_attn.v_proj.weight 32 32
model.layers.0.self_attn.o_proj.weight 32 32
model.layers.0.mlp.gate_proj.weight 32 32
model.layers.0.mlp.up_proj.weight 32 32
model.layers.0.mlp.down_proj.weight 32 32
EOM
    echo $end > size
}
mkdir tall
header="{$(tall)}"
{
    length=${#header}
    for _ in 1 2 3 4 5 6 7 8; do
        # shellcheck disable=SC2059
        printf "\\$(printf %03o $((length & 255)))"
        length=$((length >> 8))
    done
    printf %s "$header"
    # numbers from 0.01 to 0.2, of a period that is prime
    yes '001<117=222<539=443>544<655=366<778=981=892>903<014=025<136=147>' | tr -d '\n' | head -c "$(cat size)"
} > tall/model.safetensors
cat > tall/config.json << 'EOM'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "intermediate_size": 32,
 "num_attention_heads": 4, "num_hidden_layers": 1, "vocab_size": 33001, "rms_norm_eps": 1e-5,
 "tie_word_embeddings": false, "torch_dtype": "float32"}
EOM
for type in int8 int4; do
    run tp-shard split -q --dtype $type --tp 1 tall "tall.$type"
    status_is 0 "33,001 rows of 32 numbers become $type"
    tp-shard merge -q "tall.$type" "tall.$type.whole" 2> notes
    far=0.005
    test $type = int8 || far=0.08
    ok "and are near" "$compare" tall/model.safetensors "tall.$type.whole/model.safetensors" $far lm_head.weight
done

# scales that do not fit
spoil() { # spoil TYPE SHAPE NEW: changes the shape of scales in the rank file and the manifest
    rm -rf bad
    cp -r "bard.$1.1" bad
    LC_ALL=C sed -i "s/lm_head.weight.scale\(\\\\*\":{\\\\*\"dtype\\\\*\":\\\\*\"[A-Z0-9]*\\\\*\",\\\\*\"shape\\\\*\":\)$2/lm_head.weight.scale\1$3/" \
        bad/rank-tp0-pp0.safetensors bad/checkpoint.json
    LC_ALL=C sed -i "s/\(lm_head.weight.scale\",\"role\":\"weight\",\"dtype\":\"[A-Z0-9]*\",\"shape\":\)$2/\1$3/" bad/checkpoint.json
    reseal bad
}
spoil int4 '\[1024,6\]' '[6,1024]'
run tp-shard merge bad no
status_is 3 "scales that lie the other way are refused"
err_has "lm_head.weight.scale" "with their name"

done_testing

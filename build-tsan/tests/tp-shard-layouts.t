#!/bin/sh
# tp-shard-layouts.t - every way in which projections are fused comes back from every mesh
. "$top_srcdir/tests/lib.sh"
family=$data/layouts/family.json

# A model of 2 layers and 3 experts: heads 6 in 2 groups of 4 elements, hidden 10, ffn 8, bf16.
mkdir model
cat > model/config.json << 'END'
{"model_type":"layouts","hidden_size":10,"intermediate_size":8,"num_hidden_layers":2,
 "num_attention_heads":6,"num_key_value_heads":2,"head_dim":4,"vocab_size":11,"num_experts":3,
 "rms_norm_eps":1e-6,"tie_word_embeddings":true}
END
{
    echo 'model.embed_tokens.weight:11,10'
    echo 'model.norm.weight:10'
    echo 'model.bias.weight:7,6'
    for l in 0 1; do
        for t in input_layernorm.weight:10 mlp.down_proj.weight:10,8 mlp.gate_proj.weight:8,10 \
            mlp.up_proj.weight:8,10 post_attention_layernorm.weight:10 \
            self_attn.k_proj.weight:8,10 self_attn.o_proj.weight:10,24 \
            self_attn.q_proj.weight:24,10 self_attn.v_proj.weight:8,10 conv1d.weight:10,40 \
            neox.weight:72,10 falcon.weight:40,10 codegen.weight:48,10 phi3.weight:16,10 \
            gpt_oss.weight:3,10,16 gpt_oss.bias:16 mla.weight:48,10 qk_norm.weight:24 \
            xlnet.weight:10,6,4 router.weight:3,10 \
            experts.0.w1.weight:8,10 experts.1.w1.weight:8,10 experts.2.w1.weight:8,10 \
            experts.0.w2.weight:10,8 experts.1.w2.weight:10,8 experts.2.w2.weight:10,8; do
            echo "model.layers.$l.$t"
        done
    done
} | awk -F: '
    {
        n = split($2, axis, ","); bytes = 2
        for (i = 1; i <= n; i++) bytes *= axis[i]
        printf "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[%s],\"data_offsets\":[%d,%d]}",
            (NR == 1 ? "{" : ","), $1, $2, end, end + bytes
        end += bytes
    }
    END { printf "}"; print end > "data.size" }' > header
# data in which every element is another: its number
{
    size=$(wc -c < header)
    printf "$(printf '\\%03o\\%03o' $((size % 256)) $((size / 256)))\0\0\0\0\0\0"
    cat header
    awk -v n="$(cat data.size)" 'BEGIN {
        for (i = 0; i < n / 2; i++) printf "\\%03o\\%03o", i % 256, int(i / 256) }' > escapes
    printf "$(cat escapes)"
} > model/model.safetensors

comes_back() {
    rm -rf cut whole
    tp-shard split -q --family "$family" "$1" model cut && tp-shard verify -q cut &&
        tp-shard merge -q cut whole && cmp model/model.safetensors whole/model.safetensors &&
        tp-shard diff cut model
}

for mesh in tp=2 tp=3 tp=4 tp=5 tp=6 ep=2 ep=3 tp=2,ep=2 tp=3,ep=3,pp=2 tp=4,pp=2; do
    ok "every layout comes back from $mesh" comes_back "--mesh=$mesh"
done

# from mesh to mesh, with experts
recut() {
    rm -rf recut direct
    tp-shard reshard -q --mesh="$1" from recut &&
        tp-shard split -q --family "$family" --mesh="$1" model direct && diff -r direct recut &&
        rm -rf from && mv recut from
}

tp-shard split -q --family "$family" --mesh=tp=2,ep=2 model from
for mesh in tp=4,ep=1 tp=3,pp=2 tp=6,ep=3,pp=1 tp=1,ep=1; do
    ok "cutting anew for $mesh equals merging and cutting" recut "$mesh"
done
tp-shard merge -q from back
ok "and at the end the model is what it was" cmp model/model.safetensors back/model.safetensors

# what the parts hold, said once by hand: numbers of the elements
run tp-shard plan --json --family "$family" --tp 2 model
rows() {
    sed -n "s/.*\"name\":\"model.layers.0.$1\",\"part\":$2,.*\"axes\":\[\(.*\)\]}/\1/p" out
}

is_rows() {
    [ "$(rows "$1" "$2")" = "$3" ] || { rows "$1" "$2"; return 1; }
}

ok "NeoX: the q, k and v of a rank's heads, as they were" is_rows neox.weight 1 \
    '[[36,36]],[[0,10]]'
ok "Falcon: a rank's group" is_rows falcon.weight 1 '[[20,20]],[[0,10]]'
ok "Conv1D: columns of each block" is_rows conv1d.weight 0 '[[0,10]],[[0,12],[24,4],[32,4]]'
ok "CodeGen: the heads of a rank's blocks" is_rows codegen.weight 0 \
    '[[0,24]],[[0,10]]'
ok "gpt-oss: gate and up side by side" is_rows gpt_oss.bias 1 \
    '[[8,8]]'

# checkpoints of version 1, whose cut axes were stored segment by segment and unit by unit
old=$data/version-1/layouts
ok "version 1: intact" tp-shard verify "$old"
ok "version 1: it has the same values" tp-shard diff "$old" model
tp-shard merge -q "$old" merged
ok "version 1: every layout comes back" cmp model/model.safetensors merged/model.safetensors
for mesh in tp=3 tp=2,ep=3 tp=5,pp=2; do
    rm -rf recut direct
    tp-shard reshard -q --mesh=$mesh "$old" recut
    tp-shard split -q --family "$family" --mesh=$mesh model direct
    ok "version 1: cutting anew for $mesh is as from the model" diff -r -x checkpoint.json direct recut
done
rm -rf cut
tp-shard split -q --family "$family" --tp 3 model cut
ok "version 2 has other bytes" test \
    "$(cmp -s cut/rank-tp0-pp0.safetensors "$old/rank-tp0-pp0.safetensors"; echo $?)" = 1

# read plainly, parts have the rows that the plan names, in the original's order
for mesh in tp=2 tp=3 tp=4,ep=2 tp=5,pp=2 tp=6,ep=3; do
    rm -rf cut
    tp-shard split -q --family "$family" --mesh=$mesh model cut
    tp-shard plan --json --family "$family" --mesh=$mesh model > plan
    ok "parts hold the rows that the plan names for $mesh" \
        "$top_builddir/tests/plain-rows" plan cut model/model.safetensors
done
done_testing

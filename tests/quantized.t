#!/bin/sh
# quantized.t - quantized weights are cut with their companions
. "$top_srcdir/tests/lib.sh"

for kind in fp8 fp8-latent gptq awq int8 mxfp4 gpt-oss-bf16 ct-fp8 ct-w4a16; do
    model=$data/quantized/$kind
    for tp in 1 2 3 4; do
        case $kind$tp in mxfp44 | gpt-oss-bf164) continue ;; esac # three blocks of 32
        ok "$kind is cut at tp $tp" tp-shard split -q --tp "$tp" "$model" "$kind.$tp"
        ok "$kind at tp $tp is intact" tp-shard verify -q "$kind.$tp"
        ok "$kind at tp $tp is merged" tp-shard merge -q "$kind.$tp" "$kind.$tp.merged"
        ok "$kind is the same bytes again after tp $tp" \
            cmp "$model/model.safetensors" "$kind.$tp.merged/model.safetensors"
    done
    tp-shard reshard -q --tp 3 "$kind.2" "$kind.3.again"
    ok "$kind cut anew is as if cut at once" diff -r "$kind.3" "$kind.3.again"
done

# shape of TENSOR in a rank file
shape() {
    tp-shard show --json "$1" | sed -n "s/.*\"name\":\"$2\".*\"shape\":\(\[[^]]*\]\).*/\1/p"
}
for kind in gptq awq mxfp4; do
    params=$(tp-shard show --json "$kind.2" | sed -n 's/.*"params":\([0-9]*\).*/\1/p')
    run mem-estimate infer "$data/quantized/$kind"
    out_has ", $params parameters" "$kind: show counts the parameters, not the elements that hold their codes"
done
p=model.layers.0
ok "FP8 scales go with their blocks: rows" \
    test "$(shape fp8.2/rank-tp0-pp0.safetensors $p.mlp.up_proj.weight_scale_inv)" = "[2,2]"
ok "FP8 blocks are not parted: the rest of three goes to the other rank" \
    test "$(shape fp8.2/rank-tp1-pp0.safetensors $p.mlp.up_proj.weight)" = "[16,32]"
ok "FP8 scales go with their blocks: columns" \
    test "$(shape fp8.2/rank-tp1-pp0.safetensors $p.mlp.down_proj.weight_scale_inv)" = "[2,1]"
ok "FP8 blocks that lie across two parts of a head go with their heads" \
    test "$(shape fp8-latent.2/rank-tp0-pp0.safetensors $p.self_attn.q_b_proj.weight_scale_inv)" = "[6,2]"
ok "GPTQ packs rows" \
    test "$(shape gptq.2/rank-tp0-pp0.safetensors $p.mlp.down_proj.qweight)" = "[4,32]"

# numbers FILE TENSOR: the int32 elements
numbers() {
    size=$(od -An -tu8 -N8 "$1" | tr -d ' ')
    at=$(head -c $((8 + size)) "$1" | tail -c +9 |
        sed "s/.*\"$2\":[^}]*\"data_offsets\":\[\([0-9]*\),\([0-9]*\)\].*/\1 \2/")
    od -An -v -w4 -tu4 -j $((8 + size + ${at% *})) -N $((${at#* } - ${at% *})) "$1" | tr -d ' '
}
for tp in 2 3; do
    wrong=0
    r=0
    while [ $r -lt $tp ]; do
        f=gptq.$tp/rank-tp$r-pp0.safetensors
        numbers $f $p.mlp.down_proj.g_idx > g_idx
        awk '$1 != int((NR - 1) / 16) { exit 1 }' g_idx || wrong=1
        r=$((r + 1))
    done
    ok "GPTQ's groups are counted from 0 in each rank's file at tp $tp" test $wrong -eq 0
done
cp -R "$data/quantized/gptq" permuted
chmod -R u+w permuted
size=$(od -An -tu8 -N8 permuted/model.safetensors | tr -d ' ')
printf '\002' | dd of=permuted/model.safetensors bs=1 seek=$((8 + size)) conv=notrunc 2> dd.err
run tp-shard split -q --tp 2 permuted permuted.2
status_is 3 "GPTQ whose rows are in another order than desc_act says is refused"
err_is "tp-shard: $p.mlp.down_proj.g_idx: rows that are not in the order of their groups (row 0 in group 2) cannot be cut" \
    "by name"
run tp-shard split -q --tp 1 permuted permuted.1
status_is 0 "but kept whole it can"
ok "compressed-tensors packs columns" \
    test "$(shape ct-w4a16.3/rank-tp1-pp0.safetensors $p.mlp.down_proj.weight_packed)" = "[32,2]"
ok "with their scales" \
    test "$(shape ct-w4a16.3/rank-tp1-pp0.safetensors $p.mlp.down_proj.weight_scale)" = "[32,1]"
ok "scales of rows go with them" \
    test "$(shape ct-fp8.2/rank-tp1-pp0.safetensors $p.mlp.up_proj.weight_scale)" = "[24,1]"
ok "and are whole where columns are cut" \
    test "$(shape ct-fp8.2/rank-tp1-pp0.safetensors $p.mlp.down_proj.weight_scale)" = "[32,1]"
mkdir nf4
cat > nf4/header << 'END'
{"model.layers.0.mlp.down_proj.weight":{"dtype":"U8","shape":[768,1],"data_offsets":[0,768]},
"model.layers.0.mlp.down_proj.weight.absmax":{"dtype":"U8","shape":[24],"data_offsets":[768,792]},
"model.layers.0.mlp.down_proj.weight.quant_state.bitsandbytes__nf4":{"dtype":"U8","shape":[8],"data_offsets":[792,800]}}
END
length=$(wc -c < nf4/header)
{
    printf "$(printf '\\%03o\\%03o' $((length % 256)) $((length / 256)))\0\0\0\0\0\0"
    cat nf4/header
    head -c 800 /dev/zero
} > nf4/model.safetensors
sed 's/"load_in_8bit"/"load_in_4bit"/' "$data/quantized/int8/config.json" > nf4/config.json
run tp-shard split --tp 2 nf4 nf4.2
status_is 3 "bitsandbytes of 4 bits whose description is none is refused"
err_is "tp-shard: nf4: tensor model.layers.0.mlp.down_proj.weight.quant_state.bitsandbytes__nf4:1:1: expected a value" \
    "by name"
ok "AWQ packs columns" \
    test "$(shape awq.2/rank-tp0-pp0.safetensors $p.mlp.up_proj.qweight)" = "[32,4]"

ok "MXFP4 blocks go to ranks whole: two of three to the first" \
    test "$(shape mxfp4.2/rank-tp0-pp0.safetensors $p.mlp.experts.down_proj_blocks)" = "[4,32,2,16]"
ok "and their scales with them" \
    test "$(shape mxfp4.2/rank-tp1-pp0.safetensors $p.mlp.experts.down_proj_scales)" = "[4,32,1]"
ok "gate and up of a block stay together" \
    test "$(shape mxfp4.2/rank-tp1-pp0.safetensors $p.mlp.experts.gate_up_proj_blocks)" = "[4,64,1,16]"
tp-shard split -q --mesh tp=2,ep=2,pp=2 "$data/quantized/mxfp4" mx.eight
ok "experts are dealt over ep" \
    test "$(shape mx.eight/rank-tp0-pp0-ep1.safetensors $p.mlp.experts.gate_up_proj_bias)" = "[2,128]"
ok "the router is not" \
    test "$(shape mx.eight/rank-tp0-pp0-ep1.safetensors $p.mlp.router.weight)" = "[4,32]"
tp-shard merge -q mx.eight mx.merged
ok "and eight ranks give the same bytes again" cmp "$data/quantized/mxfp4/model.safetensors" mx.merged/model.safetensors
run tp-shard split --tp 4 "$data/quantized/mxfp4" mx.four
status_is 1 "three blocks are not parted over four ranks"
run tp-run generate --ids 1,2 --max-tokens 1 "$data/models/gpt-oss-mxfp4"
status_is 0 "MXFP4 is unpacked to be run"
ok "the ranks of an expert's blocks answer as one does" sh -c "
    tp-run logits --tp 1 --ids 3,9,4 -o mx1.safetensors '$data/models/gpt-oss-mxfp4' &&
    tp-run logits --mesh tp=2,ep=2 --ids 3,9,4 -o mx4.safetensors '$data/models/gpt-oss-mxfp4' &&
    '$top_builddir/tests/compare-tensors' mx1.safetensors mx4.safetensors 1e-5 logits"
mkdir unscaled
sed 's/_scales"/_scalez"/' "$data/quantized/mxfp4/model.safetensors" > unscaled/model.safetensors
cp "$data/quantized/mxfp4/config.json" unscaled
run tp-run generate --ids 1,2 unscaled
status_is 3 "without its scales it is refused"
echo '{"ids":[1,2,3,4,5,6]}' > ids.jsonl
run tp-run train -q --seq 4 --steps 1 --data ids.jsonl -o trained "$data/models/gpt-oss-mxfp4"
status_is 1 "and it is not trained"
err_has "weights quantized by mxfp4 (quantization_config) cannot be trained" "by name"
run tp-shard split --tp 2 "$data/quantized/gptq-act-order" out.act
status_is 1 "GPTQ with act-order cannot be cut"
err_has "desc_act" "and the reason is named"
run tp-shard split --tp 1 "$data/quantized/gptq-act-order" out.act1
status_is 0 "but kept whole it can"
mkdir four
cp "$data/quantized/int8/model.safetensors" four
sed 's/"load_in_8bit"/"load_in_4bit"/' "$data/quantized/int8/config.json" > four/config.json
run tp-shard split --tp 2 four out.four
status_is 3 "bitsandbytes of 4 bits is refused"
err_has "4-bit bitsandbytes weights without a quant_state" "by name"
done_testing

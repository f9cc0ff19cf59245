#!/bin/sh
# packed - quantized weights are unpacked as they are loaded
. "${top_srcdir:?}/tests/lib.sh"

# logits FROM MESH TOLERANCE: those of MESH are as expected of the model $kind
logits() {
    tp-run logits --mesh "$2" --ids "$(cat "$dir/ids")" -o got.safetensors "$1" &&
        "$top_builddir/tests/compare-tensors" "$dir/expected.safetensors" got.safetensors "$3" logits
}

for kind in gptq gptq-v2-act gptq-whole awq fp8 fp8-latent int8 nf4 fp4 ct-fp8 ct-fp8-one ct-int8 ct-w4a16 ct-w8a16 ct-w4-rows ct-nvfp4 ct-mxfp4; do
    dir=$data/packed/$kind
    ok "$kind: the logits are those of its values" logits "$dir" tp=1 1e-5
    ok "$kind: and over two stages" logits "$dir" pp=2 1e-5
    case $kind in gptq-*) continue ;; esac
    ok "$kind: and over two ranks" logits "$dir" tp=2 1e-5
    tp-shard split -q --tp 2 "$dir" "$kind.2"
    ok "$kind: and of two rank files" logits "$kind.2" tp=2 1e-5
    ok "$kind: which one rank reads as well" logits "$kind.2" tp=1 1e-5
done
dir=$data/packed/ct-fp8
cp -R "$dir" fbgemm
chmod -R u+w fbgemm
tr -d '\n' < "$dir/config.json" | sed 's/\("quantization_config": *\){.*"compressed" *}/\1'\
'{"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": ["lm_head"]}/' > fbgemm/config.json
ok "FBGEMM's FP8, with a scale for each row, is read" logits fbgemm tp=2 1e-5
# bytes of weights: those of the unpacked ones, as predicted
for pair in gptq:f16 awq:f16 fp8:bf16 fp8-latent:bf16 int8:f16 ct-w4a16:f32 ct-nvfp4:bf16; do
    kind=${pair%:*}
    for tp in 1 2; do
        tp-run generate --report-memory --tp $tp --ids 3,4 --max-tokens 1 "$data/packed/$kind" 2>&1 > text |
            sed -n 's/.*"weights":\([0-9]*\).*/\1/p' | sort -u > allocated
        mem-estimate infer --framework tp-run --tp $tp --seq 4 --json "$data/packed/$kind" > predicted
        tr '{' '\n' < predicted | sed -n 's/.*"weights":\([0-9]*\).*/\1/p' | sort -u > weights
        ok "$kind at tp $tp: as many bytes of weights as predicted" cmp weights allocated
    done
    ok "$kind: what they are unpacked to is said" grep -qF "quantized weights unpacked to ${pair#*:}" predicted
done
# codes LAYOUT MODEL: the logits of kept codes are those of numbers in f32, but for the order of sums
codes() {
    tp-run logits $1 --ids 1,5,9,3,7,2,8,4,6,11 -o wide.safetensors "$2" &&
        tp-run logits $1 --weights codes --ids 1,5,9,3,7,2,8,4,6,11 -o kept.safetensors "$2" &&
        "$top_builddir/tests/compare-tensors" wide.safetensors kept.safetensors 4e-6 logits
}
for kind in fp8 fp8-latent ct-fp8 ct-fp8-one ct-mxfp4; do
    cp -R "$data/packed/$kind" "$kind.f32"
    chmod -R u+w "$kind.f32"
    sed 's/"\(torch_\)*dtype": "[a-z]*[0-9]*"/"dtype": "float32"/' "$data/packed/$kind/config.json" > "$kind.f32/config.json"
done
for layout in "--tp 1" "--tp 2" "--tp 3" "--tp 4" "--tp 2 --deterministic"; do
    for kind in fp8 fp8-latent ct-fp8 ct-fp8-one; do
        ok "$kind: codes are kept at $layout" codes "$layout" "$kind.f32"
    done
    case $layout in *4) continue ;; esac
    case $layout in *3 | *deterministic) ;; *) ok "FP4 in blocks of 32: codes are kept at $layout" codes "$layout" ct-mxfp4.f32 ;; esac
    ok "MXFP4: codes are kept at $layout" codes "$layout" "$data/models/gpt-oss-mxfp4"
done
ok "FP8: codes of experts are kept over ep" codes "--ep 2" fp8-latent.f32
ok "MXFP4: codes of experts are kept over ep" codes "--ep 2" "$data/models/gpt-oss-mxfp4"
# foretold MODEL LAYOUT: the bytes of weights and of all, of each rank
foretold() {
    # shellcheck disable=SC2086 # words are wanted
    tp-run generate -q --threads 2 --report-memory --weights codes $2 --ids 3,4,5 --max-tokens 1 "$1" 2>&1 > text |
        sed -n 's/.*"rank":[0-9]*,"weights":\([0-9]*\).*"total":\([0-9]*\).*/\1 \2/p' | sort > allocated
    # shellcheck disable=SC2086 # words are wanted
    mem-estimate infer --framework tp-run --threads 2 --weights codes $2 --compute f32 --kv-dtype f32 --seq 4 \
        --prefill-tokens 3 --micro-batches 1 --runtime 0 --fragmentation 0 --json "$1" | tr '{' '\n' |
        sed -n 's/.*"count":\([0-9]*\),"weights":\([0-9]*\).*"total":\([0-9]*\).*/\1 \2 \3/p' |
        awk '{ for (i = 0; i < $1; i++) print $2, $3 }' | sort > predicted
    test -s allocated && cmp predicted allocated
}
for pair in fp8:2 ct-fp8-one:3 gptq:1 awq:2 ct-mxfp4:2; do
    ok "${pair%:*} at tp ${pair#*:}: what --weights codes takes is foretold" \
        foretold "$data/packed/${pair%:*}" "--tp ${pair#*:}"
done
ok "of experts over ep, too" foretold "$data/packed/fp8-latent" "--ep 2"
ok "and of MXFP4" foretold "$data/models/gpt-oss-mxfp4" "--tp 2"
run mem-estimate infer --framework tp-run --weights codes --seq 4 "$data/packed/fp8"
status_is 2 "without threads or a backend, codes are not foretold"
err_has "mem-estimate: --weights codes: is of a checkpoint, --framework=tp-run and --threads or --backend" "which is said"
weight_bytes() { # OPTION... MODEL
    tp-run generate --report-memory "$@" --ids 3,4 --max-tokens 1 2>&1 > text | sed -n 's/.*"weights":\([0-9]*\).*/\1/p'
}
ok "kept, they take less" test "$(weight_bytes --weights codes "$data/models/gpt-oss-mxfp4")" -lt \
    "$(weight_bytes "$data/models/gpt-oss-mxfp4")"
ok "other models have none: they are as stored" sh -c "
    tp-run logits --weights codes --ids 3,4 -o a.safetensors '$data/models/llama-gqa' &&
    tp-run logits --ids 3,4 -o b.safetensors '$data/models/llama-gqa' && cmp a.safetensors b.safetensors"
run tp-run logits --tp 4 --weights codes --ids 3,4 -o l.safetensors "$data/quantized/mxfp4"
status_is 1 "a layout that divides blocks of MXFP4 is refused"
err_has "valid tp" "with those that do not"
run tp-run logits --weights codes --ids 3,4 -o l.safetensors "$data/quantized/fp8"
status_is 3 "a code that is NaN is not kept"
err_has "NaN or infinite" "which is told"
ok "experts over ep have theirs" sh -c "
    tp-run logits --mesh ep=2 --ids $(cat "$data/packed/fp8-latent/ids") -o ep.safetensors '$data/packed/fp8-latent' &&
    '$top_builddir/tests/compare-tensors' '$data/packed/fp8-latent/expected.safetensors' ep.safetensors 1e-5 logits"
run tp-run logits --tp 2 --ids 3,4 -o l.safetensors "$data/packed/gptq-v2-act"
status_is 1 "columns in the order of activations are not cut"
err_lines 1 "in one line"
err_has "desc_act" "that says why"

# with KIND KEY VALUE: a copy of KIND, as m, whose quantization_config has KEY = VALUE (JSON)
with() {
    rm -rf m
    cp -R "$data/packed/$1" m
    chmod -R u+w m
    # the last of a name counts
    sed "/^ \"quantization_config\": {/,/^ }/ s/^ }/  , \"$2\": $3\n }/" m/config.json > m/config
    mv m/config m/config.json
}

# refused KIND KEY VALUE [NAME]: it is, by name or as NAME
refused() {
    with "$1" "$2" "$3"
    run tp-run logits --ids 3,4 -o l.safetensors m
    if [ "$status" -eq 3 ] && [ "$(wc -l < err)" -eq 1 ] && grep -qF "${4:-quantization_config.$2}" err; then
        pass "$1: $2 = $3 is refused"
    else
        fail "$1: $2 = $3 is refused" "status $status" "$(cat err)"
    fi
}
refused gptq bits 3 "gptq (bits 3, group_size 16)"
refused gptq group_size 0 "gptq (bits 4, group_size 0)"
refused gptq checkpoint_format '"marlin"'
refused gptq format '"bitblas"'
refused gptq is_marlin_format true
refused gptq pack_dtype '"int16"'
refused gptq dynamic '{ "+:.*mlp": { "bits": 8 } }'
refused gptq bits 64 "gptq (bits 64, group_size 16)"
refused gptq bits 4.5
refused gptq bits '"4"'
refused gptq quant_method 3 "g_idx: no rule of family llama matches it"
refused gptq quant_method '"hqq"' "g_idx: not known of weights quantized by hqq"
refused gptq group_size 16777217 "gptq (bits 4, group_size 16777217)"
refused gptq group_size 12 "gptq (bits 4, group_size 12)"
refused awq version '"gemv"'
refused awq zero_point false
refused awq bits 8 "qweight: is not as weights quantized by awq (version \"gemm\", bits 8, group_size 16) have it"
refused awq backend '"llm-awq"'
refused fp8 weight_block_size '[0, 16]' "weights quantized by fp8 (weight_block_size "
refused fp8 weight_block_size '[16]' "weights quantized by fp8 (weight_block_size "
refused fp8 weight_block_size '[16, 16.5]' "quantization_config.weight_block_size = [16,16.5]"
refused fp8 weight_block_size '{}' "weights quantized by fp8 (weight_block_size "
refused fp8 expert_dtype '"fp4"'
refused fp8 fmt '"e3m4"'
refused fp8 modules_to_not_convert '["mlp.down_proj"]'
refused int8 llm_int8_skip_modules '["model.layers.1.mlp"]'
refused int8 load_in_8bit false
refused int8 load_in_4bit 1
refused int8 quant_method null "SCB: no rule of family llama matches it"
refused int8 load_in_4bit true "4-bit bitsandbytes weights without"
refused ct-fp8 format '"marlin-24"'
refused ct-fp8 kv_cache_scheme '{ "num_bits": 8 }'
refused ct-fp8 transform_config '{ "config_groups": { "a": 1 } }'
refused ct-fp8 config_groups '{}' "not known of weights quantized by compressed-tensors"
refused ct-fp8 config_groups '{"a":{"weights":{"num_bits":8}},"b":{"weights":{"num_bits":4}}}' "in more than one of config_groups are not known"
refused ct-fp8 config_groups '{"a":{"weights":{"num_bits":8,"type":"float","strategy":"token"}}}' "weight_scale: not known of weights"
refused ct-w4a16 config_groups '{"a":{"weights":{"num_bits":4,"type":"int","strategy":3}}}' "weight_zero_point: not known of weights"
refused ct-w4a16 config_groups '{"a":{"weights":null}}' "weight_zero_point: not known of weights"
# in a checkpoint without packed weights, too
rm -rf m
cp -R "$data/models/arcee" m
chmod -R u+w m
sed '1s/^{/{"quantization_config":{"quant_method":"compressed-tensors","config_groups":{"a":{"weights":[1]}}},/' \
    "$data/models/arcee/config.json" > m/config.json
run tp-run logits --ids 3,4 -o l.safetensors m
status_is 3 "a list in the place of a group's weights is refused"
err_is "tp-run: m/config.json: quantization_config.config_groups.weights is not an object" "by its name"
refused ct-w4a16 format 3 "compressed-tensors (format 3, num_bits 4"
refused ct-fp8 kv_cache_scheme 3
refused ct-fp8 kv_cache_scheme '[1]'
refused fp8 weight_block_size '["a", 16]' "weights quantized by fp8 (weight_block_size "
refused fp8 weight_block_size '[16, 0]' "weights quantized by fp8 (weight_block_size "
refused fp8 modules_to_not_convert '[7, "", "model.layers.0.mlp.down_proj.weight.and.more", "mlp.down_proj"]'
refused ct-fp8 ignore '["model.layers.0.self_attn.q_proj"]'
with gptq checkpoint_format '"gptq_v2"'
dir=$data/packed/gptq
run logits m tp=1 1e-2
status_is 1 "zeros stored less one are not those of gptq_v2"
# zeros BYTE: all zero points of m made of this byte (octal)
zeros() {
    size=$(od -An -tu8 -N8 m/model.safetensors | tr -d ' ')
    head -c $((8 + size)) m/model.safetensors | tail -c +9 | tr '}' '\n' |
        sed -n 's/.*qzeros":.*"data_offsets":\[\([0-9]*\),\([0-9]*\)\].*/\1 \2/p' > places
    while read -r from to; do
        head -c $((to - from)) /dev/zero | tr '\0' "\\$1" |
            dd of=m/model.safetensors bs=1 seek=$((8 + size + from)) conv=notrunc 2> dd.err
    done < places
    tp-run logits --ids "$(cat "$dir/ids")" -o "zeros.$1" m
}
zeros 000
with gptq sym true
zeros 377
ok "fifteen, stored less one, is a zero point of 0, as AutoGPTQ has it" cmp zeros.000 zeros.377
with gptq modules_to_not_convert '["lm_head"]'
ok "what is stored plainly may be named" logits m tp=1 1e-5
with gptq modules_to_not_convert '["model.layers.0.mlp.gate", "up_projection"]'
ok "and so may a module whose name only begins like a quantized one's" logits m tp=1 1e-5
with gptq of_another_kind 3
run tp-run logits --ids 3,4 -o l.safetensors m
status_is 0 "a key that nobody knows is passed over"
err_has "quantization_config.of_another_kind" "and named"

# without KIND TENSOR: a copy of KIND, as m, whose TENSOR has a name that nobody knows
without() {
    rm -rf m
    mkdir m
    cp "$data/packed/$1/config.json" m
    sed "s/$2\"/${2%?}Z\"/" "$data/packed/$1/model.safetensors" > m/model.safetensors
}
for pair in gptq:mlp.up_proj.scales gptq:mlp.up_proj.qzeros awq:mlp.up_proj.qweight fp8:mlp.up_proj.weight_scale_inv; do
    without "${pair%:*}" "${pair#*:}"
    run tp-run logits --ids 3,4 -o l.safetensors m
    status_is 3 "${pair%:*} without ${pair#*:} is refused"
    err_lines 1 "in one line"
done
# a tensor of a type that its kind has not
while read -r kind tensor from to; do
    rm -rf m
    mkdir m
    cp "$data/packed/$kind/config.json" m
    sed "s/\(\"model.layers.0.$tensor\":{\"dtype\":\)\"$from\"/\1\"$to\"/" "$data/packed/$kind/model.safetensors" > m/model.safetensors
    run tp-run logits --ids 3,4 -o l.safetensors m
    if [ "$status" -eq 3 ] && [ "$(wc -l < err)" -eq 1 ] && grep -qF "tensor model.layers.0.$tensor: type $to is not supported here" err; then
        pass "$kind: a $tensor of $to is refused"
    else
        fail "$kind: a $tensor of $to is refused" "status $status" "$(cat err)"
    fi
done << 'END'
gptq mlp.up_proj.qweight I32 U32
gptq mlp.up_proj.qzeros I32 F32
gptq mlp.up_proj.scales F16 I16
gptq mlp.up_proj.g_idx I32 F32
awq mlp.up_proj.qweight I32 U32
awq mlp.up_proj.scales F16 U16
fp8 mlp.up_proj.weight_scale_inv F32 I32
int8 mlp.up_proj.weight I8 U8
int8 mlp.up_proj.SCB F32 I32
ct-w4a16 mlp.up_proj.weight_packed I32 F32
END
with ct-w4a16 other 1
sed -i 's/"symmetric": false/"symmetric": true/' m/config.json
dir=$data/packed/ct-w4a16
ok "zeros that are stored are subtracted" logits m tp=1 1e-5

with gptq bits null
dir=$data/packed/gptq
ok "a setting of null is none" logits m tp=1 1e-5

# bytes of a tensor that nobody can compute with
while IFS='|' read -r kind tensor bytes message; do
    with "$kind" modules_to_not_convert null
    size=$(od -An -tu8 -N8 m/model.safetensors | tr -d ' ')
    at=$(head -c $((8 + size)) m/model.safetensors | tail -c +9 |
        sed "s/.*\"model.layers.0.$tensor\":[^}]*\"data_offsets\":\[\([0-9]*\),.*/\1/")
    # shellcheck disable=SC2059 # octal
    printf "$bytes" | dd of=m/model.safetensors bs=1 seek=$((8 + size + at)) conv=notrunc 2> dd.err
    run tp-run logits --ids 3,4 -o l.safetensors m
    status_is 3 "$kind: a $tensor of $bytes is refused"
    err_is "tp-run: tensor model.layers.0.$tensor: $message" "by name"
done << 'END'
gptq-v2-act|mlp.up_proj.g_idx|\377\377\377\177|there is no group 2147483647
gptq-v2-act|mlp.up_proj.g_idx|\377\377\377\377|there is no group -1
gptq-v2-act|mlp.up_proj.g_idx|\002\0\0\0|there is no group 2
int8|mlp.up_proj.weight_format|\001|this order of rows is not supported
int8|mlp.up_proj.SCB|\0\0\200\177|a scale is not finite
fp8|mlp.up_proj.weight_scale_inv|\0\0\300\377|a scale is not finite
awq|mlp.up_proj.scales|\001\174|a scale is not finite
ct-w4a16|mlp.up_proj.weight_scale|\200\377|a scale is not finite
END

# scales that are powers of two in a byte: those of fp8, which are its first tensors, made 1 in both types
with fp8 other 1
size=$(od -An -tu8 -N8 m/model.safetensors | tr -d ' ')
cp m/model.safetensors fours
head -c $((8 + size)) fours | tail -c +9 | awk '{
    while (match($0, /"dtype":"[A-Z0-9_]*","shape":[^}]*"data_offsets":\[[0-9]+,[0-9]+\]/)) {
        t = substr($0, RSTART, RLENGTH); split(substr(t, index(t, "offsets") + 10), at, /[],]/)
        if (t ~ /"F32"/) { sub(/F32/, "F8_E8M0", t); a = at[1] / 4; b = at[2] / 4 } else { a = at[1] - 288; b = at[2] - 288 }
        sub(/offsets":.*/, "offsets\":[" a "," b "]", t)
        printf "%s%s", substr($0, 1, RSTART - 1), t; $0 = substr($0, RSTART + RLENGTH) }
    printf "%s", $0 }' > header
length=$(wc -c < header)
{
    # shellcheck disable=SC2059 # octal
    printf "$(printf '\\%03o\\%03o' $((length % 256)) $((length / 256)))\0\0\0\0\0\0"
    cat header
    head -c 96 /dev/zero | tr '\0' '\177'
    tail -c +$((8 + size + 384 + 1)) fours
} > m/model.safetensors
run tp-run logits --ids 3,4,5 -o byte.logits m
status_is 0 "scales of a byte are read"
{
    head -c $((8 + size)) fours
    for i in 1 2 3 4 5 6 7 8 9 10 11 12; do printf '\0\0\200\077\0\0\200\077\0\0\200\077\0\0\200\077\0\0\200\077\0\0\200\077\0\0\200\077\0\0\200\077'; done
    tail -c +$((8 + size + 384 + 1)) fours
} > m/model.safetensors
tp-run logits --ids 3,4,5 -o four.logits m
ok "and count like those of four" cmp byte.logits four.logits

# bitsandbytes in 4 bits: numbers of the type that they had
dir=$data/packed/nf4
for layout in "--tp 3" "--pp 2 --tp 2"; do
    # shellcheck disable=SC2086 # words
    tp-run logits $layout --ids "$(cat "$dir/ids")" -o got.safetensors "$dir"
    ok "nf4: blocks lie across rows, which $layout cuts" "$top_builddir/tests/compare-tensors" "$dir/expected.safetensors" got.safetensors 1e-5 logits
done
tp-shard merge -q "$dir" nf4.whole
ok "nf4: merged, they are a plain model" sh -c '! grep -q quantization_config nf4.whole/config.json && tp-shard show nf4.whole | grep -q "q_proj.weight  *BF16  *\[64, 32\]"'
tp-shard merge -q nf4.2 nf4.again
ok "nf4: and the same by way of shards" sh -c 'tp-shard verify -q nf4.2 && cmp nf4.whole/model.safetensors nf4.again/model.safetensors && cmp nf4.whole/config.json nf4.again/config.json'
while IFS='|' read -r what from to said; do
    rm -rf m && mkdir m && cp "$dir/config.json" m
    sed "s/\(layers.0.mlp.up_proj.weight\)$from/\1$to/" "$dir/model.safetensors" > m/model.safetensors
    run tp-run logits --ids 3,4 -o l.safetensors m
    status_is 3 "nf4: $what is refused"
    err_is "tp-run: m: tensor model.layers.0.mlp.up_proj.weight$said" "by name"
done << 'END'
a matrix without scales|.absmax"|.absmin"|: is in 4 bits, but has no absmax
one without its values|.quant_map"|.quant_mop"|: is in 4 bits, but has no quant_map
one without scales of scales|.nested_absmax"|.nested_absmix"|: is in 4 bits, but has no nested_absmax
END
rm -rf m && mkdir m && cp "$dir/config.json" m
sed 's/"quant_type": "nf4", "blocksize": 64/"quant_type": "nf4", "blocksize": 63/' "$dir/model.safetensors" > m/model.safetensors
run tp-run logits --ids 3,4 -o l.safetensors m
status_is 3 "nf4: blocks of an odd size are refused"
err_has "tensor model.layers.0.mlp.down_proj.weight.quant_state.bitsandbytes__nf4:1:1: no blocksize that is even" "by name and place"
printf '%s\n' '{"ids":[1,2,3,4,5,6]}' > nf4.jsonl
tp-run train -q --lora 2 --seq 4 --steps 1 --data nf4.jsonl -o nf4.run "$dir"
tp-run train -q --lora 2 --seq 4 --steps 1 --data nf4.jsonl -o whole.run nf4.whole
ok "nf4: an adapter is trained beside them as beside the plain model" cmp nf4.run/step-000001/adapter_model.safetensors \
    whole.run/step-000001/adapter_model.safetensors
run tp-run logits --ids 3 -o l.safetensors nf4.run
status_is 0 "nf4: and applied to them"
# the state of one matrix under the name of another
cp -R "$data/packed/nf4" twice
chmod -R u+w twice
LC_ALL=C sed 's/k_proj.weight.quant_state.bitsandbytes__nf4/v_proj.weight.quant_state.bitsandbytes__fp4/' \
    "$data/packed/nf4/model.safetensors" > twice/model.safetensors
run tp-shard show twice
status_is 3 "nf4: a matrix has one state"
err_has "v_proj.weight: is described twice" "or it is told"

# more ranks than blocks, so that some have nothing of a weight
dir=$data/packed/fp8-latent
for tp in 3 4 8; do
    ok "fp8-latent: ranks may have no block of a weight, tp $tp" logits "$dir" tp=$tp 1e-5
done

# our own four bits, along columns and along rows
for model in llama-gqa gpt2-untied; do
    run tp-shard split -q --dtype int4 --tp 1 "$data/models/$model" "$model.int4"
    status_is 0 "$model is cut to four bits"
    run tp-shard merge -q "$model.int4" "$model.whole"
    status_is 0 "and merged again"
    for from in "$model.int4" "$model.whole"; do
        tp-run logits --ids 1,5,3 -o "$from.logits" "$from"
    done
    ok "which gives nearly the same logits" \
        "$top_builddir/tests/compare-tensors" "$model.int4.logits" "$model.whole.logits" 0.02 logits
done

run tp-run generate --ids 3,4 --max-tokens 2 "$data/packed/awq"
status_is 0 "they write"
echo '{"ids":[1,2,3,4,5,6]}' > ids.jsonl
run tp-run train -q --seq 4 --steps 1 --data ids.jsonl -o trained "$data/packed/awq"
status_is 1 "and are not trained"
err_has "quantized by awq" "by name"
done_testing

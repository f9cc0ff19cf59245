#!/bin/sh
# mem-estimate.t - bytes against published tables, against tp-shard's files, and against reason
. "${top_srcdir:?}/tests/lib.sh"

# gpt WIDTH HEADS LAYERS - a GPT of that shape, as gpt.json
gpt() {
    printf '{"model_type":"gpt2","architectures":["GPT2LMHeadModel"],"n_embd":%d,"n_head":%d,' "$1" "$2" > gpt.json
    printf '"n_layer":%d,"n_positions":2048,"vocab_size":51200,"torch_dtype":"float16"}\n' "$3" >> gpt.json
}

# layer WIDTH HEADS BATCH OPTION... - MiB of activations that one layer keeps
layer() {
    layer_width=$1 layer_heads=$2 layer_batch=$3
    shift 3
    gpt "$layer_width" "$layer_heads" 3
    three=$(rank0 activations mem-estimate train --micro-batch "$layer_batch" --dropout --flash off "$@" gpt.json)
    gpt "$layer_width" "$layer_heads" 2
    two=$(rank0 activations mem-estimate train --micro-batch "$layer_batch" --dropout --flash off "$@" gpt.json)
    awk -v a="$three" -v b="$two" 'BEGIN { print (a - b) / 1048576 }'
}

# Korthikanti et al. 2022, table 2 for the models of table 3, tensor parallel size 8
while read -r name width heads batch none tp tpsp selective selectivesp full; do
    got="$(layer "$width" "$heads" "$batch") \
$(layer "$width" "$heads" "$batch" --tp 8) \
$(layer "$width" "$heads" "$batch" --tp 8 --sequence-parallel) \
$(layer "$width" "$heads" "$batch" --tp 8 --recompute selective) \
$(layer "$width" "$heads" "$batch" --tp 8 --recompute selective --sequence-parallel) \
$(layer "$width" "$heads" "$batch" --recompute full)"
    ok "a layer of the $name model keeps what Korthikanti et al. say" \
        test "$got" = "$none $tp $tpsp $selective $selectivesp $full"
done << 'END'
22B 6144 64 4 6752 1264 844 624 204 96
175B 12288 96 1 2736 552 342 312 102 48
530B 20480 128 1 3920 840 490 520 170 80
1T 25600 160 1 4900 1050 612.5 650 212.5 100
END

# states ZERO DP - bytes of model states per parameter and rank, of mixed-precision Adam
states() {
    mem-estimate train --weights bf16 --zero "$1" --dp "$2" --json gpt.json |
        sed 's/.*"params":\([0-9]*\).*"weights":\([0-9]*\),"gradients":\([0-9]*\),"optimizer":\([0-9]*\).*/\1 \2 \3 \4/' |
        awk '{ printf "%.4f\n", ($2 + $3 + $4) / $1 }'
}
gpt 1600 25 48
for n in 4 16 64 256; do
    ok "ZeRO over $n ranks keeps 16, 4+12/N, 2+14/N and 16/N bytes a parameter" \
        test "$(states 0 $n) $(states 1 $n) $(states 2 $n) $(states 3 $n)" = \
        "$(awk -v n=$n 'BEGIN { printf "%.4f %.4f %.4f %.4f", 16, 4 + 12 / n, 2 + 14 / n, 16 / n }')"
done

# per_parameter OPTION... - bytes of the optimizer per parameter
per_parameter() {
    mem-estimate train "$@" --json gpt.json |
        sed 's/.*"params":\([0-9]*\).*"optimizer":\([0-9]*\).*/\1 \2/' | awk '{ printf "%.3f\n", $2 / $1 }'
}
while IFS='|' read -r options want; do
    # shellcheck disable=SC2086 # options are words
    ok "the optimizer of '$options' keeps $want bytes a parameter" \
        test "$(per_parameter $options)" = "$want"
done << 'END'
--weights=bf16|12.000
--weights=f32|8.000
--weights=bf16 --master=none|4.000
--weights=f32 --optimizer=sgd|0.000
--weights=bf16 --optimizer=sgd|4.000
--weights=f32 --optimizer=momentum|4.000
--weights=f32 --optimizer=lion|4.000
--weights=f32 --optimizer=adam8bit|2.004
--weights=bf16 --optimizer=adam8bit|6.004
END

# same_bytes OPERAND... - the weights of each rank are tp-shard's, to the byte
same_bytes() {
    tp-shard plan "$@" --json | sed -n 's/.*"type":"part".*"bytes":\([0-9]*\).*/\1/p' | sort -n > want
    mem-estimate infer "$@" --json | tr '{' '\n' |
        sed -n 's/.*"count":\([0-9]*\),"weights":\([0-9]*\).*/\1 \2/p' |
        awk '{ for (i = 0; i < $1; i++) print $2 }' | sort -n > got
    diff want got
}
for mesh in tp=1 tp=2 tp=3,pp=2 tp=6,pp=4; do
    ok "each rank of $mesh has the bytes that tp-shard writes" same_bytes --mesh "$mesh" "$bard"
done
tp-shard split --tp 3 --pad-vocab 1000 "$bard" bard.pad
ok "padding of the vocabulary among them" same_bytes bard.pad
ok "on other ranks than it was cut for as well" same_bytes --tp 2 bard.pad
tp-shard split --tp 2 "$bard" bard.tp2
run mem-estimate infer --json bard.tp2
out_has '"mesh":{"tp":2,' "a checkpoint's mesh is kept"
out_has '"params":2828736' "a checkpoint is counted as its model"

# caches: published sizes per token and sequence
cat > llama.json << 'END'
{"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":4096,"intermediate_size":14336,"vocab_size":128256,
"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"max_position_embeddings":8192,"torch_dtype":"bfloat16"}
END
ok "8 KV heads of 128 on 32 layers keep 131,072 bytes a token" \
    test "$(rank0 kv_cache mem-estimate infer --seq 1 llama.json)" = 131072
ok "4,096 tokens of it are half a GiB" \
    test "$(rank0 kv_cache mem-estimate infer --seq 4096 llama.json)" = 536870912
ok "128 sequences keep 128 times as much" \
    test "$(rank0 kv_cache mem-estimate infer --seq 1024 --micro-batch 128 llama.json)" = 17179869184
ok "tp above the KV heads replicates them" \
    test "$(rank0 kv_cache mem-estimate infer --seq 1 --tp 16 llama.json)" = 16384
ok "a block of the cache is taken whole" \
    test "$(rank0 kv_cache mem-estimate infer --seq 17 --kv-block 16 llama.json)" = $((131072 * 32))
ok "the cache may have a type of its own" \
    test "$(rank0 kv_cache mem-estimate infer --seq 1 --kv-dtype fp8 llama.json)" = 65536
sed 's/"llama"/"mistral"/; s/8192/32768/; s/}/,"sliding_window":4096}/' llama.json > mistral.json
ok "a window bounds the cache" \
    test "$(rank0 kv_cache mem-estimate infer --seq 16384 mistral.json)" = 536870912
ok "logits of a whole prompt are counted in training" \
    test "$(rank0 logits mem-estimate train --seq 1024 llama.json)" = $((1024 * 128256 * 6))
ok "a fused loss keeps none" \
    test "$(rank0 logits mem-estimate train --seq 1024 --fused-loss llama.json)" = 0

# when most is there
# moment OPTION... - total, what the categories come to, what of it is apart, and when
moment() {
    mem-estimate train --runtime 0 --fragmentation 0 --weights bf16 --json "$@" llama.json > json
    echo "$(rank0 total shown) $(for key in weights gradients optimizer activations logits working comm; do
        printf '%s + ' "$(rank0 $key shown)"
    done)0 $(rank0 apart shown) $(sed 's/.*"moment":"\([a-z]*\)".*/\1/' json)"
}
shown() { cat json; }
while read -r want options; do
    # shellcheck disable=SC2046,SC2086 # words are wanted
    set -- $(moment $options | sed 's/ + /+/g')
    ok "most is there in the $want with $options" test "$4" = "$want"
    ok "and the total is all but what is apart" test $(($2)) -eq $(($1 + $3))
done << 'END'
backward --seq 128
backward --seq 8192 --fused-loss
loss --seq 8192 --recompute full --eager --micro-batches 4
loss --seq 8192 --recompute full --eager --zero 3 --dp 64
backward --seq 8192 --recompute none --flash off --micro-batches 2
END
at_loss="--seq 8192 --recompute full --eager"
# shellcheck disable=SC2086 # words are wanted
{
    ok "at the loss of one micro-batch there are no gradients" near "$(moment $at_loss --zero 3 --dp 64 --micro-batches 2 | cut -d' ' -f1)" \
        "$(moment $at_loss --zero 3 --dp 64 | cut -d' ' -f1) + 2 * 8030261248 / 64" 64
    ok "unless replicas sum them in buffers" test "$(moment $at_loss --dp 2 --zero 1 | cut -d' ' -f1)" = \
        "$(moment $at_loss --dp 2 --zero 1 --micro-batches 2 | cut -d' ' -f1)"
}
run mem-estimate train --weights bf16 --seq 8192 --recompute full --zero 3 --dp 64 --eager --explain llama.json
out_has "peak at" "and says when the sum of its columns is largest"
out_has "peak           at the loss: weights" "and --explain what is"
ok "a loss of its own has three copies of f32, and of bf16 logits those" \
    test "$(rank0 logits mem-estimate train --eager --seq 1024 llama.json)" = $((1024 * 128256 * 14))
ok "f32 logits are one of four" \
    test "$(rank0 logits mem-estimate train --eager --weights f32 --seq 1024 llama.json)" = $((1024 * 128256 * 16))
# every second product of a layer: q, v, gate and down, with attention's result and sums, and the layer's input
products() { rank0 activations mem-estimate train --weights bf16 --seq 1024 --recompute products --pp 32 --micro-batches "$1" llama.json; }
ok "--recompute products keeps every second result" test $(($(products 32) - $(products 31))) = \
    $((1024 * (2 * (4 * 4096 + 1024 + 14336) + 4 * 32)))
sed 's/}/,"hidden_act":"relu"}/' llama.json > relu.json
ok "ReLU is gone back through by its result" test \
    $(($(rank0 activations mem-estimate train --eager --seq 1024 llama.json) - $(rank0 activations mem-estimate train --eager --seq 1024 relu.json))) = \
    $((32 * 1024 * 14336 * 2))
# A kernel of SwiGLU keeps gate, up and their product, whichever activation it is; operations by themselves the
# activation's result as well
ok "fused SwiGLU keeps three values as wide as ffn" test "$(rank0 activations mem-estimate train --seq 1024 llama.json)" = \
    "$(rank0 activations mem-estimate train --seq 1024 relu.json)"

# quantized weights: 32 layers of 218,103,808 elements in matrices
matrices=$((32 * 218103808))
rest=$((8030261248 - matrices))
ok "q4_0 takes 18 bytes for 32 elements of every matrix" \
    test "$(rank0 weights mem-estimate infer --weights q4_0 llama.json)" = \
    $(((matrices + 2 * 128256 * 4096) / 32 * 18 + 65 * 4096 * 2))
ok "nf4 takes 36 bytes for 64 elements of the layers' matrices" \
    test "$(rank0 weights mem-estimate infer --weights nf4 llama.json)" = $((matrices / 64 * 36 + rest * 2))

# quantized weights of a config alone: what files hold, on each rank
same_weights() {
    for tp in 1 2 4; do
        mem-estimate infer --seq 32 --json --tp $tp "$1" 2>&1
        mem-estimate infer --seq 32 --json --tp $tp --framework tp-run --threads 1 "$1" 2>&1
    done | tr '{' '\n' | sed -n 's/.*"count":\([0-9]*\),"weights":\([0-9]*\).*/\1 \2/p' > by-files
    for tp in 1 2 4; do
        mem-estimate infer --seq 32 --json --tp $tp "$1/config.json" 2>&1
        mem-estimate infer --seq 32 --json --tp $tp --framework tp-run --threads 1 "$1/config.json" 2>&1
    done | tr '{' '\n' | sed -n 's/.*"count":\([0-9]*\),"weights":\([0-9]*\).*/\1 \2/p' > by-config
    test -s by-files && cmp by-files by-config
}
for kind in quantized/awq quantized/gptq quantized/fp8 quantized/ct-fp8 quantized/ct-w4a16 quantized/int8 \
    quantized/mxfp4 packed/ct-fp8-one packed/ct-int8 packed/ct-w8a16 packed/gptq-whole; do
    ok "$kind: a config alone counts what its files hold" same_weights "$data/$kind"
done
# llama QUANTIZATION [KEY...] - llama.json with that quantization_config, as quantized.json
quantized() { sed "s/}\$/, \"quantization_config\": $1}/" llama.json > quantized.json; }
kept=$(((2 * 128256 + 65) * 4096 * 2))
quantized '{"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": true}'
ok "AWQ takes 4 bits, and a scale of 16 and a zero of 4 bits for 128 of them" \
    test "$(rank0 weights mem-estimate infer quantized.json)" = $((matrices / 2 + matrices / 128 * 5 / 2 + kept))
out_of_plan() { mem-estimate plan --gpu a100-80g --gpus 1 --top 1 --json "$@" | sed -n 's/.*"memory":\([0-9]*\).*/\1/p' | head -n 1; }
ok "and a plan counts the same" test "$(out_of_plan quantized.json)" -lt "$(out_of_plan --weights fp8 llama.json)"
run mem-estimate infer quantized.json
out_has "assumed: weights as awq has them, others bf16" "which is said"
ok "another type may be asked for" test "$(rank0 weights mem-estimate infer --weights bf16 quantized.json)" = $((8030261248 * 2))
ok "training has them with adapters alone" test "$(rank0 weights mem-estimate train quantized.json)" = $((8030261248 * 2))
ok "else not" test "$(rank0 weights mem-estimate train --lora 8 quantized.json)" -lt 6000000000
quantized '{"quant_method": "fp8", "weight_block_size": [128, 128]}'
ok "FP8 takes a byte, and 4 for a block" \
    test "$(rank0 weights mem-estimate infer --weights fp8 quantized.json)" = $((matrices + matrices / 16384 * 4 + kept))
quantized '{"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.0.mlp.down_proj", "lm_head"]}'
ok "FBGEMM's a byte, and 4 for a row; modules that the config names stay" \
    test "$(rank0 weights mem-estimate infer quantized.json)" = \
    $((kept + 32 * 41943040 * 2 + 95 * 58720256 + 58720256 * 2 + (31 * (2 * 14336 + 4096) + 2 * 14336) * 4))
quantized '{"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["re:.*lm_head", "re:model.layers.[0-9]*.self_attn"], "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": true}}}}'
ok "what regular expressions name, too" \
    test "$(rank0 weights mem-estimate infer quantized.json)" = \
    $((kept + 32 * 41943040 * 2 + 96 * (58720256 / 2 + 58720256 / 128 * 2 + 16)))
quantized '{"quant_method": "bitsandbytes", "load_in_4bit": true}'
ok "bitsandbytes in 4 bits is nf4" \
    test "$(rank0 weights mem-estimate infer quantized.json)" = "$(rank0 weights mem-estimate infer --weights nf4 llama.json)"
quantized '{"quant_method": "quip"}'
run mem-estimate infer quantized.json
status_is 3 "a method that nobody here reads is refused"
# a config without a type: bf16, in every command
grep -v dtype "$bard/config.json" > untyped.json
for mode in infer train; do
    run mem-estimate $mode --tp 1 untyped.json
    out_has "weights bf16" "$mode: a config without a type has bf16"
    out_has "weights bf16 (the config names no type)" "which is said"
done
run mem-estimate plan --gpu a100-80g --gpus 1 untyped.json
out_has "weights bf16 (the config names no type)" "as a plan does"
ok "weights in fp8 leave the cache at bf16" \
    test "$(rank0 kv_cache mem-estimate infer --seq 64 --weights fp8 untyped.json)" = "$(rank0 kv_cache mem-estimate infer --seq 64 untyped.json)"

# verdicts: what leaves little is tight
total=$(mem-estimate infer --seq 2048 --json llama.json | sed -n 's/.*"peak":\([0-9]*\).*/\1/p')
run mem-estimate infer --seq 2048 --gpu-mem $((total + total / 50)) llama.json
status_is 0 "what fits tightly fits"
out_has "tight in " "and says so"
run mem-estimate infer --seq 2048 --gpu-mem $((total + total / 50)) --margin 1 --json llama.json
out_has '"fits":true,"tight":false' "less than the margin that is given"
run mem-estimate infer --seq 2048 --gpu-mem $((total - 1)) llama.json
status_is 1 "one byte too little is not tight"
run mem-estimate infer --seq 2048 --gpu a100-80g llama.json
n=$(sed -n 's/^at most \([0-9]*\) requests of 2048 tokens$/\1/p' out)
ok "the requests that fit are counted" mem-estimate infer --seq 2048 --gpu a100-80g --micro-batch "$n" llama.json
run mem-estimate infer --seq 2048 --gpu a100-80g --micro-batch $((n + 1)) llama.json
status_is 1 "and are the most"
ok "a batch of inference is all requests, whatever the stages" \
    test "$(rank0 kv_cache mem-estimate infer --seq 64 --pp 2 --micro-batch 16 llama.json)" = $((16 * 64 * 65536))
run mem-estimate infer --seq 100000 llama.json
status_is 0 "more tokens than the model has positions are counted"
err_has "--seq 100000: the model has 8192 positions" "with a warning"

# what tp-run allocates: weights and cache of each rank to the byte, with the activations within 3 %
ids=$(seq -s, 1 47)
sizes='s/.*"weights":\([0-9]*\).*"kv_cache":\([0-9]*\).*"total":\([0-9]*\).*/\1 \2 \3/p'
f32="--compute f32 --kv-dtype f32 --runtime 0 --fragmentation 0"
for model in "$bard" "$data/models/stories260K/hf" "$data/models/babyllama-tok105/hf" \
    "$data/models/olmoe"; do
    for layout in "1 1" "2 1" "3 1" "4 1" "1 2" "2 2" "1 3" "3 2"; do
        # shellcheck disable=SC2086 # words are wanted
        set -- $layout
        # so small a model is its borders
        [ "$2" -gt 1 ] && [ "$model" = "$data/models/olmoe" ] && continue
        tp-run generate --report-memory --tp "$1" --pp "$2" --ids "$ids" --max-tokens 1 "$model" 2>&1 > text |
            sed -n 's/.*"weights":\([0-9]*\).*"kv_cache":\([0-9]*\),"activations":\([0-9]*\).*/\1 \2 \3/p' |
            awk '{ print $1, $2, $1 + $2 + $3 }' > allocated
        # shellcheck disable=SC2086 # words are wanted
        mem-estimate infer --tp "$1" --pp "$2" --seq 48 --micro-batches 1 $f32 --json "$model" |
            tr '{' '\n' | sed -n "$sizes" > predicted
        ok "${model#"$top_srcdir/"}: $(($1 * $2)) ranks have what is predicted at tp $1, pp $2" \
            awk -v ranks=$(($1 * $2)) 'FILENAME == "predicted" { total[$1, $2] = $3; next }
                (($1, $2) in total) && ($3 - total[$1, $2]) ^ 2 <= (0.03 * $3) ^ 2 { right++ }
                END { exit right != ranks }' predicted allocated
    done
done

# with the threads of its ranks, everything to the byte: every model, on one layout or another
bytes='s/.*"count":\([0-9]*\),"weights":\([0-9]*\).*"total":\([0-9]*\).*/\1 \2 \3/p'
foretold() { # MODEL LAYOUT TYPES TP-RUN'S MEM-ESTIMATE'S
    # shellcheck disable=SC2086 # words are wanted
    tp-run generate -q --threads 2 --report-memory $2 $3 ${4-} --ids 3,4,5,6,7,8,9,10,11 --max-tokens 1 "$1" 2> report > text ||
        return 0
    sed -n 's/.*"rank":[0-9]*,"weights":\([0-9]*\).*"total":\([0-9]*\).*/\1 \2/p' report | sort > allocated
    # shellcheck disable=SC2086 # words are wanted
    mem-estimate infer --framework=tp-run --threads 2 $2 $3 ${5-} --seq 10 --prefill-tokens 9 --micro-batches 1 \
        --runtime 0 --fragmentation 0 --json "$1" | tr '{' '\n' | sed -n "$bytes" |
        awk '{ for (i = 0; i < $1; i++) print $2, $3 }' | sort > predicted
    models=$((models + 1))
    cmp -s predicted allocated && return
    wrong=$((wrong + 1))
    echo "# $1 $2: $(tr '\n' ' ' < predicted)but $(tr '\n' ' ' < allocated)"
}
models=0 wrong=0
turn=0
for dir in "$data"/models/*/; do
    turn=$((turn + 1))
    compute=f32
    case $((turn % 5)) in
    0) layout='' compute=bf16 ;;
    1) layout="--tp 2" compute=bf16 ;;
    2) layout="--pp 2" ;;
    3) layout="--sp 2" compute=bf16 ;;
    4) layout="--tp 2 --pp 2" ;;
    esac
    foretold "$dir" "$layout" "--compute $compute --kv-dtype f32"
done
ok "tp-run has what is foretold, of $models models" test $wrong = 0
ok "which are most of them" test $models -gt 100
wrong=0
foretold "$data/models/mixtral" "--ep 2" "--compute f32 --kv-dtype f32"
foretold "$data/models/deepseek-v2" "--ep 2 --sp 2" "--compute f32 --kv-dtype f32"
foretold "$bard" "--tp 2 --pp 2 --sp 2" "--compute bf16" "--kv-dtype bf16" "--kv-dtype bf16"
foretold "$bard" "--sp 2 --dp 2" "--compute f32 --kv-dtype int8"
foretold "$bard" "--tp 3" "--compute f32 --kv-dtype f32 --weights int8"
ok "also with experts apart, replicas, and other types" test $wrong = 0
run mem-estimate infer --threads 2 llama.json
status_is 2 "--threads without --framework=tp-run is refused"
err_has "--threads 2: are of --framework=tp-run" "and says so"
run mem-estimate train --choices 8 "$data/encoders/bert-choice"
status_is 2 "so is --choices"

# what is trained
ok "LoRA trains r (in + out) elements of each named matrix" \
    test "$(rank0 gradients mem-estimate train --lora 8:q_proj,v_proj llama.json)" = \
    $((32 * 8 * (4096 + 4096 + 4096 + 1024) * 2))
ok "what is frozen has no gradient" \
    test "$(rank0 gradients mem-estimate train --freeze embed_tokens llama.json)" = \
    $((2 * (8030261248 - 128256 * 4096)))
run mem-estimate train --lora 8:query llama.json
status_is 2 "a name that no tensor has is a usage error"
err_has "--lora: llama has no matrix called 'query'" "and is named"
run mem-estimate train --lora 8:input_layernorm llama.json
err_has "--lora: llama has no matrix called 'input_layernorm'" "so is a vector, which LoRA does not adapt"

# parameters, and buffers that files hold: shapes and published counts of public models; a count that is only rounded agrees within
# 1.5 % (Falcon 40B is named after a rounder number, 3.3 % below what transformers counts in its shape)
tab=$(printf '\t')
while IFS="$tab" read -r name exact published config; do
    printf '%s\n' "$config" > shape.json
    got=$(mem-estimate infer --seq 64 --json shape.json | sed 's/.*"params":\([0-9]*\).*"buffers":\([0-9]*\).*/\1 + \2/')
    within=1.5
    [ "$exact" = exact ] && within=0
    ok "$name has $published parameters ($exact)" awk -v a=$((${got:-0})) -v b="$published" -v w="$within" \
        'BEGIN { d = a - b; if (d < 0) d = -d; exit !(d * 100 <= w * b) }'
done < "$data/configs.tsv"
# what transformers' num_parameters leaves out
for one in lfm2-8b-a1b:8339929856:704 bart-base:139420416:50265 minimax-m2:228689748992:15872; do
    shape "${one%%:*}"
    run mem-estimate infer --seq 64 "${one%%:*}.json"
    out_has ", $(echo "${one#*:}" | sed 's/:/ parameters and /') values of buffers, weights" "buffers of ${one%%:*} are counted apart"
done

# does it fit?
run mem-estimate infer --gpu h100-80g llama.json
status_is 0 "what fits is status 0"
run mem-estimate train --gpu h100-80g llama.json
status_is 1 "what does not fit is status 1"
out_has "does not fit in 79.10 GiB" "and is said"
out_has "ranks: --tp" "with the fewest ranks that do"
run mem-estimate infer --gpu "NVIDIA A100-SXM4-80GB" llama.json
status_is 0 "nvidia-smi's name of a device will do"
run mem-estimate infer --gpu h10-80g llama.json
status_is 2 "an unknown device is a usage error"
err_has "nearest is 'h100-80g'" "the nearest is named"
run mem-estimate infer --tp 64 --pp 40 llama.json
status_is 1 "an impossible layout is status 1"
out_has "tp 64" "one reason is told"
out_has "pp 40" "and the other"
run mem-estimate infer --gpu-mem -3 llama.json
status_is 2 "a negative size is refused"
run mem-estimate train --micro-batch 2000000000 --seq 4000000000 --flash off llama.json
status_is 2 "numbers that overflow are refused"
err_has "the bytes of this layout overflow" "and that is said"
run mem-estimate infer --global-batch 6 --micro-batch 4 llama.json
status_is 2 "batches that contradict one another are refused"

sed 's/"num_attention_heads":32/"num_attention_heads":2147483648/' llama.json > heads.json
run mem-estimate infer heads.json
status_is 3 "more heads than can be dealt are refused"
err_has "heads.json: 'heads' is 2147483648, more than can be sharded" "by name"

# solving agrees with estimating
n=$(mem-estimate solve --for seq --gpu-mem 16500MiB llama.json | sed 's/--seq //')
ok "the largest context fits" mem-estimate infer --seq "$n" --gpu-mem 16500MiB llama.json
run mem-estimate infer --seq $((n + 1)) --gpu-mem 16500MiB llama.json
status_is 1 "one token more does not"
run mem-estimate solve --for gpus --mode train --gpu a100-80g --json llama.json
n=$(json out value)
ok "the fewest ranks are less than for AdamW in f32 and more than one" test "$n" -gt 1 -a "$n" -lt 8
awk -F '\t' '$1 == "mixtral-8x7b" { print $4 }' "$data/configs.tsv" > mixtral.json
for how in "infer --weights bf16 --gpu l4 --seq 32768 --micro-batch 4" "train --weights bf16 --gpu h100-80g --seq 8192"; do
    # shellcheck disable=SC2086 # words are wanted
    set -- $how
    # shellcheck disable=SC2046,SC2086 # likewise
    ok "the layout that solve tells fits ($how)" mem-estimate $how \
        $(mem-estimate solve --for gpus --mode $how mixtral.json | sed 's/.*: //') mixtral.json
    n=$(mem-estimate solve --for gpus --mode $how --json mixtral.json | sed 's/.*"value":\([0-9]*\).*/\1/')
    m=$((n - 1)) fit=0
    for tp in $(seq $m); do
        [ $((32 % tp)) = 0 ] || continue # heads
        for ep in $(seq $m); do
            for pp in $(seq $m); do
                [ $((m % (tp * ep * pp))) = 0 ] || continue
                rest=--sp
                [ "$1" = train ] || [ $((32768 % (m / tp / ep / pp))) = 0 ] || continue # tokens
                [ "$1" = train ] && rest=--dp
                # shellcheck disable=SC2046,SC2086 # likewise
                mem-estimate $how --tp $tp --ep $ep --pp $pp $rest $((m / tp / ep / pp)) \
                    $([ "$1" = train ] && [ $((m / tp / pp)) -gt 1 ] && echo --zero 3) mixtral.json > out 2> err && fit=1
            done
        done
    done
    ok "and no even layout of one rank less does ($1)" test "$n" -gt 1 -a $fit = 0
done
run mem-estimate solve --for batch --gpu-mem 1GiB llama.json
status_is 1 "when nothing fits the status is 1"

# an index: its files, or its config where they are not there
mkdir lone
cp "$bard/config.json" lone
printf '{"weight_map":{"model.norm.weight":"a.safetensors"}}' > lone/model.safetensors.index.json
run mem-estimate infer lone/model.safetensors.index.json
out_has "llama, 2828736 parameters" "an index whose files are not there stands for its config"
run mem-estimate infer lone
out_has "llama, 2828736 parameters" "so does a directory that has nothing else"
printf broken > lone/a.safetensors
run mem-estimate infer lone/model.safetensors.index.json
status_is 3 "files that are there are read"
err_has "lone/a.safetensors: " "and a broken one is told"
printf '{"weight_map":' > lone/model.safetensors.index.json
run mem-estimate infer lone/model.safetensors.index.json
status_is 3 "so is a broken index"
printf '{"weight_map":{"model.norm.weight":"../a.safetensors"}}' > lone/model.safetensors.index.json
run mem-estimate infer lone/model.safetensors.index.json
status_is 3 "and one that leaves its directory"

printf '{"weight_map":{"model.norm.weight":7}}' > lone/model.safetensors.index.json
run mem-estimate infer lone/model.safetensors.index.json
status_is 3 "and one that names no file"
mkdir -p named.index.json
run mem-estimate infer named.index.json
status_is 3 "a directory may be called like an index"
err_is "mem-estimate: named.index.json/config.json: missing" "and is one"
run mem-estimate infer "$bard/model.safetensors"
status_is 3 "weights alone say nothing of a model"
err_is "mem-estimate: $bard/model.safetensors: a single file has no config.json to go by" "as is told"
# a config without a type of numbers: that of the weights
mkdir typeless
cp "$bard/model.safetensors" typeless
grep -v '"torch_dtype"\|"dtype"' "$bard/config.json" > typeless/config.json
run mem-estimate infer --json typeless
out_has '"weights":5657472,' "a config without a type has that of its weights"
rm typeless/model.safetensors
run mem-estimate infer --json typeless
out_has '"weights":5657472,' "and bf16 without weights"

run mem-estimate infer no-such.json
status_is 3 "a missing model is bad input"
printf '{"model_type":"lama"}' > bad.json
run mem-estimate infer bad.json
status_is 3 "an unknown model type is bad input"
err_has "shardutils-family(5)" "and how to describe one is named"
run mem-estimate infer --gpu A100-80GB "$bard"
out_has "fits in 79.15 GiB" "a GPU's name may have its memory in GB"
for name in a100-80gb a100-80g; do
    mem-estimate plan --gpu $name --gpus 2 "$bard" > "plan.$name"
done
ok "which is not the PCIe card" cmp plan.a100-80gb plan.a100-80g
run mem-estimate gpus
status_is 0 "the devices are listed"
ok "there are at least 20" test "$(wc -l < out)" -gt 20
mem-estimate train --tp 2 --pp 2 --plot out.svg --gpu t4 llama.json > /dev/null 2>&1
if [ -f out.svg ]; then
    ok "the picture names its categories" grep -q '<svg' out.svg
else
    skip "the picture names its categories" "no cairo"
fi

# replicas that say nothing of their framework exchange what PyTorch's DDP does at once: 25 MiB
run mem-estimate train --dp 2 --json "$bard"
out_has '"comm":26214400,' "replicas have a bucket of gradients"
# of 4 experts' 196608 parameters a rank has half, in 2 copies; of the other 58176 there are 4
cat > experts.json << 'END'
{"model_type":"mixtral","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
"intermediate_size":128,"vocab_size":256,"num_local_experts":4,"num_experts_per_tok":2,"max_position_embeddings":128}
END
run mem-estimate train --ep 2 --dp 2 --zero 1 --json experts.json
out_has "\"optimizer\":$((12 * (196608 / 2 / 2 + 58176 / 4)))," "ZeRO cuts an expert over its own copies alone"
# whether it fits is not known without a device
run mem-estimate infer --json "$bard"
status_is 0 "without a device nothing is refused"
out_has '"gpu_memory":null,"fits":null,' "nor is said to fit"
run mem-estimate infer --json --gpu-mem 40G "$bard"
out_has "\"gpu_memory\":$((40 << 30)),\"fits\":true," "with one it is"
run mem-estimate infer --json --gpu-mem 1M "$bard"
status_is 1 "a device of 1 MiB is too small"
out_has '"gpu_memory":1048576,"fits":false,' "which is said"

# states of fixed size: by the formula as by the engine that is planned, and of a sequence whatever its length
kv() { mem-estimate infer --json "$@" | sed 's/.*"kv_cache":\([0-9]*\).*/\1/'; }
for model in qwen3-next lfm2 mamba2 kimi-linear; do
    ok "states of $model" test "$(kv --framework tp-run --seq 32 "$data/models/$model")" = "$(kv --framework tp-run --seq 32 --threads 1 "$data/models/$model")"
done
shape mamba2-2.7b
# 64 layers of 80 heads x 64 x 128, and 3 rows of 5,376 columns before the convolution
ok "a model of states alone needs as much for any text" test "$(kv --seq 16 mamba2-2.7b.json) $(kv --seq 16k mamba2-2.7b.json)" = \
    "$((64 * 4 * (80 * 64 * 128 + 3 * 5376))) $((64 * 4 * (80 * 64 * 128 + 3 * 5376)))"
ok "for each of them" test "$(kv --seq 16 --micro-batch 3 mamba2-2.7b.json)" = $((3 * 64 * 4 * (80 * 64 * 128 + 3 * 5376)))
done_testing

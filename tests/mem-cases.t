#!/bin/sh
# mem-cases.t - what others have published or measured, and what optimizers, offloading and groups
# must come to by hand
. "${top_srcdir:?}/tests/lib.sh"

# infer or train KEY OPTION... - bytes of a category, of rank 0's kind
infer() {
    infer_key=$1
    shift
    rank0 "$infer_key" mem-estimate infer "$@"
}
train() {
    train_key=$1
    shift
    rank0 "$train_key" mem-estimate train "$@"
}
params() { mem-estimate infer --seq 64 --json "$1" | sed 's/.*"params":\([0-9]*\).*/\1/'; }

# about PERCENT WANT GOT - GOT is that near WANT
about() { near "$2" "$3" "$1 / 100 * ($2)"; }
GiB='* 1073741824'

# gpt WIDTH HEADS LAYERS VOCAB - a GPT of that shape, as gpt.json
gpt() {
    printf '{"model_type":"gpt2","architectures":["GPT2LMHeadModel"],"n_embd":%d,"n_head":%d,"n_layer":%d,"vocab_size":%d,' "$@" > gpt.json
    printf '"n_positions":2048,"torch_dtype":"float16"}\n' >> gpt.json
}

for name in bert-base-cased bloom bloom-7b1 llama-7b llama-2-7b llama-2-13b llama-2-70b llama-3-8b llama-3-70b llama-3.1-405b opt-13b; do
    shape "$name"
done
sed 's/"max_position_embeddings": *[0-9]*/"max_position_embeddings":262144/' llama-3-8b.json > long.json

# accelerate's guide to estimate-memory: BERT base cased.  It adds two integer buffers of 512 positions,
# 8 KiB, to 413.17 MiB; its line of f16 has the largest of what Adam keeps, 826.36 MB, and no sum.
run mem-estimate infer bert-base-cased.json
tr -s ' ' < out | sed 's/ MiB//g' > rows
while read -r row; do
    ok "accelerate's table has the row of BERT: $row" grep -qF -e "$row" rows
done << 'ROWS'
f32 84.95 413.17 1.61 GiB
bf16 42.47 206.59 1.61 GiB
int8 21.24 103.29 -
int4 10.62 51.65 -
ROWS

# Korthikanti et al. 2022, appendix B: the outputs of a stage are not kept, which for 35 stages of a
# 530B model spares 2 s b h p = 2.73 GiB of what the first of them would hold.  What it does hold is
# equation 2 for each of its three layers, 35 times.
gpt 20480 128 105 51200
ok "35 stages of 530B keep no outputs, which would be 2.73 GiB more" test \
    "$(train activations --tp 8 --pp 35 --micro-batches 35 --flash off --dropout --sequence-parallel gpt.json)" = \
    $((35 * 3 * 2048 * 20480 * (34 + 5 * 128 * 2048 / 20480) / 8))

# Narayanan et al. 2021: P = 12 l h^2 (1 + 13/12h + (V + s)/12lh) is 174.6 billion for GPT-3.
gpt 12288 96 96 51200
ok "GPT-3 has 174.6 billion parameters in Megatron" near 174.6e9 "$(params gpt.json)" 0.05e9
# There training 300 billion tokens takes 34 days of 1,024 A100s at 140 TFLOPS, each product done four
# times (forwards, again, and twice back): 1T with 450 billion tokens 84 days of 3,072 at 163.
days() {
    mem-estimate plan --mode train --gpu a100-80g --gpus 1024 --global-batch 1024 --seq 2048 --json --top 1 gpt.json |
        sed -n 's/.*"tokens_per_second":\([0-9.e+]*\),"mfu":\([0-9.e-]*\).*/\1 \2/p' |
        awk -v tokens="$1" -v gpus="$2" -v rate="$3" '{ flops = $2 * 1024 * 312e12 / $1
            print flops * 4 / 3 * tokens / (gpus * rate * 86400) }'
}
ok "GPT-3 takes 34 days of 1,024 devices at 140 TFLOPS" near 34 "$(days 300e9 1024 140e12)" 0.5
gpt 25600 160 128 51200
ok "1T takes 84 days of 3,072 devices at 163 TFLOPS" near 84 "$(days 450e9 3072 163e12)" 1

# llm-analysis, examples/megatron-lm: 175B over tp 8, pp 12, dp 16, micro-batch 4.  It counts products of
# layers and the embedding, no positions, biases and norms; gradients of the layers alone; and 16 bytes of
# optimizer where we have 12, for f32 gradients are among them.
gpt 12288 96 96 50272
layout="--tp 8 --pp 12 --dp 16 --micro-batch 4 --sequence-parallel --recompute full gpt.json"
left_out=$((2048 * 12288 + 8 * (12288 * 7 / 8 + 6 * 12288)))
# shellcheck disable=SC2086 # words are wanted
{
    ok "llm-analysis' 175B has 3,778,314,240 bytes of weights a rank" test \
        "$(train weights $layout)" = $((3778314240 + 2 * left_out))
    ok "and 3,623,878,656 of gradients" test \
        "$(train gradients $layout)" = $((3623878656 + 2 * (50272 * 12288 / 8 + left_out)))
    ok "and 28,991,029,248 of optimizer, f32 gradients among them" test \
        "$(train optimizer $layout)" = $((28991029248 / 16 * 12 + 12 * (50272 * 12288 / 8 + left_out)))
    ok "and keeps 2,415,919,104 of 12 micro-batches' inputs" test \
        $((($(train activations --micro-batches 12 $layout) - $(train activations --micro-batches 1 $layout)) / 11 * 12)) = 2415919104
}

# the same, examples/llama: 512 + 32 tokens of LLaMA 7B; its weights are of another model, 2.4 % smaller
ok "544 tokens of LLaMA 7B are 285,212,672 bytes of cache" test \
    "$(infer kv_cache --weights f16 --seq 544 llama-7b.json)" = 285212672
ok "and its weights 13,476,831,232" test "$(infer weights --weights f16 --seq 544 llama-7b.json)" = 13476831232

# Kwon et al. 2023: a token of OPT 13B takes 800 KiB, 2,048 of them 1.6 GB
ok "a token of OPT 13B is 800 KiB of cache" test "$(infer kv_cache --weights f16 --seq 1 opt-13b.json)" = 819200
ok "2,048 are 1.6 GB" near 1.6e9 "$(infer kv_cache --weights f16 --seq 2048 opt-13b.json)" 0.08e9

# Bekman, Machine Learning Engineering (training/performance): one sequence of 32,768 tokens of Llama 3 8B.
# Its layer of 7 GiB was measured where every operation runs alone: 28 copies of the hidden state, of which
# 17 must be read again; the rest are what SwiGLU's activation makes (3.5), copies in f32 in two norms (4), and of
# k, v, q and the result of attention in other orders (3.5).  With them the sum is its 31 GiB.
hidden=$((32768 * 4096 * 2))
one=$(train activations --weights bf16 --seq 32768 --recompute full --pp 32 --micro-batches 1 long.json)
stage=$(train activations --weights bf16 --seq 32768 --recompute full --pp 32 --micro-batches 32 long.json)
many=$(train activations --weights bf16 --seq 32768 --recompute full long.json)
logits=$(train logits --weights bf16 --seq 32768 long.json)
ok "a layer's input of 32,768 tokens is 0.25 GiB" test $hidden = $((1 << 28))
ok "the inputs of all layers are 8" near 8 "($stage - $one) / 31 * 32 / 1073741824" 0.001
ok "17 of 28 copies are read again in a layer" near 17 "($one - $hidden) / $hidden" 0.05
eager=$(train activations --eager --weights bf16 --seq 32768 --recompute full --pp 32 --micro-batches 1 long.json)
ok "24.5 where its operations run alone, which makes those of norms" near 24.5 "($eager - $hidden) / $hidden" 0.05
ok "logits in f32 are 15.7" near 15.7 "$logits * 4 / 6 / 1073741824" 0.05
ok "that makes 31 GiB, copies included" near 31 "($many + 11 * $hidden + $logits * 4 / 6) / 1073741824" 0.35

# BigScience, train/tr11-176B-ml: BLOOM's 70 blocks of 4.59 GiB and 6.75 of the rest, 328.34 in all, for
# a vocabulary of 250,680 and 2,048 positions that it has not; the published index has 352,494,542,848 bytes.
ok "a block of BLOOM is 4.59 GiB" near 4.59 \
    "$(rank0 weights mem-estimate train --weights bf16 --pp 70 bloom.json) / 1073741824 - 250880 * 14336 * 2 / 1073741824" 0.005
ok "BLOOM is 352,494,542,848 bytes" test "$(infer weights --weights bf16 --seq 64 bloom.json)" = 352494542848
ok "which is 328.34 GiB" about 0.05 "328.34 $GiB" 352494542848

# torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, tables 1 to 6: H100 with 96 GB, 8,192 tokens a sequence
# unless said otherwise, f32 weights in bf16 products under FSDP; all compiled but the first line of tables 1 and 3, from
# table 2 on with Float8, table 4 also and 5 and 6 always with AsyncTP.  Memory is the most over all ranks that the
# allocator has reserved, without the device's context.  A pipeline takes as many micro-batches as it has stages, 16
# where each rank has two.  One constant was fitted, to tables 1 to 3: what is reserved besides (lib/estimate/habits.c).
# (The last line's ranks are those of the one before but for the exchange of keys and values, which is not told.)
titan() { train total --framework torchtitan --runtime 0 --weights f32 --compute bf16 --zero 3 "$@"; }
sed 's/"max_position_embeddings": *[0-9]*/"max_position_embeddings":262144/' llama-3.1-405b.json > long-405b.json
while read -r table within gib what; do
    # shellcheck disable=SC2086 # words are wanted
    ok "torchtitan's table $table takes $gib GiB: $what" about "$within" "$gib $GiB" "$(titan $what)"
done << 'TABLES'
1 6 82.4 --dp 8 --micro-batch 2 --seq 8192 --recompute products --eager llama-3-8b.json
1 2 77.0 --dp 8 --micro-batch 2 --seq 8192 --recompute products llama-3-8b.json
2 2 83.9 --dp 8 --sp 1 --seq 32768 --recompute full long.json
2 2 84.2 --dp 4 --sp 2 --seq 65536 --recompute full long.json
2 2 84.0 --dp 2 --sp 4 --seq 131072 --recompute full long.json
2 2 84.5 --dp 1 --sp 8 --seq 262144 --recompute full long.json
3 2 67.0 --dp 128 --micro-batch 2 --seq 8192 --recompute products --eager llama-3-8b.json
3 9 62.0 --dp 128 --micro-batch 2 --seq 8192 --recompute products llama-3-8b.json
4 15 71.9 --tp 8 --dp 32 --micro-batch 16 --seq 8192 --recompute full llama-3-70b.json
4 15 67.6 --tp 8 --dp 32 --micro-batch 16 --seq 8192 --recompute full llama-3-70b.json
5 15 82.5 --tp 8 --pp 8 --dp 8 --micro-batch 4 --micro-batches 8 --seq 8192 --recompute full llama-3.1-405b.json
5 15 72.7 --tp 8 --pp 8 --dp 8 --micro-batch 2 --micro-batches 16 --schedule interleaved --model-chunks 2 --seq 8192 --recompute full llama-3.1-405b.json
6 15 75.3 --tp 8 --pp 8 --dp 8 --sp 1 --micro-batches 8 --seq 32768 --recompute full long-405b.json
6 15 75.9 --tp 8 --pp 8 --dp 4 --sp 2 --micro-batches 8 --seq 65536 --recompute full long-405b.json
6 15 77.1 --tp 8 --pp 8 --dp 2 --sp 4 --micro-batches 8 --seq 131072 --recompute full long-405b.json
6 15 84.9 --tp 8 --pp 8 --dp 1 --sp 8 --micro-batches 8 --seq 262144 --recompute full long-405b.json
TABLES
# The 15.4 GiB between tables 1 and 3 (15.0 compiled) are weights, gradients and optimizer states, as if all were there.
fsdp() { train "$1" --framework torchtitan --runtime 0 --weights f32 --compute bf16 --zero 3 --dp "$2" --micro-batch 2 --seq 8192 --recompute products llama-3-8b.json; }
ok "the difference is in what is sharded" about 10 "15.4 $GiB" \
    "$(for key in weights gradients optimizer; do echo "+ $(fsdp $key 8) - $(fsdp $key 128)"; done | tr '\n' ' ')"

# 405B in FP8 (fbgemm_fp8) at tp 8 takes 57.75 GiB a rank (published): 16 heads of keys, since Meta's files have each twice;
# products of attention, of the first and of the last layer are in bf16; vLLM's table of cosines and sines is among them
list=$(awk 'BEGIN { for (i = 0; i < 126; i++) { for (k = 1; k < 5; k++) printf "\"model.layers.%d.self_attn.%s_proj\",", i, substr("qkvo", k, 1)
    if (i % 125 == 0) printf "\"model.layers.%d.mlp.gate_proj\",\"model.layers.%d.mlp.up_proj\",\"model.layers.%d.mlp.down_proj\",", i, i, i } }')
sed 's/"num_key_value_heads": *8/"num_key_value_heads":16/; s/}$/,"quantization_config":{"quant_method":"fbgemm_fp8","modules_to_not_convert":['"$list"'"lm_head"]}}/' \
    llama-3.1-405b.json > fbgemm.json
run mem-estimate infer --framework vllm --tp 8 --seq 4096 fbgemm.json
out_has "tp0 x8   57.75        0.50" "405B in FP8 has 57.75 GiB a rank in vLLM, and activations in bf16"
ok "of which the table of angles is 32 MiB" test $(($(mem-estimate infer --framework vllm --tp 8 --seq 4096 --json fbgemm.json | sed 's/.*"weights":\([0-9]*\).*/\1/') -
    $(mem-estimate infer --tp 8 --seq 4096 --json fbgemm.json | sed 's/.*"weights":\([0-9]*\).*/\1/'))) = $((131072 * 128 * 2))

# Llama 3's own layout of 405B (Llama team 2024, section 3.3): tp 8, pp 16, dp 128, 16 sequences of 8,192 tokens a replica, bf16, nothing
# recomputed, and a layer fewer on the first and the last stage; it was trained so on devices with 80 GB
run mem-estimate train --tp 8 --pp 16 --dp 128 --micro-batches 16 --zero 1 --seq 8192 --sequence-parallel --weights bf16 --gpu h100-80g \
    --stages 7,8,8,8,8,8,8,8,8,8,8,8,8,8,8,7 llama-3.1-405b.json
status_is 0 "Llama 3's own layout of 405B fits 80 GB"

# for rank0: the JSON of the last run
cat_out() { cat out; }

# Frameworks by hand, 405B over 8 x 8 x 8 ranks: of ZeRO-3 in a pipeline a stage's weights are gathered in bf16, and
# its gradients whole in f32; DeepSpeed has no such thing
stage="--weights bf16 --zero 3 --tp 8 --pp 8 --dp 8 --seq 8192 --recompute full --json llama-3.1-405b.json"
key() { sed 's/.*"'"$1"'":"\{0,1\}\([a-z0-9-]*\).*/\1/'; }
# shellcheck disable=SC2086 # words are wanted
{
    run mem-estimate train $stage
    ok "ZeRO-3 in a pipeline is counted as torchtitan has it" test "$(key framework < out)" = torchtitan
    ok "a stage's gradients are whole and in f32" test "$(rank0 gradients cat_out)" = $((2 * 8 * $(rank0 weights cat_out)))
    run mem-estimate train --framework megatron $stage
    ok "Megatron's are, too" test "$(rank0 gradients cat_out)" = $((2 * 8 * $(rank0 weights cat_out)))
    run mem-estimate train --framework deepspeed $stage
    status_is 1 "DeepSpeed's pipelines have no ZeRO-3"
    out_has "--framework deepspeed: its pipelines have no ZeRO-2 or 3" "which is told"
}
one="--weights bf16 --seq 512 --micro-batches 1 --json llama-3-8b.json"
# Megatron's guide (dist_optimizer.md): bf16 weights and f32 gradients, 18 bytes a parameter, 6 + 12/d sharded
# DeepSpeed's estimators (runtime/zero/stage_1_and_2.py): 2 bytes of weights, and 18 of which each rank has a part
# shellcheck disable=SC2086 # words are wanted
for d in 1 8; do
    zero=$((d > 1))
    mem-estimate train --framework megatron --zero $zero --dp $d $one > out
    ok "Megatron's distributed optimizer over $d ranks has 6 + 12/d bytes" near "6 + 12 / $d" \
        "($(rank0 weights cat_out) + $(rank0 gradients cat_out) + $(rank0 optimizer cat_out)) / 8030261248" 1e-6
    [ $d = 1 ] && continue
    mem-estimate train --framework deepspeed --zero 2 --dp $d $one > out
    ok "DeepSpeed's ZeRO-2 over $d ranks 2 + 18/d" near "2 + 18 / $d" \
        "($(rank0 weights cat_out) + $(rank0 gradients cat_out) + $(rank0 optimizer cat_out)) / 8030261248" 1e-6
    ok "and two buckets of 5e8 elements" test "$(rank0 comm cat_out)" = 2000000000
    mem-estimate train --framework deepspeed --zero 3 --dp $d $one > out
    ok "its ZeRO-3 keeps a billion gathered elements, and a bucket" test "$(rank0 comm cat_out)" = 3000000000
done

# PEFT's README, one A100 with 80 GB, f32, batches of 8 short texts (about 64 tokens, the answers fewer): what
# PyTorch says it has allotted, so without the device's context.  Before its version 2 gradients stayed, as zeros,
# from step to step, as they stay between micro-batches.
t5() {
    printf '{"model_type":"t5","architectures":["T5ForConditionalGeneration"],"d_model":%d,"d_ff":%d,"d_kv":64,"num_heads":%d,' "$2" "$3" "$4" > "$1.json"
    printf '"num_layers":24,"num_decoder_layers":24,"vocab_size":%d,"feed_forward_proj":"gated-gelu","tie_word_embeddings":false,' "$5" >> "$1.json"
    printf '"n_positions":512,"torch_dtype":"float32"}\n' >> "$1.json"
}
t5 t0-3b 2048 5120 32 32128
t5 mt0-xxl 4096 10240 64 250112
while read -r name want within lora; do
    ok "$name takes PEFT's $want GiB${lora:+ with LoRA}" about "$within" "$want $GiB" \
        "$(train total --weights f32 --seq 64 --micro-batch 8 --micro-batches 2 --runtime 0 ${lora:+--lora "$lora"} "$name.json")"
done << 'ROWS'
t0-3b 47.14 3
t0-3b 14.4 5 8:q,v
mt0-xxl 56 3 8:q,v
bloom-7b1 32 10 8:query_key_value
ROWS
# The same with DeepSpeed, whose ZeRO-3 leaves weights on the host: it keeps up to a billion of them that it has
# fetched (stage3_max_live_parameters), which are no part of the estimate.
while read -r name want within lora; do
    ok "$name takes PEFT's $want GiB with LoRA and DeepSpeed's offloading" about "$within" "$want $GiB" \
        "4e9 + $(train total --eager --weights f32 --seq 64 --micro-batch 8 --runtime 0 --zero 3 --offload params --lora "$lora" "$name.json")"
done << 'ROWS'
t0-3b 9.8 5 8:q,v
mt0-xxl 22 10 8:q,v
bloom-7b1 18.1 10 8:query_key_value
ROWS
for name in mt0-xxl bloom-7b1; do
    run mem-estimate train --weights f32 --seq 64 --micro-batch 8 --gpu a100-80g "$name.json"
    status_is 1 "without it $name does not fit"
done

# The rest is reckoned here.  Llama 3 8B has 32 layers of q, o (4096 x 4096), k, v (1024 x 4096), gate, up
# (14336 x 4096) and down (4096 x 14336), two tables of 128256 x 4096, and 65 norms of 4096.
layer=$((2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096))
table=$((128256 * 4096))
norms=$((65 * 4096))
all=$((32 * layer + 2 * table + norms))
rows_columns=$((32 * (2 * 8192 + 2 * 5120 + 3 * 18432) + 2 * 132352))
states() { train optimizer --weights bf16 --seq 512 "$@" llama-3-8b.json; }

# Chen et al. 2023, algorithm 2: Lion keeps one momentum, in f32 beside an f32 master copy of bf16 weights
ok "Lion keeps 4 bytes and a master copy of 4" test "$(states --optimizer lion)" = $((8 * all))
ok "and without master copies 2" test "$(states --optimizer lion --master none)" = $((2 * all))
# Dettmers et al. 2022: two states of a byte, and for each 2,048 elements an f32 scale of either
ok "Adam in 8 bits keeps 2 bytes and 8 for every 2,048" \
    test "$(states --optimizer adam8bit)" = $((4 * all + 2 * all + all / 2048 * 8))
# Shazeer and Stern 2018, algorithm 4: of a matrix the sums of its rows and of its columns, of a vector all
ok "Adafactor keeps a row and a column of each matrix" \
    test "$(states --optimizer adafactor)" = $((4 * all + 4 * (rows_columns + norms)))
ok "of each rank's part of it" test "$(states --optimizer adafactor --master none --tp 2)" = \
    $((4 * (32 * (2 * (2048 + 4096) + 2 * (512 + 4096) + 3 * (7168 + 4096)) + 2 * (64128 + 4096) + norms)))
# Jordan et al. 2024: Muon's momentum for the layers' matrices, Adam for tables and vectors
ok "Muon keeps 4 bytes of layers' matrices and 8 of the rest" test "$(states --optimizer muon)" = \
    $((4 * all + 4 * 32 * layer + 8 * (2 * table + norms)))
ok "half of that without master copies" test "$(states --optimizer muon --master none)" = \
    $((2 * 32 * layer + 4 * (2 * table + norms)))
for optimizer in lion adafactor muon adam8bit; do
    ok "ZeRO deals the states of $optimizer" near "$(states --optimizer $optimizer) / 4" \
        "$(states --optimizer $optimizer --zero 1 --dp 4)" 4
done

# split OPTION... - bytes of weights, gradients, optimizer, communication and on the host
split() {
    mem-estimate train --weights bf16 --seq 512 "$@" --json llama-3-8b.json | sed \
        's/.*"ranks":\[{[^}]*},[^}]*"weights":\([0-9]*\),"gradients":\([0-9]*\),"optimizer":\([0-9]*\).*"comm":\([0-9]*\).*"host":\([0-9]*\).*/\1 \2 \3 \4 \5/'
}
# Ren et al. 2021: gradients (2 bytes) and f32 master copies and moments (12) go to the host.  Parameters
# follow (Rajbhandari et al. 2021) unit by unit: DeepSpeed's estimators count 4 bytes of the largest.
ok "offloading the optimizer leaves the weights" test "$(split --offload optimizer)" = \
    "$((2 * all)) 0 0 0 $((14 * all))"
ok "ZeRO-2 deals what is offloaded" test "$(split --offload optimizer --zero 2 --dp 4)" = \
    "$((2 * all)) 0 0 $((25 << 20)) $((14 * all / 4))"
ok "ZeRO-3 the weights too, and gathers the largest unit" test "$(split --offload optimizer --zero 3 --dp 4)" = \
    "$((2 * all / 4)) 0 0 $((4 * table)) $((14 * all / 4))"
ok "offloaded parameters leave the largest unit" test "$(split --offload params --zero 3 --dp 4)" = \
    "0 0 0 $((4 * table)) $((16 * all / 4))"
ok "on a single device as well" test "$(split --offload params --zero 3)" = "0 0 0 $((4 * table)) $((16 * all))"
# a recomputed layer saves its input: 8192 tokens x 4096 x 2 bytes, of which the device keeps two
kept() {
    mem-estimate train --weights bf16 --seq 8192 --recompute full "$@" --json llama-3-8b.json |
        sed 's/.*"ranks":\[{[^}]*},[^}]*"activations":\([0-9]*\).*"host":\([0-9]*\).*/\1 \2/'
}
# shellcheck disable=SC2046 # words are wanted
set -- $(kept) $(kept --offload activations) $(kept --offload optimizer,activations)
ok "activations of 32 layers go to the host, but for two buffers" test "$(($1 - $3)) $4" = "$((30 << 26)) $((32 << 26))"
ok "with the optimizer's" test "$5 $6" = "$3 $(((32 << 26) + 14 * all))"
ok "in a pipeline those in flight" test "$(mem-estimate train --weights bf16 --seq 8192 --recompute full --pp 2 --micro-batches 4 \
    --offload activations --json llama-3-8b.json | grep -o '"host":[0-9]*' | cut -d: -f2 | tr '\n' ' ')" = "$((2 * 16 << 26)) $((16 << 26)) "
while read -r framework options said; do
    # shellcheck disable=SC2086 # words are wanted
    # shellcheck disable=SC2046 # words are wanted
    run mem-estimate train --framework "$framework" --seq 512 $(printf '%s' "$options" | tr , ' ' | tr + ,) llama-3-8b.json
    status_is 1 "$framework has no $options"
    out_has "--framework $framework: $said" "and that is said"
done << 'END'
tp-run --offload,activations --offload optimizer is what it has
tp-run --offload,optimizer+activations --offload optimizer is what it has
tp-run --offload,params,--zero,3 --offload optimizer is what it has
megatron --offload,activations --offload optimizer is what it has
torchtitan --offload,activations --offload params is what it has
deepspeed --offload,activations --recompute full has the activations that it offloads
END

# Zhao et al. 2023, section 3.2.2: FSDP's hybrid sharding deals everything over F ranks, which are replicated
while read -r stage w g s comm; do
    ok "stage $stage in groups of 4 of 16 ranks deals over 4" test "$(split --zero "$stage" --dp 16 --hsdp 4)" = \
        "$((2 * all / w)) $((2 * all / g)) $((12 * all / s)) $comm 0"
done << ROWS
1 1 1 4 $((25 << 20))
2 1 4 4 $((25 << 20))
3 4 4 4 $((4 * table))
ROWS
ok "ranks that share a sequence are among them" test "$(split --zero 3 --dp 4 --sp 4 --hsdp 8)" = \
    "$((2 * all / 8)) $((2 * all / 8)) $((12 * all / 8)) $((4 * table)) 0"
ok "a group of all ranks is no group" test "$(split --zero 3 --dp 16 --hsdp 16)" = "$(split --zero 3 --dp 16)"
ok "groups offload their share" test "$(split --zero 3 --dp 16 --hsdp 4 --offload optimizer)" = \
    "$((2 * all / 4)) 0 0 $((4 * table)) $((14 * all / 4))"
run mem-estimate train --zero 3 --dp 16 --hsdp 3 llama-3-8b.json
status_is 1 "groups that do not make up all ranks are impossible"
out_has "--hsdp 3: does not divide the 16 ranks" "and that is said"
run mem-estimate train --dp 16 --hsdp 4 llama-3-8b.json
status_is 1 "so are groups that deal nothing"
# 256 sequences of 4,096 tokens of Llama 3 70B on eight A100 with 80 GB: they are served, with 8,192 tokens of prompts in a step
# (vLLM's max_num_batched_tokens); the prompts of all of them at once would not fit
run mem-estimate infer --tp 8 --weights bf16 --micro-batch 256 --seq 4096 --gpu a100-80g llama-3-70b.json
status_is 0 "256 sequences of 70B fit on eight A100"
out_has "8192 tokens of prompts at once" "of which some tokens are taken in at once, which is told"
run mem-estimate infer --tp 8 --weights bf16 --micro-batch 256 --seq 4096 --prefill-tokens 1048576 --gpu a100-80g llama-3-70b.json
status_is 1 "all of their prompts at once do not"
step() { infer activations --weights bf16 --tp 8 --micro-batch "$1" --seq 4096 --prefill-tokens "$2" llama-3-70b.json; }
ok "a step has those tokens and one of each other sequence" about 2 "$(step 256 8192)" "$(step 1 4096) / 4096 * (8192 + 255)"
ok "a batch that is no more than those is taken in at once" test "$(step 2 8192)" = "$(step 2 100000)"
ok "tp-run takes 512 tokens, in f32" test "$(infer activations --framework tp-run --seq 4096 llama-3-8b.json)" = \
    "$(infer activations --compute f32 --seq 512 llama-3-8b.json)"
ok "an encoder takes whole sequences" test "$(infer activations --micro-batch 4 --seq 512 --prefill-tokens 100 bert-base-cased.json)" = \
    "$(infer activations --micro-batch 1 --seq 512 bert-base-cased.json)"

# a cache of 4,096 tokens in f16: 2 x layers x KV heads x head's size x 2 bytes each
while read -r name layers width; do
    ok "$name keeps $layers x $width numbers a token" \
        test "$(infer kv_cache --seq 4096 --kv-dtype f16 "$name.json")" = $((2 * layers * width * 2 * 4096))
done << 'CACHES'
llama-2-7b 32 4096
llama-2-13b 40 5120
llama-2-70b 80 1024
llama-3-8b 32 1024
llama-3-70b 80 1024
llama-3.1-405b 126 1024
CACHES
# in GiB, as they are quoted: 2.0, 3.125, 1.25, 0.5, 1.25 and 1.97
ok "which for Llama-2 7B is 2 GiB" test "$(infer kv_cache --seq 4096 --kv-dtype f16 llama-2-7b.json)" = 2147483648
ok "and for 405B 1.97 GiB" about 0.1 "1.97 $GiB" "$(infer kv_cache --seq 4096 --kv-dtype f16 llama-3.1-405b.json)"
done_testing

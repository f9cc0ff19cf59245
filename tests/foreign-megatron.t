#!/bin/sh
# foreign-megatron - Megatron's checkpoints of Qwen, DeepSeek and experts, and the moments and masters of its optimizers, are read
. "${top_srcdir:?}/tests/lib.sh"
gzip -dc "$data/megatron.tar.gz" | tar xf - || exit 99
cd megatron || exit 99
cat > llama.json << 'END'
{ "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "intermediate_size": 24, "vocab_size": 32, "rms_norm_eps": 1e-05 }
END
sed 's/Llama/Qwen2/; s/llama/qwen2/' llama.json > qwen2.json
sed 's/Llama/Qwen3/; s/llama/qwen3/; s/"hidden_size"/"head_dim": 4, "hidden_size"/' llama.json > qwen3.json

sed 's/Llama/Mixtral/; s/llama/mixtral/; s/"hidden_size"/"num_local_experts": 4, "num_experts_per_tok": 2, &/' llama.json > mixtral.json
moe='"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24'
sed "s/Qwen2/Qwen2Moe/; s/qwen2/qwen2_moe/; s/\"hidden_size\"/$moe, \"shared_expert_intermediate_size\": 12, &/" qwen2.json > qwen2_moe.json
sed "s/Qwen3/Qwen3Moe/; s/qwen3/qwen3_moe/; s/\"hidden_size\"/$moe, &/" qwen3.json > qwen3_moe.json
cat > deepseek_v3.json << 'END'
{ "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 4, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 4,
  "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "intermediate_size": 24, "moe_intermediate_size": 24,
  "vocab_size": 32, "rms_norm_eps": 1e-05, "n_routed_experts": 4, "num_experts_per_tok": 2 }
END

while read -r dir truth config; do
    run tp-shard merge --config $config.json $dir/$truth merged
    status_is 0 "$dir, $truth: is merged"
    run tp-shard diff merged $dir/truth.safetensors
    status_is 0 "and every tensor is where the fused ones have it"
    rm -rf merged
done << 'END'
qwen2 legacy qwen2
qwen3 torch_dist qwen3
crossed legacy mixtral
shared torch_dist qwen2_moe
qwen3_moe legacy qwen3_moe
mla legacy deepseek_v3
mla torch_dist deepseek_v3
END
run tp-shard merge qwen2/legacy made
status_is 0 "without a config biases make it Qwen2"
run tp-shard diff made qwen2/truth.safetensors
status_is 0 "of the same tensors"
ok "and so says the config" grep -q '"model_type":"qwen2"' made/config.json
run tp-shard merge --config llama.json qwen2/legacy made2
status_is 3 "which are no Llama's"
err_has "tensor decoder.layers.0.self_attention.linear_qkv.bias: family llama does not know it in a checkpoint of megatron" "and are named"
first=qwen2/legacy/mp_rank_00/model_optim_rng.pt
cp $first kept
# put WORD SKIP BYTES: over what follows SKIP bytes after WORD in the first rank's pickle
put() {
    at=$(grep -abo "$1" $first | head -n 1 | cut -d : -f 1)
    # shellcheck disable=SC2059 # octal
    printf "$3" | dd of=$first bs=1 seek=$((at + ${#1} + $2)) conv=notrunc status=none
}
put qk_layernorm 2 '\210'
run tp-shard merge qwen2/legacy made2
err_is "tp-shard: $first: args say qk_layernorm = 1, of which no config.json is made; --config of tp-shard names the model's config.json" \
    "biases and norms together are no Qwen"
cp kept $first

# moments, whatever keeps them
while read -r form config; do
    run tp-shard split --tp 2 --moments --config $config.json $form cut
    status_is 0 "$form: moments are split with their weights"
    run tp-shard diff cut ${form%/*}/truth.safetensors
    status_is 0 "and fused and cut like them"
    rm -rf cut
done << 'END'
adam/legacy llama
sharded/legacy llama
sharded/torch_dist llama
experts/legacy mixtral
spread/legacy mixtral
END

# and the f32 weights that an optimizer keeps of 16-bit ones
for form in adam/legacy sharded/legacy sharded/torch_dist; do
    run tp-shard merge -q --masters --config llama.json $form cut
    status_is 0 "$form: masters stand for weights"
    run tp-shard diff cut ${form%/*}/masters.safetensors
    status_is 0 "each for its own"
    rm -rf cut
done
run tp-shard show --moments --masters sharded/torch_dist
status_is 0 "with moments, too"
out_has "27 tensors" "which are as many"
run tp-shard merge --masters --config qwen2.json qwen2/legacy cut
status_is 3 "without an optimizer there are none"
err_is "tp-shard: qwen2/legacy: no masters of an optimizer" "and that is said"

# ranks of experts
mv crossed/legacy/mp_rank_01_001 crossed/legacy/mp_rank_01_000
run tp-shard show crossed/legacy
status_is 3 "experts of a rank that is missing"
err_is "tp-shard: crossed/legacy: no directory of expert rank 1 of stage 0" "are told"
mv crossed/legacy/mp_rank_01_000 crossed/legacy/mp_rank_00_001
run tp-shard show crossed/legacy
err_is "tp-shard: crossed/legacy: no directory of tensor rank 1 of stage 0" "as is what lies with them"
mv crossed/legacy/mp_rank_00_001 crossed/legacy/mp_rank_01_001
grep -abo expert_tensor_parallel_size crossed/legacy/mp_rank_00_000/model_optim_rng.pt | cut -d : -f 1 > at.out
printf '\004' | dd of=crossed/legacy/mp_rank_00_000/model_optim_rng.pt bs=1 seek=$(($(cat at.out) + 30)) conv=notrunc status=none
run tp-shard show crossed/legacy
err_is "tp-shard: crossed/legacy/mp_rank_00_000/model_optim_rng.pt: experts are cut over 4 ranks and the rest over 2, which leaves \
several files one name" "experts that are cut further than the rest are refused"

run tp-shard show --moments buckets/torch_dist
status_is 3 "buckets of the optimizer's ranks"
err_has "optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(torch.bfloat16, torch.bfloat16).bucket_idx_0.param: a bucket of the \
optimizer's ranks (Megatron's dp_reshardable), which is not read; fully_reshardable is" "are refused by name"
run tp-shard merge -q --config llama.json buckets/torch_dist plain
status_is 0 "but weights are read without"
rm sharded/legacy/mp_rank_01/distrib_optim.pt
cp adam/legacy/mp_rank_01/model_optim_rng.pt sharded/legacy/mp_rank_01/distrib_optim.pt
run tp-shard show --moments sharded/legacy
status_is 3 "a file that has no vectors"
err_has "tp-shard: sharded/legacy/mp_rank_01/distrib_optim.pt: " "is named"
done_testing

#!/bin/sh
# experts.t - mixtures of experts: dealt over ep, counted, and what their lines may say
. "${top_srcdir:?}/tests/lib.sh"

# cut over ep, tp and pp, merged byte for byte
for model in mixtral qwen2-moe qwen3-moe olmoe olmoe-clip deepseek-v2 deepseek-v2-greedy deepseek-v3; do
    for mesh in ep=2 tp=2,ep=3 tp=3,ep=2,pp=2; do
        tp-shard split -q --mesh=$mesh "$data/models/$model" cut && tp-shard merge -q cut back
        ok "$model cut over $mesh is put together byte for byte" \
            cmp "$data/models/$model/model.safetensors" back/model.safetensors
        rm -rf cut back
    done
done
tp-shard split -q --mesh=ep=2 "$data/models/mixtral" cut
for rank in 0 1; do
    tp-shard show cut/*ep$rank*.safetensors > out
    ok "rank $rank holds its own experts" \
        test "$(grep -c 'experts\.[0-9]' out)" = $(((3 - rank) * 3 * 2))
    ok "and the router whole" test "$(grep -c 'gate.weight .*\[5, 24\]' out)" = 2
done

tp-shard show "$data/models/deepseek-v3" > out
ok "the layer that predicts one more token is carried" grep -q 'layers\.3\.enorm.* carried' out

# figures: fields FILE KEY - the values of KEY, one a line
fields() {
    grep -o "\"$2\":[0-9]*" "$1" | cut -d : -f 2
}
configs=$data/configs
cat > mixtral.json << 'END'
{ "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "hidden_size": 4096,
  "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
  "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
  "vocab_size": 32000, "max_position_embeddings": 32768, "dtype": "bfloat16" }
END
mem-estimate infer --json mixtral.json > out
ok "Mixtral 8x7B has 46,702,792,704 parameters" test "$(fields out params)" = 46702792704
ok "of which a token uses 12,879,925,248" test "$(fields out active_params)" = 12879925248
# 32 layers x 8 experts x 3 x 14336 x 4096, half of them on each of two ranks, in 2 bytes
mem-estimate infer --json --mesh ep=2 mixtral.json > two
all=$(fields out weights | head -n 1)
ok "over ep its experts are halved, the rest is not" \
    test "$(fields two weights | head -n 1)" = $((all - 32 * 4 * 3 * 14336 * 4096 * 2))
# a token is at two experts, wherever they are: ranks of ep send one another theirs
mem-estimate train --json mixtral.json > out
mem-estimate train --json --mesh ep=8 mixtral.json > eight
ok "over ep as many rows are kept as without" \
    test "$(fields eight activations | head -n 1)" = "$(fields out activations | head -n 1)"
cat > v3.json << 'END'
{ "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168,
  "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
  "intermediate_size": 18432, "moe_intermediate_size": 2048, "vocab_size": 129280,
  "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
  "first_k_dense_replace": 3, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
  "qk_rope_head_dim": 64, "v_head_dim": 128, "max_position_embeddings": 163840,
  "dtype": "bfloat16" }
END
for tp in 1 8; do
    mem-estimate infer --json --tp $tp --seq 4096 v3.json > out
    # (512 + 64) numbers of 2 bytes a token and layer, whole on every rank
    ok "DeepSeek-V3's cache is its latent, at tp $tp" \
        test "$(fields out kv_cache | head -n 1)" = $((61 * 576 * 2 * 4096))
done
ok "it has 671,026,419,200 parameters and values of buffers" test $(($(fields out params) + $(fields out buffers))) = 671026419200
ok "of which those are experts' biases" test "$(fields out buffers)" = $((58 * 256))
ok "a token uses 37,552,282,624 parameters" test "$(fields out active_params)" = 37552282624
mem-estimate train --ep 8 --seq 64 --json v3.json > trained
ok "and biases have no gradients" test "$(($(fields out params) - 671026404352))" = 0 -a \
    $((8 * $(fields trained weights | head -n 1) - 8 * $(fields trained gradients | head -n 1))) = $((8 * 2 * 58 * 256))
# gpt-oss' biases of the second product, 2 layers x 4 experts x 64 numbers: with the experts over ep, but whole in tp-run
printf '%s' '{"model_type":"gpt_oss","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,
  "intermediate_size":96,"num_local_experts":4,"vocab_size":40,"dtype":"bfloat16"}' > oss.json
held() { mem-estimate infer --json --seq 64 "$@" oss.json > out; fields out weights | head -n 1; }
ok "gpt-oss' down biases are sharded with the experts" test $(($(held) - $(held --ep 2))) = $((2 * 2 * 2 * (96 * 64 * 3 + 96 * 2 + 64)))
ok "and whole over tp-run's ranks" test $(($(held --framework tp-run) - $(held --framework tp-run --ep 2))) = $((2 * 2 * 2 * (96 * 64 * 3 + 96 * 2)))

# lines that mean nothing
while read -r column line; do
    printf '{ "family": "x", "extends": "mixtral", "forward": { "layer": { "x": "%s" } } }\n' "$line" > x.json
    run mem-estimate infer --family x.json "$data/models/mixtral"
    status_is 3 "refused: $line"
    err_has "x.json:1:$column: " "and told where"
done << 'END'
90 y + experts(f, e = g)
87 y + experts(f, e : g)
84 y + linear(g, gate)
82 y + experts(g, e = g : e)
93 y + experts(f, e = g : experts(f, d = e : d))
91 y + experts(route(f, 9), e = g : e)
91 y + experts(route(f, 0), e = g : e)
91 y + experts(route(f, 2.5), e = g : e)
82 y + experts(route(f, 2, groups = 3), e = g : e)
82 y + experts(route(f, 2, groups = 5, of = 1), e = g : e)
100 y + experts(f, e = g : linear(g, gate))
108 y + experts(f, e = g : linear(e, gate)
74 y + experts(f, e = g : linear(e, gate))
110 y + experts(f, e = g : linear(e, router.w))
74 y + concat(y, g)
74 y + concat(y, softmax(f))
86 y + head_linear(k, router)
96 y + head_linear(q, router.q)
89 y + head_linear(q, router)
END

# deals that no line can follow
while read -r model deal; do
    printf '{ "family": "x", "extends": "%s", "deal": { %s } }\n' "$model" "$deal" > x.json
    run mem-estimate infer --family x.json "$data/models/$(echo "$model" | tr _ -)"
    status_is 3 "refused: $model that deals $deal"
done << 'END'
mixtral "experts": { "over": "tp" }
deepseek_v2 "heads": null, "nope": { "over": "tp" }
deepseek_v2 "heads": null, "turn": { "over": "tp" }
deepseek_v2 "heads": null, "v_dim": { "over": "tp" }
END
done_testing

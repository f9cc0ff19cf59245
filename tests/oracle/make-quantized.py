#!/usr/bin/env python3
"""Write tests/data/quantized/*: tiny Llamas in the layouts of quantized checkpoints.  The values are random
bytes; what counts is which tensors there are and how their shapes follow from the weight's.  Run in the top
directory."""
import json
import os

import torch
from safetensors.torch import save_file

H, HEADS, KV, D, F, V, L = 32, 4, 2, 16, 48, 40, 2
gen = torch.Generator().manual_seed(7)


def rand(shape, dtype):
    if dtype.is_floating_point and dtype.itemsize > 1:
        return torch.randn(shape, generator=gen).to(dtype)
    n = 1
    for s in shape:
        n *= s
    raw = torch.randint(0, 255, (n * dtype.itemsize,), generator=gen, dtype=torch.uint8)
    return raw.view(dtype).reshape(shape)


def fp8(out, inp):
    return {"weight": rand((out, inp), torch.float8_e4m3fn),
            "weight_scale_inv": rand((-(-out // 16), -(-inp // 16)), torch.float32)}


def gptq(out, inp):
    return {"qweight": rand((inp // 8, out), torch.int32), "qzeros": rand((inp // 16, out // 8), torch.int32),
            "scales": rand((inp // 16, out), torch.float16),
            "g_idx": torch.tensor([i // 16 for i in range(inp)], dtype=torch.int32)}


def awq(out, inp):
    return {"qweight": rand((inp, out // 8), torch.int32), "qzeros": rand((inp // 16, out // 8), torch.int32),
            "scales": rand((inp // 16, out), torch.float16)}


def int8(out, inp):
    return {"weight": rand((out, inp), torch.int8), "SCB": rand((out,), torch.float32),
            "weight_format": torch.tensor(0, dtype=torch.uint8)}


KINDS = {
    "fp8": (fp8, {"quant_method": "fp8", "weight_block_size": [16, 16]}),
    "gptq": (gptq, {"quant_method": "gptq", "bits": 4, "group_size": 16, "desc_act": False}),
    "gptq-act-order": (gptq, {"quant_method": "gptq", "bits": 4, "group_size": 16, "desc_act": True}),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": 16}),
    "int8": (int8, {"quant_method": "bitsandbytes", "load_in_8bit": True}),
}


def llama(name, make, dtype, quantization):
    """A Llama whose linear weights are what MAKE gives for their outputs and inputs."""
    t = {"model.embed_tokens.weight": rand((V, H), dtype), "model.norm.weight": rand((H,), dtype),
         "lm_head.weight": rand((V, H), dtype)}
    for layer in range(L):
        p = f"model.layers.{layer}."
        t[p + "input_layernorm.weight"] = rand((H,), dtype)
        t[p + "post_attention_layernorm.weight"] = rand((H,), dtype)
        for lin, out, inp in (("self_attn.q_proj", HEADS * D, H), ("self_attn.k_proj", KV * D, H),
                              ("self_attn.v_proj", KV * D, H), ("self_attn.o_proj", H, HEADS * D),
                              ("mlp.gate_proj", F, H), ("mlp.up_proj", F, H), ("mlp.down_proj", H, F)):
            for suffix, value in make(out, inp).items():
                t[f"{p}{lin}.{suffix}"] = value.contiguous()
    write(name, t, {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": H,
                    "num_hidden_layers": L, "num_attention_heads": HEADS, "num_key_value_heads": KV, "head_dim": D,
                    "intermediate_size": F, "vocab_size": V, "quantization_config": quantization})


def write(name, tensors, config):
    d = f"tests/data/quantized/{name}"
    os.makedirs(d, exist_ok=True)
    save_file(tensors, d + "/model.safetensors", metadata={"format": "pt"})
    with open(d + "/config.json", "w") as f:
        json.dump(config, f, indent=1)
        f.write("\n")


for name, (make, config) in KINDS.items():
    llama(name, make, torch.float16, config)

# gpt-oss: experts in MXFP4 (blocks of 32 with one scale, two values to a byte) and in bf16
E, F = 4, 96
for name, packed in (("mxfp4", True), ("gpt-oss-bf16", False)):
    t = {"model.embed_tokens.weight": rand((V, H), torch.bfloat16), "model.norm.weight": rand((H,), torch.bfloat16),
         "lm_head.weight": rand((V, H), torch.bfloat16)}
    for layer in range(L):
        p = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            t[p + norm + ".weight"] = rand((H,), torch.bfloat16)
        for lin, out, inp in (("q_proj", HEADS * D, H), ("k_proj", KV * D, H), ("v_proj", KV * D, H), ("o_proj", H, HEADS * D)):
            t[f"{p}self_attn.{lin}.weight"] = rand((out, inp), torch.bfloat16)
            t[f"{p}self_attn.{lin}.bias"] = rand((out,), torch.bfloat16)
        t[p + "self_attn.sinks"] = rand((HEADS,), torch.bfloat16)
        t[p + "mlp.router.weight"] = rand((E, H), torch.bfloat16)
        t[p + "mlp.router.bias"] = rand((E,), torch.bfloat16)
        for lin, out, inp in (("gate_up_proj", 2 * F, H), ("down_proj", H, F)):
            t[f"{p}mlp.experts.{lin}_bias"] = rand((E, out), torch.bfloat16)
            if packed:
                t[f"{p}mlp.experts.{lin}_blocks"] = rand((E, out, inp // 32, 16), torch.uint8)
                t[f"{p}mlp.experts.{lin}_scales"] = rand((E, out, inp // 32), torch.uint8)
            else:
                t[f"{p}mlp.experts.{lin}"] = rand((E, inp, out), torch.bfloat16)
    config = {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": H, "num_hidden_layers": L,
              "num_attention_heads": HEADS, "num_key_value_heads": KV, "head_dim": D, "intermediate_size": F,
              "num_local_experts": E, "vocab_size": V, "max_position_embeddings": 64}
    if packed:
        config["quantization_config"] = {"quant_method": "mxfp4"}
    write(name, t, config)

# DeepSeek-V3 in FP8: as in its own sizes, a block lies across the two parts of a head (q_b_proj)
BLOCK, HEADS, NOPE, TURN, V_DIM, LATENT, RANK, F, MOE = 8, 8, 8, 4, 8, 16, 16, 32, 16


def blocks(out, inp):
    return {"weight": rand((out, inp), torch.float8_e4m3fn),
            "weight_scale_inv": rand((-(-out // BLOCK), -(-inp // BLOCK)), torch.float32)}


t = {"model.embed_tokens.weight": rand((V, H), torch.bfloat16), "model.norm.weight": rand((H,), torch.bfloat16),
     "lm_head.weight": rand((V, H), torch.bfloat16)}
for layer in range(2):
    p = f"model.layers.{layer}."
    for norm, size in (("input_layernorm", H), ("post_attention_layernorm", H), ("self_attn.q_a_layernorm", RANK),
                       ("self_attn.kv_a_layernorm", LATENT)):
        t[p + norm + ".weight"] = rand((size,), torch.bfloat16)
    linear = [("self_attn.q_a_proj", RANK, H), ("self_attn.q_b_proj", HEADS * (NOPE + TURN), RANK),
              ("self_attn.kv_a_proj_with_mqa", LATENT + TURN, H),
              ("self_attn.kv_b_proj", HEADS * (NOPE + V_DIM), LATENT), ("self_attn.o_proj", H, HEADS * V_DIM)]
    ffns = [("mlp.", F)] if layer == 0 else [(f"mlp.{part}.", MOE) for part in ("experts.0", "experts.1", "shared_experts")]
    for where, size in ffns:
        linear += [(where + "gate_proj", size, H), (where + "up_proj", size, H), (where + "down_proj", H, size)]
    if layer:
        t[p + "mlp.gate.weight"] = rand((2, H), torch.bfloat16)
        t[p + "mlp.gate.e_score_correction_bias"] = rand((2,), torch.float32)
    for lin, out, inp in linear:
        for suffix, value in blocks(out, inp).items():
            t[f"{p}{lin}.{suffix}"] = value.contiguous()
write("fp8-latent", t, {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": H, "num_hidden_layers": 2,
    "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "q_lora_rank": RANK, "kv_lora_rank": LATENT,
    "qk_nope_head_dim": NOPE, "qk_rope_head_dim": TURN, "v_head_dim": V_DIM, "intermediate_size": F,
    "moe_intermediate_size": MOE, "n_routed_experts": 2, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
    "num_experts_per_tok": 1, "first_k_dense_replace": 1, "vocab_size": V,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [BLOCK, BLOCK]}})

# compressed-tensors: FP8 with a scale for each row, and 4 bits in words of 32 with groups of 16
H, HEADS, KV, D, F = 32, 4, 2, 16, 48


def ct_fp8(out, inp):
    return {"weight": rand((out, inp), torch.float8_e4m3fn), "weight_scale": rand((out, 1), torch.bfloat16)}


def ct_w4a16(out, inp):
    return {"weight_packed": rand((out, inp // 8), torch.int32), "weight_scale": rand((out, inp // 16), torch.bfloat16),
            "weight_zero_point": rand((out // 8, inp // 16), torch.int32),
            "weight_shape": torch.tensor([out, inp], dtype=torch.int64)}


for name, make, form, weights in (
        ("ct-fp8", ct_fp8, "float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel", "group_size": None}),
        ("ct-w4a16", ct_w4a16, "pack-quantized",
         {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 16, "symmetric": False})):
    llama(name, make, torch.bfloat16, {
        "quant_method": "compressed-tensors", "format": form,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}, "ignore": ["lm_head"]})

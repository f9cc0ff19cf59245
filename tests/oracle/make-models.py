#!/usr/bin/env python3
"""make-models.py - write the tiny models of tests/data/models and what they answer

    make-models.py [-o DIR] [NAME...]

Each model is a Hugging Face directory (config.json and safetensors, written by
save_pretrained of PyTorch `transformers`, then brought by hand to the older form of file
that it stands for) with random weights and, computed from that directory by `transformers`
in float64 with eager attention:

    expected.safetensors   input_ids [T] i64; f32 logits [T, vocab] of a causal model;
                           last_hidden_state [T, hidden] with pooler_output [hidden] or
                           logits of an encoder, and again as typed.* under token_type_ids
    expected.json          ids (the same input), token_type_ids, nll (mean over all targets),
                           windowed (nll in windows of `window` tokens), greedy (a prompt,
                           its continuation, the smallest gap between first and second
                           logit on the way), f32_spread (how far `transformers` in float32
                           lies from float64, relative to the largest absolute logit)

Weights come from numpy's RandomState, whose stream is frozen, seeded by the model's name,
so a second run writes the same bytes (transformers 5.23, torch 2.13, safetensors 0.8).
"""
import argparse
import json
import math
import os
import shutil
import sys
import zlib

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, BertConfig, GPT2Config, LlamaConfig, MistralConfig

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)


# --- weights -------------------------------------------------------------------------

def fill(model, name):
    """Random weights large enough that every tensor matters to the result."""
    rng = np.random.RandomState(zlib.crc32(name.encode()))
    with torch.no_grad():
        computed = {id(p) for m in model.modules() if "Sinusoidal" in type(m).__name__ for p in m.parameters()}
        for key, p in model.named_parameters():
            if id(p) in computed:
                continue
            draw = torch.from_numpy(rng.standard_normal(tuple(p.shape)))
            if key.endswith("A_log"):  # decays from fast to slow
                draw = draw - 1.0
            elif "norm" in key.lower() or "ln_" in key:
                draw = draw * 0.25 + (1.0 if key.endswith("weight") else 0.0)
            elif p.dim() == 1:
                draw = draw * 0.25
            elif "embed" in key or "wte" in key or "wpe" in key:
                draw = draw * 0.7
            else:
                conv1d = key.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))
                draw = draw * (1.3 / math.sqrt(p.shape[0 if conv1d else 1]))
            p.copy_(draw.to(p.dtype))
        for key, b in model.named_buffers():
            if key.endswith("e_score_correction_bias"):
                b.copy_(torch.from_numpy(rng.standard_normal(tuple(b.shape)) * 0.25).to(b.dtype))


# --- forms of config.json ------------------------------------------------------------

def read_config(path):
    with open(os.path.join(path, "config.json")) as f:
        return json.load(f)


def write_config(path, config):
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f, indent=2, sort_keys=True)
        f.write("\n")


def old_form(path, drop=(), **extra):
    """config.json as transformers 4 wrote it: torch_dtype, rope_theta, rope_scaling."""
    c = read_config(path)
    c["torch_dtype"] = c.pop("dtype")
    rope = c.pop("rope_parameters", None)
    if rope:
        c["rope_theta"] = rope.pop("rope_theta")
        kind = rope.pop("rope_type")
        c["rope_scaling"] = None if kind == "default" else {"type": kind, **rope}
    c["transformers_version"] = "4.30.2"
    for key in drop:
        c.pop(key)
    c.update(extra)
    write_config(path, c)


def pattern_of(path):
    """Layers as a word, a letter for each, as NVIDIA's files have them."""
    c = read_config(path)
    kinds = c.pop("layers_block_type", None) or c.pop("layer_types")
    c["hybrid_override_pattern"] = "".join({"full_attention": "*", "attention": "*", "moe": "E", "mlp": "-"}.get(k, "M") for k in kinds)
    c["num_hidden_layers"] = len(kinds)
    write_config(path, c)


def kimi_files(path):
    """The sizes of linear attention and its layers, counted from 1, in an object of their own, as Moonshot's files have them."""
    c = read_config(path)
    kinds = c.pop("layer_types")
    c["linear_attn_config"] = {"head_dim": c.pop("linear_head_dim"), "num_heads": c.pop("linear_num_heads"),
                               "short_conv_kernel_size": c.pop("linear_conv_kernel_dim"),
                               "full_attn_layers": [i + 1 for i, k in enumerate(kinds) if k == "full_attention"],
                               "kda_layers": [i + 1 for i, k in enumerate(kinds) if k != "full_attention"]}
    c.pop("mlp_layer_types")
    write_config(path, c)


def weights(path):
    return os.path.join(path, "model.safetensors")


def rewrite(path, edit):
    """Pass the name -> tensor map of PATH's weight file through EDIT."""
    tensors = edit(load_file(weights(path)))
    save_file({k: t.contiguous() for k, t in tensors.items()}, weights(path),
              metadata={"format": "pt"})


# --- the models ----------------------------------------------------------------------

def llama(**kw):
    base = dict(hidden_size=32, intermediate_size=80, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2, vocab_size=112,
                max_position_embeddings=64, rms_norm_eps=1e-5, bos_token_id=1,
                eos_token_id=2)
    base.update(kw)
    return LlamaConfig(**base)


def rope(kind, theta=10000.0, **kw):
    return dict(rope_type=kind, rope_theta=theta, **kw)


def small_rope(parameters, **kw):
    """Four frequencies or more, in a model whose file stays small."""
    return llama(hidden_size=24, intermediate_size=40, head_dim=16, vocab_size=100,
                 rope_parameters=parameters, **kw)


def gpt2(**kw):
    base = dict(n_embd=32, n_head=4, n_layer=2, n_positions=40, vocab_size=104,
                bos_token_id=103, eos_token_id=103)
    base.update(kw)
    return GPT2Config(**base)


def bert(**kw):
    base = dict(hidden_size=32, intermediate_size=76, num_hidden_layers=2,
                num_attention_heads=4, vocab_size=108, max_position_embeddings=48)
    base.update(kw)
    return BertConfig(**base)


def hub_gpt2(path):
    """Names without `transformer.`, with the causal masks that old files carry."""
    def edit(tensors):
        out = {}
        for key, t in tensors.items():
            key = key.removeprefix("transformer.")
            out[key] = t
            if key.endswith("attn.c_attn.weight"):
                block = key.removesuffix("c_attn.weight")
                out[block + "bias"] = torch.tril(torch.ones(1, 1, 40, 40))
                out[block + "masked_bias"] = torch.tensor(-1e4)
        return out
    rewrite(path, edit)
    old_form(path, drop=("add_cross_attention", "n_inner", "pad_token_id",
                         "reorder_and_upcast_attn", "scale_attn_by_inverse_layer_idx",
                         "scale_attn_weights", "tie_word_embeddings", "torch_dtype"),
             n_ctx=40, task_specific_params={"text-generation": {"do_sample": True}})


def stored_twice(pairs):
    def edit(tensors):
        for new, old in pairs.items():
            tensors[new] = tensors[old].clone()
        return tensors
    return lambda path: rewrite(path, edit)


def without_pooler(path):
    """As BertModel(add_pooling_layer=False) is saved."""
    rewrite(path, lambda tensors: {k: t for k, t in tensors.items() if "pooler" not in k})


def hub_bert(path):
    """As the first BERT files on the hub: gamma and beta, heads of pretraining, a buffer."""
    rng = np.random.RandomState(7)

    def edit(tensors):
        out = {}
        for key, t in tensors.items():
            key = key.replace("LayerNorm.weight", "LayerNorm.gamma")
            out[key.replace("LayerNorm.bias", "LayerNorm.beta")] = t
        h = tensors["bert.embeddings.word_embeddings.weight"].shape[1]
        for key, shape in (("bert.pooler.dense.weight", (h, h)),
                           ("bert.pooler.dense.bias", (h,)),
                           ("cls.seq_relationship.weight", (2, h)),
                           ("cls.seq_relationship.bias", (2,))):
            out[key] = torch.from_numpy(rng.standard_normal(shape)).float()
        out["bert.embeddings.position_ids"] = torch.arange(48).reshape(1, 48)
        return out
    rewrite(path, edit)
    old_form(path, drop=("add_cross_attention", "bos_token_id", "eos_token_id",
                         "is_decoder", "tie_word_embeddings", "torch_dtype"),
             position_embedding_type="absolute", gradient_checkpointing=False)


def plain_bert(path):
    old_form(path, drop=("add_cross_attention", "bos_token_id", "eos_token_id",
                         "is_decoder", "tie_word_embeddings"))


SMALL = dict(hidden_size=24, intermediate_size=40, num_hidden_layers=2,
             num_attention_heads=6, vocab_size=64, max_position_embeddings=64,
             bos_token_id=1, eos_token_id=None)


def small(kind, **kw):
    """A tiny model of KIND, with grouped heads and no stop id."""
    return getattr(transformers, kind + "Config")(
        **{**SMALL, "num_key_value_heads": 3, **kw})


def plain(kind, **kw):
    """The same without grouped heads."""
    return getattr(transformers, kind + "Config")(**{**SMALL, **kw})


def odd(kind, **kw):
    """Five heads of 8 columns on one key and value head, 29 in the FFN, a vocabulary of 61."""
    return getattr(transformers, kind + "Config")(
        **{**SMALL, "hidden_size": 20, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 8,
           "intermediate_size": 29, "vocab_size": 61, **kw})


def mamba(kind, **kw):
    """No attention."""
    base = dict(hidden_size=24, num_hidden_layers=2, vocab_size=64, bos_token_id=1, eos_token_id=None, pad_token_id=0)
    return getattr(transformers, kind + "Config")(**{**base, **kw})


SSD = dict(mamba_n_heads=6, mamba_d_state=10, mamba_chunk_size=8)
NEMOTRON = dict(head_dim=8, mamba_num_heads=6, mamba_head_dim=8, n_groups=3, ssm_state_size=10, chunk_size=8, n_routed_experts=4, num_experts_per_tok=2,
                moe_intermediate_size=16, moe_shared_expert_intermediate_size=12,
                layers_block_type=["linear_attention", "moe", "full_attention", "mlp"])
KIMI = dict(kv_lora_rank=20, q_lora_rank=None, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6, moe_intermediate_size=12,
            num_local_experts=4, n_shared_experts=1, linear_head_dim=6, linear_num_heads=6, linear_conv_kernel_dim=3,
            layer_types=["linear_attention", "full_attention"])
DELTA = dict(linear_num_key_heads=3, linear_num_value_heads=6, linear_key_head_dim=8, linear_value_head_dim=10)
NARROW = {"wide": torch.float32}  # of FSMT and XGLM: their masks do not go with float64
GROUPS = dict(moe_intermediate_size=20, n_routed_experts=8, n_group=4, topk_group=2, n_shared_experts=1, first_k_dense_replace=1)
LATENT = dict(kv_lora_rank=20, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6,
              moe_intermediate_size=20, n_routed_experts=8, n_group=4, topk_group=2,
              first_k_dense_replace=1, num_hidden_layers=3, num_key_value_heads=6)


def packed(shape, layer, name):
    """Blocks of MXFP4 and their scales for a tensor of gpt-oss, of SHAPE [experts, in, out]."""
    rng = np.random.RandomState(zlib.crc32(f"{layer}.{name}".encode()))
    experts, inner, outer = shape
    blocks = rng.randint(0, 256, (experts, outer, inner // 32, 16))
    scales = rng.randint(121, 126, (experts, outer, inner // 32))
    return torch.from_numpy(blocks).to(torch.uint8), torch.from_numpy(scales).to(torch.uint8)


def packed_experts(tensors):
    for key in [k for k in tensors if k.endswith(("gate_up_proj", "down_proj"))]:
        yield key, packed(tensors[key].shape, key.split(".")[2], key.split(".")[-1])


def unpacked(path):
    """The weights of experts as transformers unpacks them."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    rewrite(path, lambda tensors: {**tensors, **{
        key: convert_moe_packed_tensors(*both) for key, both in packed_experts(tensors)}})


def as_mxfp4(path):
    def edit(tensors):
        for key, (blocks, scales) in list(packed_experts(tensors)):
            del tensors[key]
            tensors[key + "_blocks"], tensors[key + "_scales"] = blocks, scales
        return tensors

    rewrite(path, edit)
    write_config(path, {**read_config(path), "quantization_config": {"quant_method": "mxfp4"}})


def yarn_twice(path):
    """Two original lengths, of which the outer one counts."""
    write_config(path, {**read_config(path), "original_max_position_embeddings": 4})


def one_token_ahead(tensors):
    """With something of the layer that predicts one more token; transformers skips it."""
    return {**tensors, "model.layers.3.enorm.weight": torch.ones(24, dtype=torch.bfloat16)}


def old_gpt(kind, **kw):
    base = dict(n_embd=24, n_layer=2, n_head=6, n_positions=64, vocab_size=64,
                bos_token_id=1, eos_token_id=None)
    return getattr(transformers, kind + "Config")(**{**base, **kw})


def longrope(dim, **kw):
    """Factors that tell short, long and dimensions apart."""
    n = dim // 2
    return dict(rope_type="longrope", rope_theta=10000.0,
                short_factor=[1.0 + 0.125 * i for i in range(n)],
                long_factor=[1.5 + 1.25 * i for i in range(n)], **kw)


def as_su(path):
    """config.json as Phi-3-mini-128k was published: type "su", the lengths beside it
    (transformers 5.23 reads longrope of this form, but not under that name)."""
    old_form(path, drop=("torch_dtype",))
    c = read_config(path)
    c["partial_rotary_factor"] = c["rope_scaling"].pop("partial_rotary_factor")
    c["rope_scaling"].pop("original_max_position_embeddings", None)
    c["rope_scaling"]["type"] = "su"
    write_config(path, c)


def old_neo(**kw):
    base = dict(hidden_size=24, num_layers=2, num_heads=6, max_position_embeddings=64, vocab_size=64,
                attention_types=[[["global", "local"], 1]], window_size=8, bos_token_id=1, eos_token_id=None)
    return transformers.GPTNeoConfig(**{**base, **kw})


def old_xglm(**kw):
    base = dict(d_model=24, num_layers=2, attention_heads=6, ffn_dim=40, max_position_embeddings=64, vocab_size=64,
                bos_token_id=1, eos_token_id=None, pad_token_id=1)
    return transformers.XGLMConfig(**{**base, **kw})


def as_internlm2(path):
    """A Llama under InternLM2's names, q, k and v in one tensor by groups of heads."""
    c = read_config(path)
    heads, kv, h = (c[k] for k in ("num_attention_heads", "num_key_value_heads", "hidden_size"))

    def edit(tensors):
        out = {}
        for key, t in tensors.items():
            for old, new in (("embed_tokens", "tok_embeddings"), ("input_layernorm", "attention_norm"),
                             ("post_attention_layernorm", "ffn_norm"), ("self_attn.o_proj", "attention.wo"),
                             ("mlp.gate_proj", "feed_forward.w1"), ("mlp.up_proj", "feed_forward.w3"),
                             ("mlp.down_proj", "feed_forward.w2"), ("lm_head", "output")):
                key = key.replace(old, new)
            if "self_attn" not in key:
                out[key] = t
            elif "q_proj" in key:
                block = key.split("self_attn")[0]
                q, k, v = (tensors[f"{block}self_attn.{x}_proj.weight"] for x in "qkv")
                parts = [x.reshape(kv, -1, h // heads, h) for x in (q, k, v)]
                out[block + "attention.wqkv.weight"] = torch.cat(parts, 1).reshape(-1, h)
        return out
    rewrite(path, edit)
    for drop in ("attention_bias", "mlp_bias", "head_dim"):
        c.pop(drop, None)
    write_config(path, {**c, "model_type": "internlm2", "architectures": ["InternLM2ForCausalLM"], "bias": False})


CAUSAL, MLM, CLASSIFY, ENCODE = ("AutoModelForCausalLM", "AutoModelForMaskedLM",
                                 "AutoModelForSequenceClassification", "AutoModel")
SPEECH = "AutoModelForSpeechSeq2Seq"
SEQ2SEQ = "AutoModelForSeq2SeqLM"

# Weights are bfloat16, unless they say float16, which halves the files; these are float32: pickles,
# training.tsv, version-1 and numbers in tests were made from some of them, and in bfloat16 smollm3 is beyond the
# bound of gpu-models, whose attention takes two bf16 parts.
WIDE = {
    "minimax-odd",
    "llama-gqa", "gpt2-hub", "gpt2-untied", "bert-mlm", "bigcode", "bigcode-heads", "olmo2", "phi", "starcoder2",
    "xglm", "phi3-long", "smollm3", "llama-bare", "mistral-tags", "bart",
}

# name: (class, config, {dtype, tokens, shard}, what is done to the directory afterwards)
MODELS = {
    "llama-gqa": (CAUSAL, llama(num_attention_heads=8, num_key_value_heads=4), {}, None),
    "llama-awkward": (
        CAUSAL, llama(hidden_size=42, num_attention_heads=7, num_key_value_heads=7,
                      head_dim=10, intermediate_size=53, vocab_size=131,
                      attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
        {"dtype": torch.float16},
        lambda path: old_form(path, drop=("num_key_value_heads",))),
    "llama-groups": (
        CAUSAL, llama(hidden_size=36, num_attention_heads=6, num_key_value_heads=2,
                      head_dim=8, intermediate_size=70, vocab_size=131),
        {}, None),
    "llama-linear": (CAUSAL, small_rope(rope("linear", factor=2.0)), {}, old_form),
    "llama-dynamic": (
        CAUSAL, small_rope(rope("dynamic", factor=2.0), max_position_embeddings=16),
        {"tokens": 30}, old_form),
    "llama-llama3": (
        CAUSAL, small_rope(rope("llama3", 500.0, factor=8.0, low_freq_factor=1.0,
                                high_freq_factor=4.0,
                                original_max_position_embeddings=48),
                           max_position_embeddings=384),
        {"tokens": 40}, None),
    "llama-yarn": (
        CAUSAL, small_rope(rope("yarn", factor=4.0, original_max_position_embeddings=16)),
        {"tokens": 40},
        lambda path: old_form(path, drop=("head_dim", "mlp_bias", "attention_bias"),
                              head_dim=16)),
    "llama-yarn-tuned": (
        CAUSAL, small_rope(rope("yarn", 300.0, factor=2.0, beta_fast=4.0, beta_slow=0.5,
                                mscale=1.0, mscale_all_dim=0.4, truncate=False,
                                original_max_position_embeddings=32)),
        {"tokens": 40}, None),
    "llama-sharded": (
        CAUSAL, llama(hidden_size=40, num_attention_heads=5, num_key_value_heads=5,
                      num_hidden_layers=3, intermediate_size=90, vocab_size=120,
                      eos_token_id=119),
        {"shard": "40KB"}, None),
    "smollm": (
        CAUSAL, llama(hidden_size=36, num_attention_heads=9, num_key_value_heads=3,
                      intermediate_size=96, vocab_size=128, tie_word_embeddings=True),
        {},
        lambda path: old_form(path, drop=("head_dim",), rope_interleaved=False,
                              is_llama_config=True)),
    "mistral-window": (
        CAUSAL, MistralConfig(hidden_size=32, intermediate_size=72, num_hidden_layers=2,
                              num_attention_heads=4, num_key_value_heads=2,
                              vocab_size=110, max_position_embeddings=64,
                              sliding_window=8),
        {"dtype": torch.float16, "tokens": 40},
        lambda path: old_form(path, drop=("head_dim",))),
    "gpt2-hub": (CAUSAL, gpt2(), {}, hub_gpt2),
    "gpt2-awkward": (
        CAUSAL, gpt2(n_embd=35, n_head=5, n_inner=77, vocab_size=101, bos_token_id=100,
                     eos_token_id=100, activation_function="relu",
                     scale_attn_by_inverse_layer_idx=True, n_layer=3),
        {},
        stored_twice({"lm_head.weight": "transformer.wte.weight"})),
    "gpt2-untied": (
        CAUSAL, gpt2(n_embd=24, n_head=3, n_positions=33, vocab_size=97, bos_token_id=96,
                     eos_token_id=96, activation_function="gelu",
                     scale_attn_weights=False, tie_word_embeddings=False),
        {"tokens": 33}, None),
    "gpt2-cross": (CAUSAL, gpt2(n_embd=24, n_head=6, add_cross_attention=True), {}, None),
    "bert-pooler": (ENCODE, bert(), {}, plain_bert),
    "bert-mlm": (
        MLM, bert(hidden_size=35, num_attention_heads=5, intermediate_size=61,
                  vocab_size=103, hidden_act="gelu_new"),
        {}, stored_twice({
            "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias"})),
    "bert-classify": (
        CLASSIFY, bert(num_attention_heads=2, type_vocab_size=3, hidden_act="relu",
                       id2label={0: "left", 1: "none", 2: "right"},
                       label2id={"left": 0, "none": 1, "right": 2}), {}, None),
    "bert-legacy": (MLM, bert(), {}, hub_bert),
    "decoder-bert": (CAUSAL, bert(is_decoder=True, num_attention_heads=4, tie_word_embeddings=False), {}, None),
    "decoder-roberta": (CAUSAL, plain("Roberta", is_decoder=True, hidden_size=30, type_vocab_size=1,
                                      pad_token_id=1), {}, None),
    "qwen2-window": (CAUSAL, small("Qwen2", use_sliding_window=True, sliding_window=8,
                                   max_window_layers=1), {}, None),
    "qwen3": (CAUSAL, small("Qwen3", head_dim=8), {}, None),
    "lfm2": (CAUSAL, small("Lfm2", num_hidden_layers=3, block_auto_adjust_ff_dim=False,
                           layer_types=["conv", "full_attention", "conv"]), {"tokens": 40}, None),
    "lfm2-odd": (CAUSAL, small("Lfm2", num_hidden_layers=3, hidden_size=30, num_attention_heads=5, num_key_value_heads=1,
                               intermediate_size=40, conv_bias=True, conv_L_cache=4, block_multiple_of=7, vocab_size=53,
                               tie_word_embeddings=False,
                               layer_types=["full_attention", "conv", "conv"]), {"tokens": 40}, None),
    "mamba2": (CAUSAL, mamba("Mamba2", num_heads=6, head_dim=8, n_groups=1, state_size=12), {"tokens": 40}, None),
    "mamba2-odd": (CAUSAL, mamba("Mamba2", num_heads=6, head_dim=8, n_groups=3, state_size=10, use_bias=True, use_conv_bias=False,
                                 conv_kernel=3, chunk_size=8, vocab_size=61, tie_word_embeddings=True), {"tokens": 40}, None),
    "qwen3-next": (CAUSAL, small("Qwen3Next", head_dim=8, num_experts=6, moe_intermediate_size=12, shared_expert_intermediate_size=16,
                                 num_experts_per_tok=2, **DELTA, layer_types=["linear_attention", "full_attention"]), {"tokens": 40}, None),
    "qwen3-next-odd": (CAUSAL, odd("Qwen3Next", num_experts=3, moe_intermediate_size=9, shared_expert_intermediate_size=11,
                                   num_experts_per_tok=2, mlp_only_layers=[1], linear_num_key_heads=1, linear_num_value_heads=5, num_hidden_layers=3,
                                   linear_key_head_dim=9, linear_value_head_dim=6, linear_conv_kernel_dim=3, attention_bias=True,
                                   rope_parameters=rope("default", partial_rotary_factor=0.5),
                                   layer_types=["full_attention", "linear_attention", "linear_attention"]), {"tokens": 40}, None),
    "qwen3-5": (CAUSAL, small("Qwen3_5Text", head_dim=8, **{**DELTA, "linear_num_key_heads": 2}, layer_types=["linear_attention", "full_attention"],
                              rope_parameters=rope("default", partial_rotary_factor=0.5)), {"tokens": 40}, None),
    "qwen3-5-odd": (CAUSAL, odd("Qwen3_5Text", linear_num_key_heads=5, linear_num_value_heads=5, linear_key_head_dim=7,
                                linear_value_head_dim=6, linear_conv_kernel_dim=3, tie_word_embeddings=True,
                                layer_types=["full_attention", "linear_attention"], rope_parameters=rope("default", partial_rotary_factor=0.5)),
                    {"tokens": 40}, None),
    "qwen3-5-moe": (CAUSAL, small("Qwen3_5MoeText", head_dim=8, num_experts=5, moe_intermediate_size=12, shared_expert_intermediate_size=16,
                                  num_experts_per_tok=2, **DELTA, layer_types=["linear_attention", "full_attention"],
                                  rope_parameters=rope("default", partial_rotary_factor=0.5)), {"tokens": 40}, None),
    "bamba": (CAUSAL, small("Bamba", **SSD, mamba_n_groups=1, attn_layer_indices=[1]), {"tokens": 40}, None),
    "bamba-odd": (CAUSAL, small("Bamba", **{**SSD, "mamba_d_conv": 3}, mamba_n_groups=3, attn_layer_indices=[0], mamba_proj_bias=True, attention_bias=True,
                                mamba_conv_bias=False, mlp_bias=True, intermediate_size=29, vocab_size=61, tie_word_embeddings=True), {"tokens": 40}, None),
    "granite-hybrid": (CAUSAL, small("GraniteMoeHybrid", **SSD, mamba_n_groups=1, layer_types=["linear_attention", "full_attention"], num_local_experts=4,
                                     num_experts_per_tok=2, intermediate_size=16, shared_intermediate_size=20, embedding_multiplier=3.0,
                                     attention_multiplier=0.4, residual_multiplier=0.3, logits_scaling=4.0), {"tokens": 40}, None),
    "granite-hybrid-odd": (CAUSAL, small("GraniteMoeHybrid", **SSD, mamba_n_groups=2, layer_types=["full_attention", "linear_attention"], num_local_experts=0,
                                         shared_intermediate_size=29, position_embedding_type="rope", mamba_proj_bias=True, attention_bias=True,
                                         attention_multiplier=0.4, vocab_size=61, tie_word_embeddings=True), {"tokens": 40}, None),
    "falcon-h1": (CAUSAL, small("FalconH1", **SSD, mamba_n_groups=1, mamba_d_ssm=48, mlp_multipliers=[0.8, 0.7], ssm_multipliers=[0.7, 0.8, 0.9, 1.1, 1.2],
                                embedding_multiplier=1.3, lm_head_multiplier=0.6, key_multiplier=0.7, attention_in_multiplier=0.9,
                                attention_out_multiplier=0.8, ssm_in_multiplier=1.2, ssm_out_multiplier=0.6), {"tokens": 40}, None),
    "falcon-h1-odd": (CAUSAL, small("FalconH1", **SSD, mamba_n_groups=3, mamba_d_ssm=42, mamba_rms_norm=True, projectors_bias=True, mamba_proj_bias=True,
                                    attention_bias=True, mlp_bias=True, intermediate_size=29, vocab_size=61), {"tokens": 40}, None),
    "mamba": (CAUSAL, mamba("Mamba", num_hidden_layers=2, state_size=6, time_step_rank=5), {"tokens": 40}, None),
    "mamba-odd": (CAUSAL, mamba("Mamba", hidden_size=22, state_size=5, use_bias=True, use_conv_bias=False, conv_kernel=3, tie_word_embeddings=False,
                                vocab_size=61), {"tokens": 40}, None),
    "falcon-mamba": (CAUSAL, mamba("FalconMamba", state_size=6, time_step_rank=5), {"tokens": 40}, None),
    "falcon-mamba-odd": (CAUSAL, mamba("FalconMamba", hidden_size=22, state_size=5, use_bias=True, mixer_rms_eps=0.01, tie_word_embeddings=False,
                                       vocab_size=61), {"tokens": 40}, None),
    "jamba": (CAUSAL, small("Jamba", mamba_d_state=6, mamba_dt_rank=5, num_experts=4, num_experts_per_tok=2, attn_layer_period=2, intermediate_size=20,
                            attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=0), {"tokens": 40}, None),
    "jamba-odd": (CAUSAL, small("Jamba", mamba_d_state=5, mamba_d_conv=3, mamba_proj_bias=True, mamba_conv_bias=False, num_experts=1, vocab_size=61,
                                attn_layer_period=2, attn_layer_offset=0, tie_word_embeddings=True), {"tokens": 40}, None),
    "nemotron-h": (CAUSAL, small("NemotronH", num_hidden_layers=4, **NEMOTRON), {"tokens": 40}, None),
    "nemotron-h-odd": (CAUSAL, small("NemotronH", **{**NEMOTRON, "layers_block_type": ["full_attention", "moe", "linear_attention", "mlp"], "n_groups": 2},
                                     num_hidden_layers=4, moe_latent_size=10, use_bias=True, mlp_bias=True, use_conv_bias=False, conv_kernel=3,
                                     routed_scaling_factor=1.5, vocab_size=61), {"tokens": 40}, pattern_of),
    "lfm2-moe": (CAUSAL, small("Lfm2Moe", num_hidden_layers=3, moe_intermediate_size=16, num_experts=4, num_experts_per_tok=2, num_dense_layers=1,
                               layer_types=["conv", "full_attention", "conv"]), {"tokens": 40}, None),
    "lfm2-moe-odd": (CAUSAL, small("Lfm2Moe", hidden_size=30, num_attention_heads=5, num_key_value_heads=1, moe_intermediate_size=9, num_experts=3,
                                   num_experts_per_tok=2, num_dense_layers=1, conv_bias=True, conv_L_cache=4, use_expert_bias=False, norm_topk_prob=False,
                                   routed_scaling_factor=1.5, vocab_size=53, tie_word_embeddings=False, layer_types=["full_attention", "conv"]),
                     {"tokens": 40}, None),
    "minimax": (CAUSAL, small("MiniMax", num_local_experts=4, num_experts_per_tok=2, intermediate_size=16, block_size=8,
                              layer_types=["full_attention", "linear_attention"]), {"tokens": 40}, None),
    "minimax-odd": (CAUSAL, odd("MiniMax", num_local_experts=3, num_experts_per_tok=2, num_hidden_layers=3, intermediate_size=9, block_size=8,
                                layer_types=["full_attention", "linear_attention", "linear_attention"], linear_attn_alpha_factor=0.9,
                                linear_attn_beta_factor=1.1, full_attn_alpha_factor=0.8, full_attn_beta_factor=1.2, mlp_alpha_factor=0.7,
                                mlp_beta_factor=1.3), {"tokens": 40}, None),
    "recurrent-gemma": (CAUSAL, small("RecurrentGemma", num_hidden_layers=3, intermediate_size=40, attention_window_size=8), {"tokens": 40}, None),
    "recurrent-gemma-odd": (CAUSAL, small("RecurrentGemma", hidden_size=40, num_attention_heads=5, num_key_value_heads=1, lru_width=35, intermediate_size=58,
                                          attention_window_size=8, attention_bias=True, block_types=["attention", "recurrent"], vocab_size=61),
                            {"tokens": 40}, None),
    "kimi-linear": (CAUSAL, small("KimiLinear", **{**KIMI, "num_key_value_heads": 6}, num_experts_per_tok=2, pad_token_id=0), {"tokens": 40}, None),
    "kimi-linear-odd": (CAUSAL, small("KimiLinear", **{**KIMI, "num_key_value_heads": 5, "linear_num_heads": 5, "num_attention_heads": 5, "layer_types": ["full_attention", "linear_attention"]},
                                      num_experts_per_tok=2, num_hidden_layers=2, pad_token_id=0, vocab_size=61, routed_scaling_factor=1.5),
                        {"tokens": 40}, kimi_files),
    "neox": (CAUSAL, plain("GPTNeoX", hidden_size=48), {}, None),
    "neox-serial": (CAUSAL, plain("GPTNeoX", hidden_size=48, use_parallel_residual=False,
                                  vocab_size=50), {"dtype": torch.float16}, None),
    "falcon-one": (CAUSAL, plain("Falcon", multi_query=True, new_decoder_architecture=False,
                                 parallel_attn=True, bias=False), {"attn": "sdpa"}, None),
    "falcon-groups": (CAUSAL, plain("Falcon", num_kv_heads=3, new_decoder_architecture=True,
                                    bias=True), {"attn": "sdpa"}, None),
    "falcon-alibi": (CAUSAL, plain("Falcon", multi_query=False, new_decoder_architecture=False,
                                   parallel_attn=False, bias=True, alibi=True),
                     {"attn": "sdpa"}, None),
    "codegen": (CAUSAL, old_gpt("CodeGen", n_embd=32, n_head=8, rotary_dim=4, n_ctx=64), {}, None),
    "gptj": (CAUSAL, old_gpt("GPTJ", n_embd=32, n_head=8, rotary_dim=4), {}, None),
    "olmo": (CAUSAL, small("Olmo"), {}, None),
    "olmo-clip": (CAUSAL, small("Olmo", clip_qkv=0.4), {}, None),
    "olmo2": (CAUSAL, small("Olmo2"), {}, None),
    "phi": (CAUSAL, small("Phi", partial_rotary_factor=0.5), {}, None),
    "phi-normed": (CAUSAL, plain("Phi", partial_rotary_factor=0.5, qk_layernorm=True), {}, None),
    "phi3": (CAUSAL, small("Phi3", sliding_window=9, pad_token_id=0), {}, None),
    "phi3-long": (
        CAUSAL, small("Phi3", pad_token_id=0, hidden_size=32, num_attention_heads=4,
                      num_key_value_heads=2, max_position_embeddings=64,
                      original_max_position_embeddings=16,
                      rope_parameters=longrope(8)), {"tokens": 40}, None),
    "phi3-su": (
        CAUSAL, small("Phi3", pad_token_id=0, hidden_size=48, num_attention_heads=3,
                      num_key_value_heads=1, max_position_embeddings=96,
                      original_max_position_embeddings=24, tie_word_embeddings=True,
                      rope_parameters=longrope(12, partial_rotary_factor=0.75)),
        {"tokens": 20, "last": as_su}, None),
    "gemma": (CAUSAL, small("Gemma", head_dim=8), {}, None),
    "gemma2": (CAUSAL, small("Gemma2", head_dim=8, sliding_window=8, num_hidden_layers=3), {}, None),
    "gemma3": (CAUSAL, small("Gemma3Text", head_dim=8, sliding_window=8, num_hidden_layers=7,
                             intermediate_size=24), {}, None),
    "cohere": (CAUSAL, small("Cohere"), {}, None),
    "cohere-normed": (CAUSAL, small("Cohere", use_qk_norm=True, attention_bias=True, vocab_size=61,
                                    tie_word_embeddings=False, logit_scale=0.3), {}, None),
    "bigcode": (CAUSAL, old_gpt("GPTBigCode"), {}, None),
    "bigcode-heads": (CAUSAL, old_gpt("GPTBigCode", multi_query=False), {}, None),
    "starcoder2": (CAUSAL, small("Starcoder2", sliding_window=8), {}, None),
    "opt": (CAUSAL, plain("OPT", ffn_dim=40, word_embed_proj_dim=24), {}, None),
    "opt-narrow": (CAUSAL, plain("OPT", ffn_dim=40, word_embed_proj_dim=16,
                                 do_layer_norm_before=False), {}, None),
    "bloom": (CAUSAL, plain("Bloom", n_layer=2, n_head=6), {}, None),
    "mpt": (CAUSAL, transformers.MptConfig(d_model=24, n_layers=2, n_heads=6, vocab_size=64,
                                           max_seq_len=64), {}, None),
    "mpt-clip": (CAUSAL, transformers.MptConfig(d_model=24, n_layers=2, n_heads=6, vocab_size=64,
                                                max_seq_len=64, attn_config={"clip_qkv": 0.4}),
                 {}, None),
    "internlm2": (CAUSAL, small("Llama"), {"last": as_internlm2}, None),
    "mixtral": (CAUSAL, small("Mixtral", num_local_experts=5, num_experts_per_tok=2,
                              sliding_window=9), {}, None),
    "qwen2-moe": (CAUSAL, small("Qwen2Moe", moe_intermediate_size=20, num_experts=6,
                                shared_expert_intermediate_size=28, num_experts_per_tok=3,
                                mlp_only_layers=[0], num_hidden_layers=3, qkv_bias=False,
                                use_sliding_window=True, sliding_window=8), {}, None),
    "qwen3-moe": (CAUSAL, small("Qwen3Moe", head_dim=8, moe_intermediate_size=20, num_experts=6,
                                num_experts_per_tok=2, norm_topk_prob=True,
                                decoder_sparse_step=2, use_sliding_window=True,
                                sliding_window=8), {}, None),
    "olmoe": (CAUSAL, small("Olmoe", num_key_value_heads=1, intermediate_size=16, num_experts=6,
                            num_experts_per_tok=2), {}, None),
    "olmoe-clip": (CAUSAL, small("Olmoe", num_key_value_heads=3, num_experts=3,
                                 num_experts_per_tok=2, clip_qkv=0.4), {}, None),
    "deepseek-v2": (CAUSAL, plain("DeepseekV2", **LATENT, q_lora_rank=None, n_shared_experts=2,
                                  topk_method="group_limited_greedy", num_experts_per_tok=3,
                                  routed_scaling_factor=1.5), {}, None),
    "deepseek-v2-greedy": (CAUSAL, plain("DeepseekV2", **LATENT, q_lora_rank=16,
                                         n_shared_experts=1, topk_method="greedy",
                                         num_experts_per_tok=2), {}, None),
    "deepseek-v3": (CAUSAL, plain("DeepseekV3", **LATENT, q_lora_rank=16, n_shared_experts=1,
                                  num_experts_per_tok=2,
                                  rope_parameters=rope("yarn", factor=4.0, mscale=1.0,
                                                       mscale_all_dim=0.7,
                                                       original_max_position_embeddings=16)),
                    {"tokens": 40},
                    lambda path: rewrite(path, one_token_ahead)),
    "granite": (CAUSAL, small("Granite", embedding_multiplier=3.0, attention_multiplier=0.4,
                              residual_multiplier=0.3, logits_scaling=4.0), {}, None),
    "granite-odd": (CAUSAL, odd("Granite", attention_bias=True, mlp_bias=True, embedding_multiplier=2.0,
                                residual_multiplier=0.5, tie_word_embeddings=True), {}, old_form),
    "cohere2": (CAUSAL, small("Cohere2", num_hidden_layers=4, intermediate_size=24, sliding_window=8), {}, None),
    "cohere2-odd": (CAUSAL, odd("Cohere2", head_dim=6, hidden_size=30, attention_bias=True, sliding_window=5,
                                layer_types=["full_attention", "sliding_attention"]), {}, None),
    "olmo3": (CAUSAL, small("Olmo3", num_hidden_layers=4, intermediate_size=24, sliding_window=8,
                            rope_parameters={"sliding_attention": rope("default"), "full_attention":
                                rope("yarn", factor=4.0, original_max_position_embeddings=16)}), {}, None),
    "olmo3-odd": (CAUSAL, odd("Olmo3", hidden_size=30, attention_bias=True, tie_word_embeddings=True,
                              sliding_window=5, layer_types=["full_attention", "sliding_attention"]), {}, None),
    "smollm3": (CAUSAL, small("SmolLM3", num_hidden_layers=4, intermediate_size=24, pad_token_id=0), {}, None),
    "smollm3-odd": (CAUSAL, odd("SmolLM3", pad_token_id=0, tie_word_embeddings=False, no_rope_layers=[0, 1],
                                use_sliding_window=True, sliding_window=5, mlp_bias=True), {}, None),
    "stablelm": (CAUSAL, small("StableLm", hidden_size=48, use_qkv_bias=True), {}, None),
    "stablelm-odd": (CAUSAL, odd("StableLm", hidden_size=40, use_parallel_residual=True, tie_word_embeddings=True),
                     {}, old_form),
    "glm": (CAUSAL, small("Glm", head_dim=8, pad_token_id=0), {}, None),
    "glm-odd": (CAUSAL, odd("Glm", pad_token_id=0, attention_bias=False, tie_word_embeddings=True), {}, old_form),
    "glm4": (CAUSAL, small("Glm4", head_dim=8, pad_token_id=0), {}, None),
    "glm4-odd": (CAUSAL, odd("Glm4", pad_token_id=0, tie_word_embeddings=True), {}, None),
    "ernie4-5": (CAUSAL, small("Ernie4_5", head_dim=8), {}, None),
    "ernie4-5-odd": (CAUSAL, odd("Ernie4_5", use_bias=True, tie_word_embeddings=False), {}, None),
    "seed-oss": (CAUSAL, small("SeedOss", head_dim=8, pad_token_id=0), {}, None),
    "seed-oss-odd": (CAUSAL, odd("SeedOss", pad_token_id=0, attention_bias=False, attention_out_bias=True,
                                 mlp_bias=True, tie_word_embeddings=True), {}, None),
    "exaone4": (CAUSAL, small("Exaone4", num_hidden_layers=4, intermediate_size=24, sliding_window=8), {}, None),
    "exaone4-odd": (CAUSAL, odd("Exaone4", hidden_size=40, sliding_window=None, layer_types=["full_attention"] * 2,
                                tie_word_embeddings=True), {}, None),
    "hunyuan-dense": (CAUSAL, small("HunYuanDenseV1", head_dim=8, pad_token_id=0), {}, None),
    "hunyuan-dense-odd": (CAUSAL, odd("HunYuanDenseV1", pad_token_id=0, attention_bias=True, tie_word_embeddings=True,
                                      rope_parameters=rope("dynamic", factor=1.0, alpha=1000.0)), {}, None),
    "arcee": (CAUSAL, small("Arcee", head_dim=8), {}, None),
    "internlm3": (CAUSAL, small("InternLM3", head_dim=8, attention_bias=True, mlp_bias=True, pad_token_id=0), {}, None),
    "iquestcoder": (CAUSAL, small("IQuestCoder", head_dim=8), {}, None),
    "cwm": (CAUSAL, small("Cwm", num_hidden_layers=4, head_dim=8, sliding_window=8, eos_token_id=0, bos_token_id=1), {}, None),
    "arcee-odd": (CAUSAL, odd("Arcee", mlp_bias=True, attention_bias=True, tie_word_embeddings=True), {}, None),
    "nemotron": (CAUSAL, small("Nemotron", head_dim=8), {}, None),
    "nemotron-odd": (CAUSAL, odd("Nemotron", mlp_bias=True, attention_bias=True, tie_word_embeddings=True),
                     {}, old_form),
    "helium": (CAUSAL, small("Helium", head_dim=4, pad_token_id=0), {}, None),
    "helium-odd": (CAUSAL, odd("Helium", hidden_size=40, pad_token_id=0, mlp_bias=True, tie_word_embeddings=True), {}, None),
    "ministral": (CAUSAL, small("Ministral", head_dim=8, sliding_window=8), {}, None),
    "ministral-odd": (CAUSAL, odd("Ministral", sliding_window=5, tie_word_embeddings=True,
                                  layer_types=["full_attention", "sliding_attention"]), {}, None),
    "gpt-neo": (CAUSAL, old_neo(), {}, None),
    "gpt-neo-odd": (CAUSAL, old_neo(hidden_size=35, num_heads=5, intermediate_size=29, vocab_size=61, num_layers=3,
                                    attention_types=[[["local", "global", "local"], 1]], window_size=5), {}, None),
    "openai-gpt": (CAUSAL, old_gpt("OpenAIGPT"), {}, None),
    "openai-gpt-odd": (CAUSAL, old_gpt("OpenAIGPT", n_embd=20, n_head=5, vocab_size=61, afn="silu",
                                       tie_word_embeddings=False), {}, None),
    "biogpt": (CAUSAL, plain("BioGpt"), {}, None),
    "biogpt-odd": (CAUSAL, plain("BioGpt", hidden_size=30, num_attention_heads=5, intermediate_size=29, vocab_size=61,
                                 scale_embedding=False, tie_word_embeddings=False), {}, None),
    "persimmon": (CAUSAL, plain("Persimmon", hidden_size=48), {}, None),
    "persimmon-odd": (CAUSAL, plain("Persimmon", hidden_size=40, num_attention_heads=5, intermediate_size=29, vocab_size=61,
                                    qk_layernorm=False, tie_word_embeddings=True), {}, None),
    "dots1": (CAUSAL, small("Dots1", head_dim=8, **GROUPS, num_experts_per_tok=3, routed_scaling_factor=1.5,
                            norm_topk_prob=True), {}, None),
    "dots1-odd": (CAUSAL, odd("Dots1", **{**GROUPS, "n_group": 1, "topk_group": 1}, num_experts_per_tok=2, attention_bias=True,
                              sliding_window=5, max_window_layers=1, tie_word_embeddings=True), {}, None),
    "glm4-moe": (CAUSAL, small("Glm4Moe", head_dim=8, **GROUPS, num_experts_per_tok=3, use_qk_norm=True), {}, None),
    "glm4-moe-odd": (CAUSAL, odd("Glm4Moe", **{**GROUPS, "n_group": 1, "topk_group": 1}, num_experts_per_tok=2,
                                 attention_bias=True, tie_word_embeddings=True), {}, None),
    "ernie4-5-moe": (CAUSAL, small("Ernie4_5_Moe", moe_intermediate_size=20, moe_num_experts=6, moe_k=3,
                                   moe_layer_start_index=1, moe_layer_end_index=-1), {}, None),
    "ernie4-5-moe-odd": (CAUSAL, odd("Ernie4_5_Moe", hidden_size=40, moe_intermediate_size=11, moe_num_experts=5, moe_k=2, use_bias=True,
                                     moe_num_shared_experts=0, moe_layer_end_index=0, moe_layer_start_index=0,
                                     tie_word_embeddings=False), {}, None),
    "hunyuan-moe": (CAUSAL, small("HunYuanMoEV1", head_dim=8, intermediate_size=20, pad_token_id=0, num_experts=4, moe_topk=2), {}, None),
    "hunyuan-moe-odd": (CAUSAL, odd("HunYuanMoEV1", pad_token_id=0, num_experts=3, moe_topk=1, attention_bias=True,
                                    tie_word_embeddings=True), {}, None),
    "minimax-m2": (CAUSAL, small("MiniMaxM2", head_dim=8, intermediate_size=16, num_local_experts=5, num_experts_per_tok=2,
                                 rope_parameters=rope("default", partial_rotary_factor=0.5)), {}, None),
    "minimax-m2-odd": (CAUSAL, odd("MiniMaxM2", num_local_experts=3, num_experts_per_tok=1, tie_word_embeddings=True),
                       {}, None),
    "yarn-twice": (CAUSAL, small("Llama", rope_parameters=rope(
        "yarn", factor=4.0, original_max_position_embeddings=16)), {}, yarn_twice),
    "granitemoe": (CAUSAL, small("GraniteMoeShared", intermediate_size=16, num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=28,
                                 residual_multiplier=0.3, logits_scaling=4.0, attention_multiplier=0.4,
                                 embedding_multiplier=3.0), {}, None),
    "granitemoe-odd": (CAUSAL, odd("GraniteMoe", head_dim=4, num_local_experts=3, num_experts_per_tok=1, tie_word_embeddings=True),
                       {}, None),
    "gpt-oss": (CAUSAL, small("GptOss", head_dim=8, intermediate_size=20, num_local_experts=5, num_experts_per_tok=2, sliding_window=8,
                              swiglu_limit=0.5, max_position_embeddings=131072), {}, None),
    "gpt-oss-odd": (CAUSAL, odd("GptOss", num_local_experts=3, num_experts_per_tok=1, tie_word_embeddings=True,
                                sliding_window=5, layer_types=["full_attention", "sliding_attention"],
                                rope_parameters=rope("yarn", factor=4.0, original_max_position_embeddings=16)),
                    {}, old_form),
    "gpt-oss-mxfp4": (CAUSAL, small("GptOss", hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
                                    intermediate_size=128, num_local_experts=2, num_experts_per_tok=1),
                      {"last": as_mxfp4}, unpacked),
    "phimoe": (CAUSAL, small("Phimoe", intermediate_size=16, num_local_experts=5, num_experts_per_tok=2, router_jitter_noise=0.4, attention_bias=True,
                             lm_head_bias=True), {}, None),
    "phimoe-odd": (CAUSAL, odd("Phimoe", hidden_size=40, num_local_experts=3, num_experts_per_tok=2, tie_word_embeddings=True,
                               rope_parameters=longrope(8, original_max_position_embeddings=64, short_mscale=1.25, long_mscale=1.25)),
                   {}, None),
    "apertus": (CAUSAL, small("Apertus", head_dim=8, pad_token_id=0), {}, None),
    "apertus-odd": (CAUSAL, odd("Apertus", hidden_size=40, pad_token_id=0, attention_bias=True, tie_word_embeddings=True,
                                rope_parameters=rope("default")), {}, None),
    "llama4": (CAUSAL, small("Llama4Text", num_hidden_layers=4, intermediate_size=20, intermediate_size_mlp=28, head_dim=8, num_local_experts=3,
                             interleave_moe_layer_step=2, attention_chunk_size=7, floor_scale=5, attn_scale=0.5,
                             pad_token_id=0), {}, None),
    "llama4-odd": (CAUSAL, odd("Llama4Text", hidden_size=30, intermediate_size_mlp=29, num_local_experts=3, use_qk_norm=False,
                               moe_layers=[1], no_rope_layers=[0, 1], attn_temperature_tuning=False, attention_chunk_size=5,
                               attention_bias=True, tie_word_embeddings=True, pad_token_id=0), {}, None),
    "ctrl": (CAUSAL, old_gpt("CTRL", dff=40), {}, None),
    "ctrl-odd": (CAUSAL, old_gpt("CTRL", n_embd=30, n_head=5, dff=29, vocab_size=61, tie_word_embeddings=False), {}, None),
    "xglm": (CAUSAL, old_xglm(), NARROW, None),
    "xglm-odd": (CAUSAL, old_xglm(d_model=30, attention_heads=5, ffn_dim=29, vocab_size=61, scale_embedding=False,
                                  activation_function="relu", tie_word_embeddings=False), NARROW, None),
    "roberta-mlm": (MLM, plain("Roberta", max_position_embeddings=66, type_vocab_size=1,
                               pad_token_id=1), {}, None),
    "roberta-classify": (CLASSIFY, plain("Roberta", max_position_embeddings=66, type_vocab_size=1,
                                         pad_token_id=1, num_labels=3), {}, None),
}


def untied_t5(path):
    """A head of its own, as T5 v1.1 has it: under tie_word_embeddings false, unscaled."""
    rng = np.random.RandomState(11)

    def edit(tensors):
        shape = tuple(tensors["shared.weight"].shape)
        draw = torch.from_numpy(rng.standard_normal(shape)).to(torch.float32)
        return {**tensors, "lm_head.weight": draw * (1.3 / math.sqrt(shape[1]))}

    rewrite(path, edit)
    config = read_config(path)
    config["tie_word_embeddings"] = False
    config.pop("scale_decoder_outputs", None)
    write_config(path, config)


def with_bias(path):
    """A bias of the logits that is not 0."""
    rng = np.random.RandomState(12)

    def edit(tensors):
        old = tensors["final_logits_bias"]
        draw = torch.from_numpy(rng.standard_normal(tuple(old.shape)))
        return {**tensors, "final_logits_bias": draw.to(old.dtype)}

    rewrite(path, edit)


T5 = dict(d_model=24, d_kv=5, d_ff=40, num_layers=2, num_decoder_layers=3, num_heads=6,
          vocab_size=60, relative_attention_num_buckets=8, relative_attention_max_distance=20,
          decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)
def two(kind, **kw):
    """A tiny model of two stacks that are built like BART's."""
    base = dict(d_model=18, encoder_layers=1, decoder_layers=2, encoder_attention_heads=6, decoder_attention_heads=6,
                encoder_ffn_dim=40, decoder_ffn_dim=40, vocab_size=60, max_position_embeddings=80)
    return getattr(transformers, kind + "Config")(**{**base, **kw})


def two_odd(kind, **kw):
    """Other heads and layers in the one stack than in the other, an odd vocabulary, no place to spare."""
    base = dict(d_model=20, encoder_layers=1, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=5,
                encoder_ffn_dim=29, decoder_ffn_dim=31, vocab_size=61, max_position_embeddings=61,
                tie_word_embeddings=False)
    return two(kind, **{**base, **kw})


LED = dict(max_encoder_position_embeddings=130, max_decoder_position_embeddings=64)
ODD_T5 = {**T5, "num_layers": 1, "num_decoder_layers": 2, "num_heads": 5, "d_kv": 4, "d_ff": 29, "vocab_size": 61}
MARIAN = dict(pad_token_id=59, eos_token_id=0, decoder_start_token_id=57, forced_eos_token_id=0)
PROPHET = dict(hidden_size=12, num_encoder_layers=1, num_decoder_layers=2, num_encoder_attention_heads=4, num_decoder_attention_heads=6,
               encoder_ffn_dim=28, decoder_ffn_dim=26, vocab_size=60, max_position_embeddings=63, num_buckets=8, relative_max_distance=20,
               decoder_start_token_id=7)
# models of two stacks, in tests/data/stacks: expected.json has source_ids as well
STACKS = {
    "t5": (SEQ2SEQ, transformers.T5Config(**T5), {}, None),
    "t5-gated": (SEQ2SEQ, transformers.T5Config(
        **T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False), {}, untied_t5),
    "bart": (SEQ2SEQ, two("Bart"), {}, None),
    "bart-odd": (SEQ2SEQ, two_odd("Bart", scale_embedding=True, activation_function="relu"), {}, with_bias),
    "mbart": (SEQ2SEQ, two("MBart", scale_embedding=True, decoder_start_token_id=7), {}, with_bias),
    "mbart-odd": (SEQ2SEQ, two_odd("MBart", decoder_start_token_id=5), {}, None),
    "plbart": (SEQ2SEQ, two("PLBart", decoder_start_token_id=0), {}, with_bias),
    "plbart-odd": (SEQ2SEQ, two_odd("PLBart", scale_embedding=False, decoder_start_token_id=6), {}, None),
    "blenderbot": (SEQ2SEQ, two("Blenderbot", encoder_no_repeat_ngram_size=0), {}, with_bias),
    "blenderbot-odd": (SEQ2SEQ, two_odd("Blenderbot", encoder_no_repeat_ngram_size=0, scale_embedding=True), {}, None),
    "blenderbot-small": (SEQ2SEQ, two("BlenderbotSmall"), {}, with_bias),
    "blenderbot-small-odd": (SEQ2SEQ, two_odd("BlenderbotSmall", scale_embedding=True), {}, None),
    "led": (SEQ2SEQ, two("LED", **LED, attention_window=16), {}, with_bias),
    "led-odd": (SEQ2SEQ, two_odd("LED", **LED, encoder_layers=2, attention_window=[10, 20]), {}, None),
    "bigbird-pegasus": (SEQ2SEQ, two("BigBirdPegasus"), {}, with_bias),
    "bigbird-pegasus-odd": (SEQ2SEQ, two_odd("BigBirdPegasus", use_bias=True, scale_embedding=False, block_size=7, eos_token_id=60,
                                             num_random_blocks=2), {}, None),
    "umt5": (SEQ2SEQ, transformers.UMT5Config(**T5), {}, None),
    "umt5-odd": (SEQ2SEQ, transformers.UMT5Config(**ODD_T5, feed_forward_proj="relu"), {}, untied_t5),
    "longt5": (SEQ2SEQ, transformers.LongT5Config(**T5, feed_forward_proj="gated-gelu"), {}, None),
    "longt5-odd": (SEQ2SEQ, transformers.LongT5Config(**ODD_T5, local_radius=7, tie_word_embeddings=False), {},
                   untied_t5),
    "marian": (SEQ2SEQ, two("Marian", **MARIAN, activation_function="swish", scale_embedding=True), {}, with_bias),
    "marian-odd": (SEQ2SEQ, two_odd("Marian", **{**MARIAN, "pad_token_id": 58}, decoder_vocab_size=59,
                                    share_encoder_decoder_embeddings=False), {}, None),
    "pegasus": (SEQ2SEQ, two("Pegasus", scale_embedding=True), {}, with_bias),
    "pegasus-odd": (SEQ2SEQ, two_odd("Pegasus"), {}, None),
    "m2m-100": (SEQ2SEQ, two("M2M100", decoder_start_token_id=7), {}, None),
    "m2m-100-odd": (SEQ2SEQ, two_odd("M2M100", pad_token_id=2, eos_token_id=1, decoder_start_token_id=1), {}, None),
    "speech-to-text": (SPEECH, two("Speech2Text", vocab_size=60, input_feat_per_channel=6, conv_channels=16, eos_token_id=2,
                                   decoder_start_token_id=7), {"frames": 53}, None),
    "speech-to-text-odd": (SPEECH, two_odd("Speech2Text", input_feat_per_channel=5, input_channels=2, conv_channels=22,
                                           conv_kernel_sizes=(3, 7), scale_embedding=False, activation_function="gelu",
                                           pad_token_id=0, decoder_start_token_id=1), {"frames": 58}, None),
    "prophetnet": (SEQ2SEQ, transformers.ProphetNetConfig(**PROPHET), {}, None),
    "prophetnet-odd": (SEQ2SEQ, transformers.ProphetNetConfig(
        **{**PROPHET, "hidden_size": 15, "num_encoder_attention_heads": 5, "num_decoder_attention_heads": 5, "encoder_ffn_dim": 19,
           "decoder_ffn_dim": 21, "vocab_size": 61, "ngram": 3, "num_buckets": 6}, activation_function="relu", tie_word_embeddings=False),
        {}, None),
    "fsmt": (SEQ2SEQ, two("FSMT", src_vocab_size=60, num_beams=1, decoder_start_token_id=9, tie_word_embeddings=True), NARROW, None),
    "fsmt-odd": (SEQ2SEQ, two_odd("FSMT", src_vocab_size=61, vocab_size=59, num_beams=1, pad_token_id=0, bos_token_id=1, scale_embedding=False), NARROW, None),
}


TAGS, ANSWERS = "AutoModelForTokenClassification", "AutoModelForQuestionAnswering"
# decoders without the head of a language model, in tests/data/heads: expected.safetensors
# has input_ids and the one output; expected.json is not written
HEADS = {
    "llama-bare": (ENCODE, small("Llama"), {}, None),
    "qwen2-score": (CLASSIFY, small("Qwen2", num_labels=3, pad_token_id=0), {}, None),
    "mistral-tags": (TAGS, small("Mistral", num_labels=3), {}, None),
    "mixtral-bare": (ENCODE, small("Mixtral", intermediate_size=16, num_local_experts=4, num_experts_per_tok=2), {}, None),
    "llama-answers": (ANSWERS, small("Llama"), {}, None),
    "gemma2-score": (CLASSIFY, small("Gemma2", head_dim=8, num_labels=1, pad_token_id=0), {}, None),
    "t5-encoder-bare": ("AutoModelForTextEncoding", transformers.T5Config(
        d_model=24, d_kv=5, d_ff=40, num_layers=2, num_heads=6, vocab_size=61, feed_forward_proj="gated-gelu",
        relative_attention_num_buckets=8, relative_attention_max_distance=20), {}, None),
    "bert-unpooled-bare": (ENCODE, bert(), {}, without_pooler),
    "neox-bare": (ENCODE, plain("GPTNeoX", hidden_size=48), {}, None),
    "falcon-bare": (ENCODE, plain("Falcon", intermediate_size=None), {"attn": "sdpa"}, None),
    "gptj-answers": (ANSWERS, transformers.GPTJConfig(
        vocab_size=61, n_positions=32, n_embd=16, n_layer=2, n_head=4, rotary_dim=4), {}, None),
    "opt-score": (CLASSIFY, transformers.OPTConfig(
        vocab_size=61, hidden_size=12, num_hidden_layers=2, num_attention_heads=3, ffn_dim=20, word_embed_proj_dim=8,
        max_position_embeddings=32, pad_token_id=0, num_labels=3), {}, None),
    "phi-tags": (TAGS, transformers.PhiConfig(
        vocab_size=61, hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20,
        max_position_embeddings=32, num_labels=3), {}, None),
    "biogpt-bare": (ENCODE, transformers.BioGptConfig(
        vocab_size=61, hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20,
        max_position_embeddings=32), {}, None),
    "bart-score": (CLASSIFY, transformers.BartConfig(
        vocab_size=61, d_model=12, encoder_layers=1, decoder_layers=2, encoder_attention_heads=3, decoder_attention_heads=3,
        encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=32, num_labels=3), {}, None),
    "mbart-answers": (ANSWERS, transformers.MBartConfig(
        vocab_size=61, d_model=12, encoder_layers=1, decoder_layers=2, encoder_attention_heads=3, decoder_attention_heads=3,
        encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=32), {}, None),
    "plbart-score": (CLASSIFY, transformers.PLBartConfig(
        vocab_size=61, d_model=9, encoder_layers=1, decoder_layers=1, encoder_attention_heads=3, decoder_attention_heads=3,
        encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=32, num_labels=3), {}, None),
    "umt5-encoder-bare": ("AutoModelForTextEncoding", transformers.UMT5Config(
        d_model=9, d_kv=4, d_ff=20, num_layers=2, num_heads=3, vocab_size=61, relative_attention_num_buckets=8,
        relative_attention_max_distance=20), {}, None),
    "longt5-encoder-bare": ("LongT5EncoderModel", transformers.LongT5Config(
        d_model=9, d_kv=4, d_ff=20, num_layers=2, num_heads=3, vocab_size=61, local_radius=3, global_block_size=4,
        encoder_attention_type="transient-global", relative_attention_num_buckets=8, relative_attention_max_distance=20), {}, None),
    "t5-score": (CLASSIFY, transformers.T5Config(
        d_model=12, d_kv=4, d_ff=20, num_layers=1, num_decoder_layers=2, num_heads=3, vocab_size=61, num_labels=3,
        decoder_start_token_id=0,
        relative_attention_num_buckets=8, relative_attention_max_distance=20), {}, None),
    "t5-tags": (TAGS, transformers.T5Config(
        d_model=12, d_kv=4, d_ff=20, num_layers=2, num_heads=3, vocab_size=61, num_labels=3,
        relative_attention_num_buckets=8, relative_attention_max_distance=20), {}, None),
}


def write_heads(path, name):
    """The output under the name that tp-run gives it; a score is a row of its own."""
    kind, config, how, _ = HEADS[name]
    ids = np.random.RandomState(zlib.crc32(name.encode())).randint(3, 60, 20).tolist()
    if kind == CLASSIFY and config.is_encoder_decoder:
        ids.append(config.eos_token_id)  # whose row has the score
    elif kind == CLASSIFY:
        ids += [0, 0]  # padding at the end is passed over
    model = getattr(transformers, kind).from_pretrained(
        path, dtype=torch.float64, experts_implementation="eager",
        attn_implementation=how.get("attn", "eager")).eval()
    with torch.no_grad():
        out = model(input_ids=torch.tensor([ids]))
    tensors = {"input_ids": torch.tensor(ids)}
    if name.endswith("-bare"):
        tensors["last_hidden_state"] = f32(out.last_hidden_state[0])
    elif kind == ANSWERS:
        tensors["logits"] = f32(torch.stack([out.start_logits[0], out.end_logits[0]], 1))
    else:
        tensors["logits"] = f32(out.logits if kind == CLASSIFY else out.logits[0])
    save_file(tensors, os.path.join(path, "expected.safetensors"))
    with open(os.path.join(path, "ids"), "w") as f:
        f.write(",".join(map(str, ids)) + "\n")


def own_cache():
    """For ProphetNet: 5.23's own has as many layers as its encoder, not its decoder."""
    return transformers.EncoderDecoderCache(transformers.DynamicCache(), transformers.DynamicCache())


def stack_logits(model, inputs):
    """ProphetNet's as generation makes them, token by token through the cache.  For several tokens at once
    transformers 5.23 gives its predicting streams the biases of other tokens: in
    get_predict_relative_pos_embeddings they are in the order token, stream, head, their buckets in the order
    stream, head, token."""
    if model.config.model_type != "prophetnet":
        return model(**inputs, use_cache=False).logits
    past, ids = own_cache(), inputs["decoder_input_ids"]
    return torch.cat([model(input_ids=inputs["input_ids"], decoder_input_ids=ids[:, at:at + 1],
                            past_key_values=past, use_cache=True).logits for at in range(ids.shape[1])], 1)


def stacks(model, source, ids, tensors, facts):
    """A decoder that has read SOURCE: its logits for IDS, and what it says itself."""
    ids[0] = model.config.decoder_start_token_id
    source_name = model.main_input_name
    if source_name == "input_ids":
        facts["source_ids"] = source
    source = torch.tensor([source], dtype=None if source_name == "input_ids" else model.dtype)
    inputs = {source_name: source, "decoder_input_ids": torch.tensor([ids])}
    with torch.no_grad():
        logits = stack_logits(model, inputs)
    tensors["logits"] = f32(logits[0])
    facts["nll"] = torch.nn.functional.cross_entropy(
        logits[0, :-1], torch.tensor(ids[1:])).item()
    # without its cache FSMT generates from other logits than its forward pass gives
    cached = model.config.model_type in ("fsmt", "prophetnet")
    more = {"past_key_values": own_cache()} if model.config.model_type == "prophetnet" else {}
    out = model.generate(source, **more, max_new_tokens=12, do_sample=False, use_cache=cached,
                         eos_token_id=None, output_logits=True, return_dict_in_generate=True)
    gaps = [(lambda top: (top[0] - top[1]).item())(step[0].topk(2).values)
            for step in out.logits]
    new = out.sequences[0, 1:].tolist()
    if model.generation_config.eos_token_id in new[:-1]:  # the last may be told to be it
        sys.exit(f"the greedy ids hold the stop id: {new}")
    facts["greedy"] = {"prompt_ids": ids[:1], "ids": new,
                       "smallest_gap": min(gaps)}
    return inputs, logits


def write_model(path, name):
    kind, config, how, after = {**MODELS, **STACKS, **HEADS}[name]
    shutil.rmtree(path, ignore_errors=True)
    made_by = getattr(transformers, kind)
    model = made_by.from_config(config) if kind.startswith("Auto") else made_by(config)
    fill(model, name)
    dtype = how.get("dtype", torch.float32 if name in WIDE else torch.bfloat16)
    model.to(dtype)
    model.config.dtype = dtype
    model.save_pretrained(path, max_shard_size=how.get("shard", "1GB"))
    if after:
        after(path)


# --- what they answer ----------------------------------------------------------------

def f32(t):
    return t.detach().to(torch.float32).contiguous()


def nll(model, ids, window):
    """Mean negative log-likelihood of every id but the first, windows not overlapping."""
    total = 0.0
    with torch.no_grad():  # a short input makes dynamic rope forget longer ones
        model(torch.tensor([ids[:1]]), use_cache=False)
    for at in range(0, len(ids) - 1, window):
        inputs = ids[at:min(at + window, len(ids) - 1)]
        targets = torch.tensor(ids[at + 1:at + 1 + len(inputs)])
        with torch.no_grad():
            logits = model(torch.tensor([inputs]), use_cache=False).logits[0]
        total += torch.nn.functional.cross_entropy(logits, targets, reduction="sum").item()
    return total / (len(ids) - 1)


def greedy(model, prompt, n):
    """N ids after PROMPT, the smallest gap of first to second logit on the way."""
    if model.config.model_type == "roberta":  # generate() gives it positions from 0
        ids, gaps = list(prompt), []
        for _ in range(n):
            with torch.no_grad():
                top = model(torch.tensor([ids]), use_cache=False).logits[0, -1].topk(2)
            ids.append(top.indices[0].item())
            gaps.append((top.values[0] - top.values[1]).item())
        return ids[len(prompt):], min(gaps)
    out = model.generate(torch.tensor([prompt]), max_new_tokens=n, do_sample=False,
                         eos_token_id=None, pad_token_id=0, output_logits=True,
                         return_dict_in_generate=True)
    gaps = [(lambda top: (top[0] - top[1]).item())(step[0].topk(2).values)
            for step in out.logits]
    return out.sequences[0, len(prompt):].tolist(), min(gaps)


def spread(path, kind, inputs, wide, attn):
    """Relative distance of transformers' own float32 from float64."""
    model = getattr(transformers, kind).from_pretrained(
        path, dtype=torch.float32, experts_implementation="eager", attn_implementation=attn).eval()
    with torch.no_grad():
        narrow = stack_logits(model, inputs) if kind in (SEQ2SEQ, SPEECH) else model(**inputs)[0]
    return ((narrow.double() - wide).abs().max() / wide.abs().max()).item()


def causal(model, ids, tensors, facts):
    inputs = {"input_ids": torch.tensor([ids])}
    with torch.no_grad():
        logits = model(**inputs, use_cache=False).logits
    tensors["logits"] = f32(logits[0])
    facts["nll"] = nll(model, ids, len(ids))
    facts["windowed"] = {"window": 7, "nll": nll(model, ids, 7)}
    new, gap = greedy(model, ids[:10], 20)
    if model.config.eos_token_id in new:
        sys.exit(f"the greedy ids hold the stop id: {new}")
    facts["greedy"] = {"prompt_ids": ids[:10], "ids": new, "smallest_gap": gap}
    return inputs, logits


def encoder(model, ids, tensors, facts, rng):
    types = (np.sort(rng.randint(0, model.config.type_vocab_size, len(ids)))).tolist()
    tensors["token_type_ids"] = torch.tensor(types)
    facts["token_type_ids"] = types
    for prefix, given in (("", None), ("typed.", types)):
        inputs = {"input_ids": torch.tensor([ids])}
        if given:
            inputs["token_type_ids"] = torch.tensor([given])
        with torch.no_grad():
            out = model(**inputs, output_hidden_states=True)
        tensors[prefix + "last_hidden_state"] = f32(out.hidden_states[-1][0])
        if "pooler_output" in out:
            tensors[prefix + "pooler_output"] = f32(out.pooler_output[0])
        if "logits" in out:
            tensors[prefix + "logits"] = f32(out.logits[0])
    return inputs, out[0]


def one_line_lists(text):
    """json.dump puts each element of a list on a line of its own; ids are read whole."""
    out, depth = [], 0
    for line in text.split("\n"):
        if depth:
            out[-1] += line.strip() + (" " if line.rstrip().endswith(",") else "")
        else:
            out.append(line)
        depth += line.count("[") - line.count("]")
    return "\n".join(out) + "\n"


def write_expected(path, name):
    kind, _, how, _ = {**MODELS, **STACKS}[name]
    attn = how.get("attn", "eager")  # eager Falcon adds ALiBi twice
    rng = np.random.RandomState(zlib.crc32(name.encode()) ^ 0x1D5)
    config = AutoConfig.from_pretrained(path)
    words = min(getattr(config, "decoder_vocab_size", None) or config.vocab_size, config.vocab_size)
    ids = rng.randint(3, words - 1, how.get("tokens", 24)).tolist()
    model, report = getattr(transformers, kind).from_pretrained(
        path, dtype=how.get("wide", torch.float64), experts_implementation="eager", attn_implementation=attn,
        output_loading_info=True)
    model.eval()
    if report["missing_keys"] or report["mismatched_keys"]:
        sys.exit(f"{name}: transformers did not find all weights: {report}")
    tensors = {"input_ids": torch.tensor(ids)}
    facts = {"ids": ids}
    if kind in (SEQ2SEQ, SPEECH):
        source = rng.randint(3, words - 1, 61).tolist()
        if kind == SPEECH:
            width = config.input_feat_per_channel * config.input_channels
            source = rng.standard_normal((how["frames"], width)).astype(np.float32)
            save_file({"input_features": torch.from_numpy(source)}, os.path.join(path, "features.safetensors"))
            source = source.tolist()
        inputs, wide = stacks(model, source, ids, tensors, facts)
    elif kind == CAUSAL:
        inputs, wide = causal(model, ids, tensors, facts)
    else:
        inputs, wide = encoder(model, ids, tensors, facts, rng)
    narrow = {k: v.float() if v.is_floating_point() else v for k, v in inputs.items()}
    facts["f32_spread"] = spread(path, kind, narrow, wide, attn)
    save_file(tensors, os.path.join(path, "expected.safetensors"))
    if "last" in how:
        how["last"](path)
    for entry in os.scandir(path):
        os.chmod(entry.path, 0o644)
    with open(os.path.join(path, "expected.json"), "w") as f:
        f.write(one_line_lists(json.dumps(facts, indent=1)))
    return facts


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", dest="out", metavar="DIR", default=os.path.join(
        os.path.dirname(os.path.abspath(__file__)), "..", "data", "models"))
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    for name in args.names or [*MODELS, *STACKS, *HEADS]:
        path = os.path.join(args.out, "../stacks" if name in STACKS else
                            "../heads" if name in HEADS else "", name)
        write_model(path, name)
        if name in HEADS:
            write_heads(path, name)
            continue
        facts = write_expected(path, name)
        gap = facts.get("greedy", {}).get("smallest_gap", math.inf)
        print(f"{name}: f32 spread {facts['f32_spread']:.1e}, greedy gap {gap:.3g}")


if __name__ == "__main__":
    main()

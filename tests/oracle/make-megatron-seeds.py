#!/usr/bin/env python3
"""make-megatron-seeds.py DIR - seeds of fuzz-megatron: a Llama of one layer as Megatron-LM and as Meta store it, and a
GPT-2 as nanoGPT and llm.c do

Needs torch.  The pickles are those of the legacy zip-less form, so that a changed byte reaches the pickle."""
import argparse
import os
import struct
import sys

import torch

out = sys.argv[1]
os.makedirs(out, exist_ok=True)
t = torch.randn
p, q = "decoder.layers.0.", "layers.0."
megatron = {"args": argparse.Namespace(num_layers=1), "iteration": 3, "checkpoint_version": 3.0, "model": {
    "embedding.word_embeddings.weight": t(8, 4), p + "self_attention.linear_qkv.layer_norm_weight": t(4),
    p + "self_attention.linear_qkv.weight": t(8, 4), p + "self_attention.linear_proj.weight": t(4, 4),
    p + "mlp.linear_fc1.layer_norm_weight": t(4), p + "mlp.linear_fc1.weight": t(12, 4), p + "mlp.linear_fc2.weight": t(4, 6),
    "decoder.final_layernorm.weight": t(4), "output_layer.weight": t(8, 4)}}
args = argparse.Namespace(
    num_layers=1, hidden_size=4, ffn_hidden_size=6, num_attention_heads=2, kv_channels=2, group_query_attention=True,
    num_query_groups=1, max_position_embeddings=8, position_embedding_type="rope", rotary_base=10000, rotary_percent=1.0,
    normalization="RMSNorm", norm_epsilon=1e-5, swiglu=True, add_bias_linear=False, untie_embeddings_and_output_weights=True,
    num_experts=None, padded_vocab_size=8)
meta = {"tok_embeddings.weight": t(5, 4), q + "attention_norm.weight": t(4), q + "attention.wq.weight": t(4, 4),
        q + "attention.wk.weight": t(2, 4), q + "attention.wv.weight": t(2, 4), q + "attention.wo.weight": t(4, 4),
        q + "ffn_norm.weight": t(4), q + "feed_forward.w1.weight": t(6, 4), q + "feed_forward.w2.weight": t(4, 6),
        q + "feed_forward.w3.weight": t(6, 4), "norm.weight": t(4), "output.weight": t(5, 4), "rope.freqs": t(1)}
g = "transformer.h.0."
nanogpt = {"model": {f"_orig_mod.{k}": v for k, v in {
    "transformer.wte.weight": t(5, 4), "transformer.wpe.weight": t(3, 4), g + "ln_1.weight": t(4), g + "attn.c_attn.weight": t(12, 4),
    g + "attn.c_proj.weight": t(4, 4), g + "ln_2.weight": t(4), g + "mlp.c_fc.weight": t(16, 4), g + "mlp.c_proj.weight": t(4, 16),
    "transformer.ln_f.weight": t(4)}.items()},
    "model_args": dict(n_layer=1, n_head=2, n_embd=4, block_size=3, bias=False, vocab_size=5, dropout=0.0), "iter_num": 1}
nanogpt["model"]["_orig_mod.lm_head.weight"] = nanogpt["model"]["_orig_mod.transformer.wte.weight"]
def adam(model):
    """The state of an optimizer of two groups, matrices and vectors."""
    leaves = [torch.nn.Parameter(v.clone()) for v in model.values()]
    o = torch.optim.AdamW([{"params": [p for p in leaves if (p.dim() > 1) == big]} for big in (True, False)])
    for leaf in leaves:
        leaf.grad = t(leaf.shape)
    o.step()
    return o.state_dict()


trained = {**megatron, "optimizer": {"optimizer": adam(megatron["model"])}}
nanogpt["optimizer"] = adam({k: v for k, v in nanogpt["model"].items() if "lm_head" not in k})
n = 0
for w in reversed(megatron["model"].values()):
    n = (n + 63) // 64 * 64 + w.numel()
flat = {0: {(torch.float32, torch.float32): {"param": t(n), "exp_avg": t(n), "exp_avg_sq": t(n), "numel_unpadded": n}}, "buckets_coalesced": True}
files = {"model_optim_rng.pt": {**megatron, "optimizer": {"optimizer": {"param_groups": []}}}, "distrib_optim.pt": flat}
os.makedirs(os.path.join(out, "../forms"), exist_ok=True)
with open(os.path.join(out, "../forms/megatron-flat"), "wb") as f:  # of fuzz-forms
    for name, value in files.items():
        torch.save(value, name, _use_new_zipfile_serialization=False)
        data = open(name, "rb").read()
        f.write(f"mp_rank_00/{name} {len(data)}\n".encode() + data)
        os.remove(name)
for name, first, value in (("megatron", b"\0", megatron), ("meta", b"\1", meta), ("args", b"\2", {**megatron, "args": args}), ("adam", b"\0", trained),
                           ("nanogpt", b"\4", nanogpt)):
    for kind in (False, True):
        path = os.path.join(out, f"{name}-{'zip' if kind else 'old'}")
        torch.save(value, path, _use_new_zipfile_serialization=kind)
        data = open(path, "rb").read()
        open(path, "wb").write(first + data)
with open(os.path.join(out, "llmc"), "wb") as f:  # positions 3, vocabulary 5 of 8 rows, one layer of width 4
    f.write(b"\x08" + struct.pack("<256i", 20240326, 5, 3, 5, 1, 2, 4, 8, *[0] * 248) + bytes(2 * (8 * 4 + 3 * 4 + 12 * 16 + 13 * 4 + 8)))

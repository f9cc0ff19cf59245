#!/usr/bin/env python3
"""make-nanogpt.py OUT - checkpoints of nanoGPT and llm.c as OUT/nanogpt.tar.gz

The layouts are those of nanoGPT's model.py and train.py, the numbers random: bias/ckpt.pt as training with torch.compile leaves
it, plain/ckpt.pt without compilation and without biases, untied/ckpt.pt with a head of its own, as forks have; plain has the moments of
nanoGPT's optimizer, and plain-moments.safetensors has them under transformers' names.  Beside each are the sums of what transformers' GPT2LMHeadModel stores
once it has the same numbers (Linear weights are the transposes of Conv1D's), and its config.json.  The models are compared here:
transformers computes what nanoGPT's formulas do.

f32.bin and bf16.bin are the numbers of another such model as llm.c's train_gpt2.c lays them out: 256 words, of which eight tell
something, and the parameters, each over all layers, with 5 rows of padding; its GELU is tanh's.

Needs torch, transformers and safetensors."""
import json
import math
import os
import shutil
import struct
import sys
import tarfile
import zlib

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(5)
work = os.path.join(sys.argv[1], "nanogpt")
shutil.rmtree(work, ignore_errors=True)
L, H, C, T, V = 2, 2, 8, 6, 11


def parameters(bias):
    """The state_dict of nanoGPT's GPT: shapes of nn.Linear, [out, in]."""
    sd = {"transformer.wte.weight": torch.randn(V, C), "transformer.wpe.weight": torch.randn(T, C)}
    for i in range(L):
        for name, shape in (("ln_1", (C,)), ("attn.c_attn", (3 * C, C)), ("attn.c_proj", (C, C)), ("ln_2", (C,)),
                            ("mlp.c_fc", (4 * C, C)), ("mlp.c_proj", (C, 4 * C))):
            sd[f"transformer.h.{i}.{name}.weight"] = torch.randn(*shape)
            if bias:
                sd[f"transformer.h.{i}.{name}.bias"] = torch.randn(shape[0])
    sd["transformer.ln_f.weight"] = torch.randn(C)
    if bias:
        sd["transformer.ln_f.bias"] = torch.randn(C)
    sd["lm_head.weight"] = sd["transformer.wte.weight"]
    return sd


def forward(sd, ids):
    """nanoGPT's formulas: exact GELU, epsilon 1e-5, causal attention, a tied head."""
    def norm(x, name):
        return F.layer_norm(x, (C,), sd[name + ".weight"], sd.get(name + ".bias"), 1e-5)

    def linear(x, name):
        return F.linear(x, sd[name + ".weight"], sd.get(name + ".bias"))
    x = sd["transformer.wte.weight"][ids] + sd["transformer.wpe.weight"][:len(ids)]
    for i in range(L):
        p = f"transformer.h.{i}."
        q, k, v = (t.view(len(ids), H, C // H).transpose(0, 1) for t in linear(norm(x, p + "ln_1"), p + "attn.c_attn").split(C, 1))
        a = (q @ k.transpose(1, 2) / math.sqrt(C // H)).masked_fill(torch.ones(len(ids), len(ids)).triu(1).bool(), -math.inf)
        x = x + linear((a.softmax(-1) @ v).transpose(0, 1).reshape(len(ids), C), p + "attn.c_proj")
        x = x + linear(F.gelu(linear(norm(x, p + "ln_2"), p + "mlp.c_fc")), p + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ sd["lm_head.weight"].T


def moments(hf, sd):
    """The optimizer of nanoGPT's configure_optimizers after a step, and the weights and moments under transformers' names."""
    leaves = {k: torch.nn.Parameter(v.clone()) for k, v in sd.items() if k != "lm_head.weight"}
    groups = [{"params": [p for p in leaves.values() if (p.dim() > 1) == decays], "weight_decay": 0.1 * decays} for decays in (1, 0)]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))
    for p in leaves.values():
        p.grad = torch.randn(p.shape)
    optimizer.step()
    truth = {}
    for key, w in hf.state_dict().items():
        if key != "lm_head.weight":
            truth[key] = w.clone()
            for role in ("exp_avg", "exp_avg_sq"):
                m = optimizer.state[leaves[key]][role] if key in leaves else torch.zeros(w.shape)
                truth[f"{key}.{role}"] = (m.T if m.dim() > 1 and m.shape == w.T.shape and ".h." in key else m).contiguous()
    return optimizer, truth


def keep(kind):
    """Keeps the sums and the config of what transformers stored."""
    lines = []
    for key, w in load_file(os.path.join(work, "hf", "model.safetensors")).items():
        data = w.contiguous().view(torch.uint8).numpy().tobytes()
        lines.append((f'"{key}"', f'{zlib.crc32(data):08x}\t{len(data)}\t"{key}"\n'))
    with open(os.path.join(work, kind + ".sums"), "w") as f:
        f.writelines(line for _, line in sorted(lines))
    shutil.move(os.path.join(work, "hf", "config.json"), os.path.join(work, kind + ".json"))
    shutil.rmtree(os.path.join(work, "hf"))


for kind, bias, prefix in (("bias", True, "_orig_mod."), ("plain", False, ""), ("untied", True, "")):
    sd = parameters(bias)
    if kind == "untied":
        sd["lm_head.weight"] = torch.randn(V, C)
    os.makedirs(os.path.join(work, kind))
    config = GPT2Config(n_layer=L, n_head=H, n_embd=C, n_positions=T, vocab_size=V, activation_function="gelu",
                        layer_norm_epsilon=1e-5, attn_pdrop=0.125, resid_pdrop=0.125, embd_pdrop=0.125,
                        bos_token_id=None, eos_token_id=None, tie_word_embeddings=kind != "untied")
    hf = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for key, w in hf.state_dict().items():
            got = sd.get(key, torch.zeros(w.shape))
            conv = key.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))
            w.copy_(got.T if conv else got)
        ids = torch.tensor([3, 1, 4, 1, 5])
        apart = (hf(ids[None]).logits[0] - forward(sd, ids)).abs().max()
    assert apart < 1e-4, apart
    hf.save_pretrained(os.path.join(work, "hf"))
    keep(kind)
    leaf = torch.nn.Parameter(sd["transformer.wte.weight"].clone())
    optimizer = torch.optim.AdamW([leaf], lr=1e-3)
    leaf.sum().backward()
    optimizer.step()
    if kind == "plain":
        optimizer, truth = moments(hf, sd)
        save_file(truth, os.path.join(work, "plain-moments.safetensors"))
    args = dict(n_layer=L, n_head=H, n_embd=C, block_size=T, bias=bias, vocab_size=V, dropout=0.125)
    torch.save({"model": {prefix + k: v for k, v in sd.items()}, "optimizer": optimizer.state_dict(), "model_args": args, "iter_num": 7,
                "best_val_loss": torch.tensor(2.5), "config": {"out_dir": "out", "learning_rate": 1e-3, "compile": bool(prefix)}},
               os.path.join(work, kind, "ckpt.pt"))
for kind, version, dtype in (("f32", 3, torch.float32), ("bf16", 5, torch.bfloat16)):
    sd = {k: v.to(dtype) for k, v in parameters(True).items()}
    hf = GPT2LMHeadModel(GPT2Config(n_layer=L, n_head=H, n_embd=C, n_positions=T, vocab_size=V, bos_token_id=None,
                                    eos_token_id=None)).to(dtype)
    with torch.no_grad():
        for key, w in hf.state_dict().items():
            w.copy_(sd[key].T if key.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")) else sd[key])
    hf.save_pretrained(os.path.join(work, "hf"))
    keep(kind)
    parts = [torch.cat([sd["transformer.wte.weight"], torch.zeros(5, C, dtype=dtype)]), sd["transformer.wpe.weight"]]
    for name in ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"):
        for which in ("weight", "bias"):
            parts.append(torch.stack([sd[f"transformer.h.{i}.{name}.{which}"] for i in range(L)]))
    parts += [sd["transformer.ln_f.weight"], sd["transformer.ln_f.bias"]]
    with open(os.path.join(work, kind + ".bin"), "wb") as f:
        f.write(struct.pack("<256i", 20240326, version, T, V, L, H, C, V + 5, *[0] * 248))
        for w in parts:
            f.write(w.contiguous().view(torch.uint8).numpy().tobytes())
with tarfile.open(os.path.join(sys.argv[1], "nanogpt.tar.gz"), "w:gz", compresslevel=9) as tar:
    tar.add(work, "nanogpt")

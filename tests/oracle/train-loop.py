#!/usr/bin/env python3
"""train-loop.py - tp-run train against a plain loop of PyTorch

    train-loop.py [MODEL...]        (eight families of tests/data/models)

Each model is stored in f32, then trained for 12 steps by tp-run train, on the layouts below, and by
a loop over the same documents with the definitions of Hugging Face's trainer: the mean over all
tokens of the global batch, clip_grad_norm_, AdamW without decay of biases and norms, a cosine with
warm-up.  Each loss must agree to 1e-5, and the weights of each tensor within ten times the distance
between the loop in float32 and in float64.  With --compute bf16 and f16 losses and weights may be at most
twice as far from those of float32 as the loop's under torch.autocast.  Needs torch, transformers,
safetensors, and the programs in PATH.
"""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

MODELS = ["llama-groups", "gpt2-untied", "neox", "bloom", "gemma2", "qwen3", "opt", "starcoder2"]
LAYOUTS = [[], ["--tp", "2", "--pp", "2", "--dp", "2"], ["--dp", "2", "--zero", "1"],
           ["--dp", "2", "--zero", "2", "--recompute", "full"], ["--dp", "4", "--zero", "3"],
           ["--tp", "2", "--dp", "2", "--zero", "3", "--recompute", "full"]]
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
STEPS, GLOBAL, WARMUP, RATE, DECAY, CLIP = 12, 4, 2, 3e-3, 0.1, 1.0


def documents(vocab):
    return [[3 + (i * 31 + k * k * 7 + k * 11) % (vocab - 4) for k in range(9 + i * 5 % 7)]
            for i in range(STEPS * GLOBAL)]


def is_spared(name):
    low = name.lower()
    return ("bias" in low or "layernorm" in low or "rmsnorm" in low or
            any(part == "norm" or part.endswith("_norm") for part in low.split(".")))


def loop(path, docs, dtype, cast=None):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, attn_implementation="eager")
    model.eval()  # as --dropout 0
    norms = {f"{n}.{p}" for n, m in model.named_modules()
             if isinstance(m, torch.nn.LayerNorm) for p, _ in m.named_parameters(recurse=False)}
    groups = [[], []]
    for name, p in model.named_parameters():
        groups[is_spared(name) or name in norms].append(p)
    optimizer = torch.optim.AdamW([{"params": groups[0], "weight_decay": DECAY},
                                   {"params": groups[1], "weight_decay": 0.0}],
                                  lr=RATE, betas=(0.9, 0.95), eps=1e-8, foreach=False, fused=False)
    losses = []
    for step in range(STEPS):
        scale = step / WARMUP if step < WARMUP else \
            0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP)))
        for g in optimizer.param_groups:
            g["lr"] = RATE * scale
        batch = docs[step * GLOBAL:(step + 1) * GLOBAL]
        counted = sum(len(d) - 1 for d in batch)
        optimizer.zero_grad()
        total = 0.0
        for d in batch:
            ids = torch.tensor([d])
            with torch.autocast("cpu", cast or torch.bfloat16, enabled=cast is not None):
                logits = model(ids).logits[0, :-1].to(dtype)
            nll = torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum")
            (nll / counted).backward()
            total += nll.item()
        losses.append(total / counted)
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
    return losses, {k: v.detach().double() for k, v in model.state_dict().items()}


def run(path, docs, layout, out):
    data = pathlib.Path(out).with_suffix(".jsonl")
    data.write_text("".join(json.dumps({"ids": d}) + "\n" for d in docs))
    subprocess.run(["tp-run", "train", "-q", "--data", str(data), "--pack", "none", "--order", "sequential",
                    "--dropout", "0", "--seq", "16", "--steps", str(STEPS), "--global-batch", str(GLOBAL),
                    "--lr", str(RATE), "--lr-schedule", "cosine", "--warmup", str(WARMUP), "--beta2", "0.95",
                    "--weight-decay", str(DECAY), "--clip", str(CLIP), "--threads", "1", *layout, "-o", out, path],
                   check=True)
    subprocess.run(["tp-shard", "merge", "-q", f"{out}/step-{STEPS:06}", out + ".merged"], check=True)
    with open(f"{out}/log.jsonl", encoding="utf-8") as f:
        lines = [json.loads(x) for x in f]
    model = AutoModelForCausalLM.from_pretrained(out + ".merged", dtype=torch.float32)
    return [x["loss"] for x in lines if x["type"] == "step"], \
        {k: v.double() for k, v in model.state_dict().items()}


def far(a, b):
    """The largest distance of losses, and the mean distance of weights."""
    losses = max(abs(x - y) for x, y in zip(a[0], b[0]))
    total = sum((a[1][k] - b[1][k]).abs().sum().item() for k in b[1])
    return losses, total / sum(b[1][k].numel() for k in b[1])


def check_rounded(name, path, docs, exact, scratch, kind):
    """Whether --compute TYPE is as near to EXACT as torch.autocast."""
    ours = far(run(path, docs, ["--compute", kind], os.path.join(scratch, kind)), exact)
    torchs = far(loop(path, docs, torch.float32, cast=TYPES[kind]), exact)
    good = ours[0] <= 2 * torchs[0] and ours[1] <= 2 * torchs[1]
    print(f"{name} --compute {kind}: losses {ours[0]:.1e} from those of f32, weights {ours[1]:.1e}; under autocast "
          f"{torchs[0]:.1e} and {torchs[1]:.1e}: {'ok' if good else 'NOT OK'}", flush=True)
    return good


def main():
    here = pathlib.Path(__file__).resolve().parent
    bad = 0
    for name in sys.argv[1:] or MODELS:
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, name)
            model = AutoModelForCausalLM.from_pretrained(here.parent / "data/models" / name, dtype=torch.float32)
            model.save_pretrained(path)
            docs = documents(model.config.vocab_size)
            l32, w32 = loop(path, docs, torch.float32)
            _, w64 = loop(path, docs, torch.float64)
            for kind in TYPES:
                bad += not check_rounded(name, path, docs, (l32, w32), scratch, kind)
            for layout in LAYOUTS:
                try:
                    losses, weights = run(path, docs, layout, os.path.join(scratch, "run" + "".join(layout)))
                except subprocess.CalledProcessError:
                    print(f"{name} {' '.join(layout)}: could not be trained")
                    bad += 1
                    continue
                off = max(abs(a - b) / b for a, b in zip(losses, l32))
                worst = max(((weights[k] - w32[k]).abs().max().item() /
                             (10 * (w32[k] - w64[k]).abs().max().item() + 1e-7), k) for k in w32)
                verdict = "ok" if off < 1e-5 and len(losses) == STEPS and worst[0] <= 1 else "NOT OK"
                bad += verdict != "ok"
                print(f"{name} {' '.join(layout) or 'one rank'}: losses within {off:.1e}, weights within "
                      f"{worst[0]:.2f} of the bound ({worst[1]}): {verdict}", flush=True)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()

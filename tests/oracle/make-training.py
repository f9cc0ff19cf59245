#!/usr/bin/env python3
"""make-training.py - what a plain loop of PyTorch makes of some of make-models.py's models

    make-training.py [-o DIR]

training.tsv: for each model STEPS lines `model step loss norm rate` and one line for each tensor,
`model tensor spread sum0 .. sum3`: the sums of its weights at the end under the signs of
make-gradients.py, from float64, and how far a loop in float32 lies from them (the largest
difference of an element). The loop has the definitions of Hugging Face's Trainer, with which
it agrees to the last digits: the mean over all targets of the global batch, clipping by
(norm + 1e-6), AdamW, decay of all but biases and norms, a cosine with one step of warm-up.

padding.tsv: the same of models with a padding token, which every fourth token of a sample is: its row of
the table gets no gradient as an input, though as a row of a tied head.

sgd.tsv: lines `step p g b p64 b64`, the same of torch.optim.SGD(momentum=0.9) in float32, and what it
makes in float64 of the same gradients.

lion.tsv: the same of lion_pytorch's Lion in float32, and of the paper's equations in float64.

adamw.tsv: lines `step p g m v`, in hexadecimal, of torch.optim.AdamW(foreach=False, fused=False):
after each step, and the gradient of that step; step 0 is before the first.

The batches follow from batch(), which tests/unit-train.c has as well.
"""
import argparse
import importlib.util
import math
import os
import re
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("gradients", os.path.join(here, "make-gradients.py"))
gradients = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gradients)
models = gradients.models

import torch
import transformers
from safetensors.torch import load_file

STEPS, GLOBAL, CLIP, RATE, DECAY, WARMUP = 6, 12, 1.5, 3e-3, 0.1, 1
NAMES = ["llama-gqa", "gpt2-untied", "qwen3", "gemma2", "neox", "bloom", "olmo2", "bigcode",
         "phi", "mixtral"]
PADDED = ["opt", "cohere-normed"]
SPARED = re.compile(r"bias|layernorm|rmsnorm|(?:^|\.)norm(?:$|\.)|_norm(?:$|\.)")


def batch(step, i, vocab, pad=None):
    """Ids and labels of sample I of the batch of STEP: 9 to 15 tokens, the first few not learned.
    PAD: every fourth id."""
    n = 9 + (i * 5 + step) % 7
    ids = [3 + (step * 131 + i * 31 + k * k * 7 + k * 11) % (vocab - 4) for k in range(n)]
    if pad is not None:
        ids[2::4] = [pad] * len(ids[2::4])
    return ids, [-100 if k <= i % 3 else ids[k] for k in range(n)]


def rate_of(step):
    if step < WARMUP:
        return RATE * step / WARMUP
    return RATE * max(0.0, 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP))))


def train(name, dtype, padded):
    """Lines of steps, and the tensors at the end."""
    kind, _, how, after = models.MODELS[name]
    lines = []
    with tempfile.TemporaryDirectory() as tmp:
        models.write_model(tmp, name)
        model = getattr(transformers, kind).from_pretrained(
            tmp, dtype=dtype, experts_implementation="eager",
            attn_implementation=how.get("attn", "eager")).eval()
        norms = {id(p) for m in model.modules() if isinstance(m, torch.nn.LayerNorm)
                 for p in m.parameters()}
        named = list(model.named_parameters())
        spared = [p for n, p in named if SPARED.search(n.lower()) or id(p) in norms]
        decayed = [p for n, p in named if not any(p is q for q in spared)]
        adam = torch.optim.AdamW([{"params": decayed, "weight_decay": DECAY},
                                  {"params": spared, "weight_decay": 0.0}],
                                 lr=RATE, betas=(0.9, 0.95), eps=1e-8, foreach=False)
        pad = model.get_input_embeddings().padding_idx if padded else None
        for step in range(STEPS):
            samples = [batch(step, i, model.config.vocab_size, pad) for i in range(GLOBAL)]
            counted = sum(y != -100 for _, labels in samples for y in labels[1:])
            loss = 0.0
            model.zero_grad()
            for ids, labels in samples:
                logits = model(torch.tensor([ids]), use_cache=False).logits[0, :-1]
                part = torch.nn.functional.cross_entropy(
                    logits, torch.tensor(labels[1:]), ignore_index=-100, reduction="sum") / counted
                part.backward()
                loss += part.item()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).item()
            for group in adam.param_groups:
                group["lr"] = rate_of(step)
            adam.step()
            lines.append([name, str(step + 1), f"{loss:.9g}", f"{norm:.9g}", f"{rate_of(step):.9g}"])
        model.save_pretrained(tmp)
        if after:
            after(tmp)
        out = {}
        for entry in os.scandir(tmp):
            if entry.name.endswith(".safetensors"):
                out.update(load_file(entry.path))
    return lines, out


def write_training(file, names, padded):
    with open(file, "w") as f:
        for name in names:
            lines, wide = train(name, torch.float64, padded)
            _, narrow = train(name, torch.float32, padded)
            for line in lines:
                f.write("\t".join(line) + "\n")
            for key in sorted(wide):
                w = wide[key].double().reshape(-1)
                off = (narrow[key].double().reshape(-1) - w).abs().max().item()
                sums = [(w * gradients.signs(len(w), k)).sum().item() for k in range(4)]
                f.write("\t".join([name, key, f"{off:.3g}", *(f"{x:.9g}" for x in sums)]) + "\n")


def write_adamw(file):
    torch.manual_seed(7)
    p = torch.nn.Parameter(torch.randn(200))
    adam = torch.optim.AdamW([p], lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01,
                             foreach=False, fused=False)
    zero = torch.zeros(200)
    with open(file, "w") as f:
        def write(step, *columns):
            for row in zip(*(c.tolist() for c in columns)):
                f.write("\t".join([str(step), *(x.hex() for x in row)]) + "\n")
        write(0, p.detach(), zero, zero, zero)
        for step in range(1, 4):
            p.grad = torch.randn(200) * 0.1
            adam.step()
            state = adam.state[p]
            write(step, p.detach(), p.grad, state["exp_avg"], state["exp_avg_sq"])


def write_sgd(file):
    torch.manual_seed(8)
    start = torch.randn(200)
    p = [torch.nn.Parameter(start.to(t)) for t in (torch.float32, torch.float64)]
    sgd = [torch.optim.SGD([x], lr=1e-2, momentum=0.9, weight_decay=0.01, foreach=False,
                           fused=False) for x in p]
    zero = torch.zeros(200)
    with open(file, "w") as f:
        def write(step, *columns):
            for row in zip(*(c.tolist() for c in columns)):
                f.write("\t".join([str(step), *(x.hex() for x in row)]) + "\n")
        write(0, p[0].detach(), zero, zero, p[1].detach(), zero)
        for step in range(1, 5):
            gradient = torch.randn(200) * 0.1
            for x, s in zip(p, sgd):
                x.grad = gradient.to(x.dtype)
                s.step()
            b = [s.state[x]["momentum_buffer"] for x, s in zip(p, sgd)]
            write(step, p[0].detach(), gradient, b[0], p[1].detach(), b[1])


def write_lion(file):
    from lion_pytorch import Lion
    torch.manual_seed(9)
    p = torch.nn.Parameter(torch.randn(200))
    lion = Lion([p], lr=1e-3, betas=(0.9, 0.99), weight_decay=0.01)
    wide, m = p.detach().double(), torch.zeros(200, dtype=torch.float64)
    with open(file, "w") as f:
        def write(step, *columns):
            for row in zip(*(c.tolist() for c in columns)):
                f.write("\t".join([str(step), *(x.hex() for x in row)]) + "\n")
        write(0, p.detach(), m.float(), m.float(), wide, m)
        for step in range(1, 5):
            p.grad = torch.randn(200) * 0.1
            lion.step()
            g = p.grad.double()
            wide = wide - 1e-3 * ((0.9 * m + 0.1 * g).sign() + 0.01 * wide)
            m = 0.99 * m + 0.01 * g
            write(step, p.detach(), p.grad, lion.state[p]["exp_avg"], wide, m)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", dest="out", metavar="DIR", default=gradients.data)
    args = parser.parse_args()
    write_adamw(os.path.join(args.out, "adamw.tsv"))
    write_sgd(os.path.join(args.out, "sgd.tsv"))
    write_lion(os.path.join(args.out, "lion.tsv"))
    write_training(os.path.join(args.out, "training.tsv"), NAMES, False)
    write_training(os.path.join(args.out, "padding.tsv"), PADDED, True)


if __name__ == "__main__":
    main()

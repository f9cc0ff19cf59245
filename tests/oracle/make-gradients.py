#!/usr/bin/env python3
"""make-gradients.py - the gradients of the tiny causal models of make-models.py

    make-gradients.py [-o FILE] [NAME...]

For each tensor of a checkpoint, that of the mean negative log-likelihood of all targets of the
model's ids (expected.json), by PyTorch in float64 with eager attention. A line of FILE
(tests/data/gradients.tsv) has what tells one gradient from another, separated by tabs:

    model  tensor  elements  largest absolute value  4 sums under signs  4 elements

The sign of element i in sum k and the place of element k follow from i and k alone (sign(),
place()); tests/unit-gradient.c has the same functions. Gradients become tensors of a checkpoint
by being saved as the model's weights are, so that experts, prefixes and old forms come out as the
model's own files have them.
"""
import argparse
import importlib.util
import json
import os
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("models", os.path.join(here, "make-models.py"))
models = importlib.util.module_from_spec(spec)
spec.loader.exec_module(models)

import torch
import transformers
from safetensors.torch import load_file

CARRIED = (".act_fn.beta", ".act_fn.eps")  # numbers of xIELU that are no weights
data = os.path.join(here, "..", "data")


def signs(n, k):
    i = torch.arange(n, dtype=torch.int64)
    h = (i * 0x9E3779B1 + k * 0x85EBCA77) & 0xFFFFFFFF
    h = h ^ (h >> 15)
    h = (h * 0x2C1B3C6D) & 0xFFFFFFFF
    return 1.0 - 2.0 * (h >> 31).double()


def place(n, k):
    return (k * 7919 + 13) * 104729 % n


def gradients(name):
    """Tensor name -> float64 gradient."""
    kind, _, how, after = models.MODELS[name]
    with open(os.path.join(data, "models", name, "expected.json")) as f:
        ids = torch.tensor([json.load(f)["ids"]])
    with tempfile.TemporaryDirectory() as tmp:
        models.write_model(tmp, name)
        model = getattr(transformers, kind).from_pretrained(
            tmp, dtype=how.get("wide", torch.float64), experts_implementation="eager",
            attn_implementation=how.get("attn", "eager")).eval()
        if "dynamic" in name:  # as make-models.py: a short input makes it forget longer ones
            model(ids[:, :1], use_cache=False)
        logits = model(ids, use_cache=False).logits[0]
        loss = torch.nn.functional.cross_entropy(logits[:-1], ids[0, 1:])
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(p.grad if p.grad is not None else torch.zeros_like(p))
            for b in model.buffers():
                if b.is_floating_point():
                    b.zero_()
        model.save_pretrained(tmp)
        if after:
            after(tmp)
        if "last" in how:
            how["last"](tmp)
        out = {}
        for entry in os.scandir(tmp):
            if entry.name.endswith(".safetensors"):
                out.update(load_file(entry.path))
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", dest="out", metavar="FILE",
                        default=os.path.join(data, "gradients.tsv"))
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    names = args.names or [n for n, m in models.MODELS.items() if m[0] == models.CAUSAL]
    lines = []
    for name in names:
        wanted = gradients(name)
        for key in sorted(wanted):
            if key.endswith(CARRIED):
                continue
            g = wanted[key].double().reshape(-1)
            sums = [(g * signs(len(g), k)).sum().item() for k in range(4)]
            some = [g[place(len(g), k)].item() for k in range(4)]
            lines.append("\t".join([name, key, str(len(g)),
                                    *(f"{x:.7g}" for x in [g.abs().max().item(), *sums, *some])]))
    if args.names and os.path.exists(args.out):  # the other models' lines stay
        with open(args.out) as f:
            lines = [s for s in f.read().splitlines() if s.split("\t")[0] not in args.names] + lines
    with open(args.out, "w") as f:
        f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

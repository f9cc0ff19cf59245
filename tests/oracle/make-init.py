#!/usr/bin/env python3
"""make-init.py - how transformers draws the weights of make-models.py's causal models

    make-init.py [-o DIR]

init.tsv: lines `model tensor how value row`, tensors of all layers and experts as one, with # for their
numbers: how is `normal` (value: the standard deviation) or `all`
(value: of every element), row a row of zeros, or -1. Random draws are replaced by constants that tell
the deviation, so the figures are exact, and what is saved has the names of files.
"""
import argparse
import glob
import json
import os
import re
import tempfile

import torch
import transformers
from transformers import initialization
from safetensors.torch import load_file

here = os.path.dirname(os.path.abspath(__file__))
TOLD = 1000.0


def tell(tensor, mean=0.0, std=1.0, generator=None):
    with torch.no_grad():
        return tensor.fill_(TOLD * (1 + std))


torch.nn.init.normal_ = tell
initialization.normal_ = tell


def lines(directory):
    config = transformers.AutoConfig.from_pretrained(directory)
    kind = (json.load(open(os.path.join(directory, "config.json"))).get("architectures") or [""])[0]
    if not kind.endswith(("ForCausalLM", "LMHeadModel")) or not hasattr(transformers, kind):
        return
    model = getattr(transformers, kind)(config).float()
    with tempfile.TemporaryDirectory() as tmp:
        model.save_pretrained(tmp)
        tensors = load_file(os.path.join(tmp, "model.safetensors"))
    for name, t in sorted(tensors.items()):
        rows = t.reshape(t.shape[0], -1)
        zero = [r for r in range(len(rows)) if rows.any() and not rows[r].any()]
        first = rows[0 if 0 not in zero else 1][0].item()
        assert all((rows[r] == first).all() for r in range(len(rows)) if r not in zero) and len(zero) < 2, name
        how = ("normal", first / TOLD - 1) if first >= TOLD else ("all", first)
        name = re.sub(r"(?<=\.)\d+(?=\.)", "#", name)
        yield f"{os.path.basename(directory)}\t{name}\t{how[0]}\t{how[1]:.7g}\t{zero[0] if zero else -1}\n"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-o", default=os.path.join(here, "..", "data"))
    args = p.parse_args()
    with open(os.path.join(args.o, "init.tsv"), "w") as f:
        for config in sorted(glob.glob(os.path.join(here, "..", "data", "models", "*", "config.json"))):
            try:
                f.writelines(sorted(set(lines(os.path.dirname(config)))))
            except Exception as e:  # a config that only its own code reads
                print(os.path.dirname(config), repr(e)[:200])


main()

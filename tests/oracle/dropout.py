#!/usr/bin/env python3
"""dropout.py - where transformers drops, and at which rates, beside tp-run program --train

For each causal model of make-models.py every rate of its config gets a value of its own; a pass in training
tells the rates that torch is asked for, and how often. Prints what differs."""
import collections
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

import torch
import transformers

here = os.path.dirname(os.path.abspath(__file__))
seen = collections.Counter()


def note(x, p=0.5, training=True, inplace=False):
    if training and p > 0:
        seen[f"{p:g}"] += 1
    return x


torch.nn.functional.dropout = note
transformers.logging.set_verbosity_error()


def distinct(config, rates):
    """Give each rate in the config a value of its own."""
    for key, value in sorted(config.items()):
        if isinstance(value, dict):
            distinct(value, rates)
        elif re.search("p?drop", key) and "layerdrop" not in key and "classifier" not in key and "summary" not in key:
            config[key] = next(rates)


wrong = 0
for path in sorted(glob.glob(os.path.join(here, "..", "data", "models", "*", "config.json"))):
    name = os.path.basename(os.path.dirname(path))
    config = json.load(open(path))
    kind = (config.get("architectures") or [""])[0]
    if not kind.endswith(("ForCausalLM", "LMHeadModel")) or not hasattr(transformers, kind):
        continue
    distinct(config, iter([0.01 * k for k in range(1, 20)]))
    with tempfile.TemporaryDirectory() as tmp:
        json.dump(config, open(os.path.join(tmp, "config.json"), "w"))
        try:
            asked = transformers.AutoConfig.from_pretrained(tmp, attn_implementation="eager")
        except Exception as e:  # transformers 5.23 takes whole numbers alone for MPT's rate
            print(name, str(e).split("\n")[-1].strip())
            continue
        model = getattr(transformers, kind)(asked).train()
        seen.clear()
        model(torch.arange(1, 9)[None])
        text = subprocess.run(["tp-run", "program", "--train", tmp], capture_output=True, text=True)
    ours = collections.Counter()
    for line in text.stdout.split("\n"):
        m = re.search(r"= attention\(.*, dropout ([0-9.e-]+)\)", line) or re.search(r"= dropout\(.*, ([0-9.e-]+)\); rows", line)
        if m:
            # a value is dropped once more going back, by an instruction of the same name
            ours[m.group(1)] += 1 if "attention(" in line.split(";")[0] else 0.5
    if text.returncode or ours != seen:
        wrong += 1
        print(name, "transformers", dict(seen), "here", dict(ours), text.stderr[:200])
print(wrong, "differ")
sys.exit(wrong > 0)

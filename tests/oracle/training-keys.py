#!/usr/bin/env python3
"""training-keys.py - which keys of a config act in training alone

    training-keys.py [-o DIR]

For each causal model of tests/data/keys/base.json, and each value of a key that tests/data/keys/verdicts.tsv says to give
transformers' logits, the loss of the class in train mode, without dropout, is compared with that of its logits in eval mode.
training.tsv: lines `type key value acts` where they differ, by more than 1e-5, and `type key value same` for the other values of a
key that has such a line; `type - - acts`: the class trains otherwise whatever the keys.  Keys of dropout are not tried:
dropout.py has them.  tests/unit-keys.c holds tp-run against the table.
"""
import argparse
import json
import os
import re

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

HERE = os.path.dirname(os.path.abspath(__file__))
KEYS = os.path.join(HERE, "..", "data", "keys")
UNSHIFTED = ("xlm", "xlnet", "flaubert")  # whose labels are those of the same place
DROPS = re.compile(r"p?drop(?!_path)")
transformers.logging.set_verbosity_error()


def set_key(config, path, value):
    config = json.loads(json.dumps(config))
    at = config
    *parents, last = path.split(".")
    for p in parents:
        at = at[p]
    if value == "absent":
        del at[last]
    else:
        at[last] = json.loads(value)
    return config


def without_dropout(config):
    for key, value in list(config.items()):
        if isinstance(value, dict):
            without_dropout(value)
        elif DROPS.search(key) and "layerdrop" not in key and isinstance(value, float):
            config[key] = 0.0
    return config


def acts(kind, config, tries=2):
    torch.manual_seed(3)
    cls = transformers.models.auto.configuration_auto.CONFIG_MAPPING[kind]
    model = transformers.AutoModelForCausalLM.from_config(cls(**without_dropout(config)), attn_implementation="eager", experts_implementation="eager")
    if kind != "xglm":  # which has a number of float32
        model = model.double()
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.normal_(0, 0.3)
    ids = torch.randint(3, 60, (2, 12))
    model.eval()
    logits = model(ids, use_cache=False).logits[:, :-1].reshape(-1, model.config.vocab_size)
    want = torch.nn.functional.cross_entropy(logits, ids[:, 1:].reshape(-1))
    model.train()
    far = 0.0
    for _ in range(tries):
        loss = model(ids, labels=ids, use_cache=False).loss
        far = max(far, abs(loss.item() - want.item()))
    return far > 1e-5 * abs(want.item())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", dest="out", metavar="DIR", default=KEYS)
    args = parser.parse_args()
    with open(os.path.join(KEYS, "base.json")) as f:
        bases = json.load(f)
    trials = {}
    with open(os.path.join(KEYS, "verdicts.tsv")) as f:
        for line in f:
            kind, key, value, verdict = line.rstrip("\n").split("\t")
            if verdict == "same" and key != "dtype" and not (DROPS.search(key) and "layerdrop" not in key):
                trials.setdefault(kind, []).append((key, value))
    lines = []
    for kind, base in bases.items():
        names = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(kind, "")
        if kind in UNSHIFTED or not set(base.get("architectures") or []) & {names}:
            continue
        if acts(kind, base):
            lines.append([kind, "-", "-", "acts"])
            print(kind, "acts")
            continue
        found = {}
        for key, value in trials.get(kind, []):
            try:
                found.setdefault(key, []).append((value, acts(kind, set_key(base, key, value), 12 if "layerdrop" in key else 2)))
            except Exception as e:
                print(kind, key, value, "fails:", str(e)[:80])
        for key, values in found.items():
            if any(a for _, a in values):
                lines += [[kind, key, v, "acts" if a else "same"] for v, a in values]
                print(kind, key, values)
    with open(os.path.join(args.out, "training.tsv"), "w") as f:
        for line in lines:
            f.write("\t".join(line) + "\n")


if __name__ == "__main__":
    main()

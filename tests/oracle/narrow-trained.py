#!/usr/bin/env python3
"""narrow-trained.py - a trained model of tests/data/models in bfloat16, and what it answers then

    narrow-trained.py DIR...

DIR/hf holds the model, DIR/expected.json the prompt and how many tokens follow it.  The weights are
rounded to bfloat16; greedy ids, mean negative log-likelihood and the first logits after the prompt are
computed from them by `transformers` in float64.  (transformers 5.23, torch 2.13)
"""
import json
import os
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

LEAST = 1e-3  # between the first and the second logit of each greedy token

for path in sys.argv[1:]:
    weights, facts = (os.path.join(path, name) for name in ("hf/model.safetensors", "expected.json"))
    save_file({k: v.to(torch.bfloat16) for k, v in load_file(weights).items()}, weights, {"format": "pt"})
    os.chmod(weights, 0o644)
    with open(facts) as f:
        old = json.load(f)
    with open(os.path.join(path, "hf/config.json")) as f:
        config = json.load(f)
    with open(os.path.join(path, "hf/config.json"), "w") as f:
        f.write(json.dumps({**config, "torch_dtype": "bfloat16"}, indent=1) + "\n")
    model = AutoModelForCausalLM.from_pretrained(os.path.join(path, "hf"), dtype=torch.float64, attn_implementation="eager").eval()
    ids, length = list(old["prompt_ids"]), len(old["prompt_ids"])
    with torch.no_grad():
        while len(ids) < len(old["greedy_ids"]):
            first, second = model(torch.tensor([ids])).logits[0, -1].topk(2).values.tolist()
            assert first - second > LEAST, (len(ids), first - second)
            ids.append(model(torch.tensor([ids])).logits[0, -1].argmax().item())
        logits = model(torch.tensor([ids])).logits[0]
    nll = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:])).item()
    print(path, "the same ids" if ids == old["greedy_ids"] else "other ids", old["mean_nll_of_greedy_ids"], nll)
    new = {"prompt_ids": old["prompt_ids"], "greedy_ids": ids, "mean_nll_of_greedy_ids": nll,
           "last_prompt_logits_first8": logits[length - 1, :8].tolist(), "precision": "computed by transformers in float64 from bfloat16 weights"}
    if ids == old["greedy_ids"]:
        new["text"] = old["text"]
    with open(facts, "w") as f:
        f.write(json.dumps(new, indent=1) + "\n")

#!/usr/bin/env python3
"""check-adapter - an adapter that tp-run train wrote, as PEFT reads it

  check-adapter.py MODEL ADAPTER LOGITS ID...     needs torch, transformers, peft, safetensors

Loads ADAPTER, a step-N directory, beside MODEL by PEFT, computes in float64, and compares with "logits" of the file
LOGITS, which tp-run logits made of the run.  Prints the largest difference, and what the adapter changes; fails above
1e-5 of the largest logit, or if it changes nothing.
"""
import sys

import torch
import transformers
from peft import PeftModel
from safetensors.torch import load_file

model, adapter, file, *ids = sys.argv[1:]
kind = transformers.AutoConfig.from_pretrained(model).architectures[0]
eager = {} if "Classification" in kind else dict(experts_implementation="eager")
base = getattr(transformers, kind).from_pretrained(model, dtype=torch.float32, **eager)
peft = PeftModel.from_pretrained(base, adapter).double().eval()
text = torch.tensor([[int(i) for i in ids]])
with torch.no_grad():
    own = peft(text).logits.flatten(0, -2)
    with peft.disable_adapter():
        plain = peft(text).logits.flatten(0, -2)
apart, changed = (own - load_file(file)["logits"]).abs().max().item(), (own - plain).abs().max().item()
print(f"{apart:.2g} apart, {changed:.2g} changed")
sys.exit(not (apart <= 1e-5 * own.abs().max() and changed > 100 * apart))

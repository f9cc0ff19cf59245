#!/usr/bin/env python3
# time-training - a plain loop of PyTorch, to compare 'tp-run train' with:
#
#   time-training.py MODEL IDS.jsonl STEPS f32|bf16 MICRO GLOBAL
#
# AdamW (beta 0.9 and 0.999, eps 1e-8, no decay) at 1e-5, f32 weights, GLOBAL lines of ids a step, MICRO at a
# time, products in bf16 by autocast.  Prints a line of losses, and tokens a second without the first five steps.
import json
import sys
import time

import torch
from transformers import AutoModelForCausalLM

model, data, steps, compute = sys.argv[1:5]
micro, each = int(sys.argv[5]), int(sys.argv[6])
torch.backends.cuda.matmul.allow_tf32 = False
m = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="sdpa").cuda()
o = torch.optim.AdamW(m.parameters(), lr=1e-5, weight_decay=0.0, fused=True)
lines = [json.loads(line)["ids"] for line in open(data)]
losses, seconds, tokens = [], 0.0, 0
for i in range(int(steps)):
    batch = [lines[(i * each + k) % len(lines)] for k in range(each)]
    torch.cuda.synchronize()
    start = time.perf_counter()
    total = 0.0
    for k in range(0, each, micro):
        ids = torch.tensor(batch[k : k + micro], device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=compute == "bf16"):
            logits = m(ids[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten()) * micro / each
        loss.backward()
        total += loss.detach()
    o.step()
    o.zero_grad(set_to_none=True)
    losses.append(float(total))
    torch.cuda.synchronize()
    if i >= 5:
        seconds += time.perf_counter() - start
        tokens += each * (len(batch[0]) - 1)
print("losses", *("%.6f" % x for x in losses))
print("tokens_per_second %.1f" % (tokens / seconds))

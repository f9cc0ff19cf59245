#!/usr/bin/env python3
"""check-order.py MODEL... - whose moments are those of an optimizer.pt, beside tp-shard's answer

Needs torch 2.13, transformers 5.24 (4.57 does, too), and tp-shard in PATH.  Each MODEL is a directory of Hugging Face's: its
architecture is made from its config.json, filled with numbers of which none comes twice, and saved as Trainer saves it,
with an optimizer.pt whose moments are the parameters' own numbers (exp_avg) and their magnitudes (exp_avg_sq), in
Trainer's two groups.  So every moment that tp-shard finds must have its weight's bits.  A line for each: `right` with
the number of moments, `wrong` with some names, or `refused` with what tp-shard said, and for `no model` what
transformers said.  The status is 1 when one was wrong."""
import json
import os
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors import safe_open
from transformers import AutoConfig
from transformers.trainer_pt_utils import get_parameter_names

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
FORBIDDEN = [r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)"]  # of Trainer


def write(model, out, groups):
    torch.manual_seed(7)
    for p in model.parameters():
        p.data = torch.randn(p.shape)
    model.save_pretrained(out)
    decays = set(get_parameter_names(model, [torch.nn.LayerNorm], FORBIDDEN))
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    split = [[p for n, p in named if n in decays], [p for n, p in named if n not in decays]]
    if groups == 1:
        split = [[p for _, p in named]]
    o = torch.optim.AdamW([{"params": x, "weight_decay": 0.1 if i == 0 else 0.0} for i, x in enumerate(split)], lr=1e-3)
    for p in (p for x in split for p in x):
        o.state[p] = {"step": torch.tensor(3.0), "exp_avg": p.data.clone(), "exp_avg_sq": p.data.abs()}
    torch.save(o.state_dict(), f"{out}/optimizer.pt")


def judge(out):
    cut = f"{out}.cut"
    x = subprocess.run(["tp-shard", "split", "-q", "--tp", "1", "--moments", out, cut], capture_output=True, text=True)
    if x.returncode:
        return "refused", x.stderr.strip().split("\n")[0]
    files = {}
    for top, _, names in os.walk(cut):
        for n in names:
            if n.endswith(".safetensors"):
                f = safe_open(f"{top}/{n}", "pt")
                files.update({k: f for k in f.keys()})
    bad, n = [], 0
    for k in files:
        if k.endswith(".exp_avg"):
            n += 1
            w = files[k[:-8]].get_tensor(k[:-8])
            if not torch.equal(files[k].get_tensor(k), w) or \
                    not torch.equal(files[k + "_sq"].get_tensor(k + "_sq"), w.abs()):
                bad.append(k[:-8])
    return ("wrong", " ".join(bad)) if bad else ("right", n) if n else ("refused", "no moments")


def main(dirs):
    wrong = False
    for d in dirs:
        family = json.load(open(f"{d}/config.json")).get("model_type")
        for groups in 2, 1:
            with tempfile.TemporaryDirectory() as tmp:
                try:
                    config = AutoConfig.from_pretrained(d)
                    config.dtype = torch.float32
                    model = getattr(transformers, (config.architectures or ["?"])[0])(config).float()
                    write(model, f"{tmp}/{os.path.basename(d)}", groups)
                    verdict, what = judge(f"{tmp}/{os.path.basename(d)}")
                except Exception as e:
                    verdict, what = "no model", f"{type(e).__name__}: {e}".split("\n")[0][:150]
            print(f"{os.path.basename(d)}\t{family}\t{groups}\t{verdict}\t{str(what).replace(tmp + '/', '')[:200]}", flush=True)
            wrong |= verdict == "wrong"
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

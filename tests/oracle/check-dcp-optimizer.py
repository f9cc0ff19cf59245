#!/usr/bin/env python3
"""Load what `tp-shard merge --export dcp` wrote of a training with PyTorch, model and optimizer.

usage: check-dcp-optimizer.py DCP_DIRECTORY STATE.safetensors

Loads it into a model of DCP_DIRECTORY/config.json and an AdamW of two groups, by get_optimizer_state_dict and
set_optimizer_state_dict, nested and flattened, and compares weights and moments with STATE (NAME.master,
NAME.exp_avg, NAME.exp_avg_sq).  Needs torch, transformers and safetensors.
"""
import sys

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch.distributed.checkpoint.state_dict import (StateDictOptions, get_optimizer_state_dict,
                                                     set_optimizer_state_dict)
from transformers import AutoConfig, AutoModelForCausalLM


def main(directory, state):
    want = load_file(state)
    for flat in (False, True):
        m = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(directory)).float()
        o = torch.optim.AdamW([{"params": [p for p in m.parameters() if p.dim() > 1]},
                               {"params": [p for p in m.parameters() if p.dim() < 2]}], lr=3e-4, weight_decay=0.3)
        options = StateDictOptions(flatten_optimizer_state_dict=flat)
        planned = {**m.state_dict(), "optimizer": get_optimizer_state_dict(m, o, options=options)}
        dcp.load(planned, checkpoint_id=directory, no_dist=True)
        m.load_state_dict({k: v for k, v in planned.items() if k != "optimizer"})
        set_optimizer_state_dict(m, o, planned["optimizer"], options=options)
        steps = set()
        for name, p in m.named_parameters():
            assert torch.equal(p.data, want.get(name + ".master", want[name].float())), name
            for role in ("exp_avg", "exp_avg_sq"):
                assert torch.equal(o.state[p][role], want[f"{name}.{role}"]), (name, role)
            steps.add(float(o.state[p]["step"]))
        print("flattened:" if flat else "nested:", len(o.state), "parameters equal; step", steps,
              "lr", {g["lr"] for g in o.param_groups}, "weight_decay", [g["weight_decay"] for g in o.param_groups])


if __name__ == "__main__":
    main(*sys.argv[1:])

#!/usr/bin/env python3
"""Load what `tp-shard merge --export deepspeed-universal` wrote with DeepSpeed, and compare it with the original.

usage: check-deepspeed.py DIRECTORY STATE.safetensors

Two ranks (gloo, CPU) make a Llama of DIRECTORY/config.json, load the directory with load_universal_checkpoint at ZeRO
stages 1, 2 and 3, and compare masters, moments and steps with STATE (NAME.master, NAME.exp_avg, NAME.exp_avg_sq).
Needs torch, transformers, deepspeed 0.19.8 (DS_BUILD_OPS=0) and safetensors.
"""
import os
import sys
import tempfile

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("DS_BUILD_OPS", "0")

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def rank_main(rank, ranks, directory, state, stage, port):
    import deepspeed
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
    from safetensors.torch import load_file
    from transformers import AutoConfig, AutoModelForCausalLM
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo needs no compiler
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port))
    deepspeed.init_distributed(dist_backend="gloo")
    torch.manual_seed(3)
    m = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(directory)).float()
    groups = [{"params": [p for p in m.parameters() if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in m.parameters() if p.dim() <= 1], "weight_decay": 0.0}]
    o = torch.optim.AdamW(groups, lr=7e-4)
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True},
              "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
              "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
              "checkpoint": {"load_universal": True}}
    e, o, _, _ = deepspeed.initialize(model=m, optimizer=o, config=config)
    path, _ = e.load_checkpoint(directory)
    assert path, "nothing was loaded"
    want = load_file(state)
    count = 0
    for name, p in e.module.named_parameters():
        got = {"master": safe_get_full_fp32_param(p)}
        for role in ("exp_avg", "exp_avg_sq"):
            got[role] = safe_get_full_optimizer_state(p, role)
        for role, t in got.items():
            full = want.get(f"{name}.{role}", want[name].float() if role == "master" else None)
            assert torch.equal(t.cpu().float().reshape(full.shape), full), (stage, name, role)
            count += 1
    inner = o.optimizer
    steps = {float(s["step"]) for s in inner.state.values() if "step" in s}
    assert len(steps) == 1, steps
    if rank == 0:
        print(f"stage {stage}: {count} tensors equal; step {steps.pop():g}, {e.global_steps} of the engine, "
              f"lr {inner.param_groups[0]['lr']:g}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main(directory, state):
    for stage in (1, 2, 3):
        mp.spawn(rank_main, (2, os.path.abspath(directory), state, stage, 29610 + stage), nprocs=2)


if __name__ == "__main__":
    main(*sys.argv[1:])

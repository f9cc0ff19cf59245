#!/usr/bin/env python3
"""Trainings that tp-run begins go on in the trainers of others: three steps here and three there are six there.

usage: check-resumed.py DIR [KIND...]

DIR is what make-resumed.py made.  For each KIND tp-run (on PATH) makes the first three of its six steps from the same
weights, tp-shard exports the checkpoint, the real trainer loads it and makes the other three, and the weights are
compared with DIR/KIND.safetensors.  Needs torch, transformers, deepspeed and safetensors, as make-resumed.py does.
"""
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("make_resumed", f"{here}/make-resumed.py")
made = importlib.util.module_from_spec(spec)
sys.modules["make_resumed"] = made
spec.loader.exec_module(made)

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.state_dict import (StateDictOptions, get_model_state_dict, get_state_dict,
                                                     set_state_dict)

HALF = made.STEPS // 2
TRAINER = ["--weight-decay", "0.1", "--warmup", "2"]
ADAMW = ["--lr-schedule", "constant", "--beta1", "0.8", "--beta2", "0.99", "--eps", "1e-7"]
ALL = [*ADAMW, "--weight-decay", "0.1", "--decays", "all"]
FORMS = {"trainer": ("trainer", [*TRAINER, "--lr-schedule", "linear"]),
         "trainer-cosine": ("trainer", [*TRAINER, "--lr-schedule", "cosine"]),
         "fsdp": ("dcp", ALL), "fsdp-flat": ("dcp", ALL),
         "fsdp-groups": ("dcp", [*ADAMW, "--weight-decay", "0.2", "--decays", "usual"]),
         **{f"zero{n}": ("deepspeed-universal", ALL) for n in (1, 2, 3)}}


def begin(data, kind, tmp):
    """The first three steps, in tmp/back."""
    form, options = FORMS[kind]
    made.model().save_pretrained(f"{tmp}/init")
    run = f"{tmp}/run"
    subprocess.run(["tp-run", "train", "-q", f"{tmp}/init", "--data", f"{data}/data.jsonl", "--order", "sequential",
                    "--pack", "none", "--global-batch", str(made.BATCH), "--threads", "1", "--steps", str(made.STEPS),
                    "--save-every", str(HALF), "--lr", "1e-2", "-o", run, *options], check=True)
    subprocess.run(["tp-shard", "merge", "-q", "--export", form, f"{run}/step-{HALF:06d}", f"{tmp}/back"], check=True)


def go_on_trainer(kind, tmp):
    data = [{"input_ids": row, "labels": row} for row in made.SAMPLES]
    args = made.TrainingArguments(f"{tmp}/out", max_steps=made.STEPS, save_strategy="no", use_cpu=True, report_to=[],
                                  per_device_train_batch_size=made.BATCH, learning_rate=1e-2, weight_decay=0.1,
                                  warmup_steps=2, logging_steps=1, seed=5, disable_tqdm=True,
                                  lr_scheduler_type="cosine" if kind == "trainer-cosine" else "linear")
    m = made.model()
    with torch.no_grad():
        for p in m.parameters():
            p.zero_()  # nothing but the checkpoint has weights
    t = made.InTurn(m, args, train_dataset=data)
    t.train(resume_from_checkpoint=f"{tmp}/back")
    assert t.state.global_step == made.STEPS, t.state.global_step
    log = [x["learning_rate"] for x in t.state.log_history if "loss" in x]
    save_file({k: v.detach().clone() for k, v in t.model.state_dict().items()}, f"{tmp}/six.safetensors")
    return log


def steps(m, backward, step, rank):
    for i in range(HALF, made.STEPS):
        mine = made.SAMPLES[i * made.BATCH:(i + 1) * made.BATCH][rank * made.BATCH // 2:(rank + 1) * made.BATCH // 2]
        backward(m(input_ids=mine, labels=mine).loss)
        step()


def go_on_fsdp(rank, kind, tmp):
    dist.init_process_group("gloo", rank=rank, world_size=2)
    m = made.model()
    mesh = made.init_device_mesh("cpu", (2,))
    for layer in m.model.layers:
        made.fully_shard(layer, mesh=mesh)
    made.fully_shard(m, mesh=mesh)
    groups = m.parameters()
    if kind == "fsdp-groups":
        groups = [{"params": [p for p in m.parameters() if p.dim() > 1]},
                  {"params": [p for p in m.parameters() if p.dim() < 2]}]
    o = torch.optim.AdamW(groups, lr=1)  # what the checkpoint says takes the place of all settings
    options = StateDictOptions(flatten_optimizer_state_dict=kind == "fsdp-flat")
    state, optimizer = get_state_dict(m, o, options=options)
    planned = {**state, "optimizer": optimizer}
    dcp.load(planned, checkpoint_id=f"{tmp}/back")
    optimizer = planned.pop("optimizer")
    set_state_dict(m, o, model_state_dict=planned, optim_state_dict=optimizer, options=options)

    def step():
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        o.step()
        o.zero_grad()

    steps(m, lambda x: x.backward(), step, rank)
    full = get_model_state_dict(m, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        save_file({k: v.contiguous() for k, v in full.items()}, f"{tmp}/six.safetensors")
    dist.barrier()
    dist.destroy_process_group()


def go_on_zero(rank, kind, tmp):
    import deepspeed
    from deepspeed.utils import safe_get_full_fp32_param
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo needs no compiler
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
    deepspeed.init_distributed(dist_backend="gloo")
    m = made.model()
    o = torch.optim.AdamW(m.parameters(), lr=1e-2, betas=(0.8, 0.99), eps=1e-7, weight_decay=0.1)
    e, o, _, _ = deepspeed.initialize(model=m, optimizer=o, config={
        "train_micro_batch_size_per_gpu": made.BATCH // 2, "gradient_clipping": 1.0,
        "zero_optimization": {"stage": int(kind[4]), "stage3_param_persistence_threshold": 0},
        "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
        "checkpoint": {"load_universal": True}})
    path, _ = e.load_checkpoint(f"{tmp}/back")
    assert path, "nothing was loaded"
    steps(e, e.backward, e.step, rank)
    full = {k: safe_get_full_fp32_param(p) for k, p in e.module.named_parameters()}
    if rank == 0:
        save_file({k: v.detach().clone().contiguous() for k, v in full.items()}, f"{tmp}/six.safetensors")
    dist.barrier()
    dist.destroy_process_group()


def main(data, *kinds):
    failed = False
    for kind in kinds or FORMS:
        with tempfile.TemporaryDirectory() as tmp:
            begin(data, kind, tmp)
            rates = None
            if kind.startswith("trainer"):
                rates = go_on_trainer(kind, tmp)
            else:
                torch.multiprocessing.spawn(go_on_zero if kind.startswith("zero") else go_on_fsdp, (kind, tmp), nprocs=2)
            want, got = load_file(f"{data}/{kind}.safetensors"), load_file(f"{tmp}/six.safetensors")
            assert want.keys() == got.keys()
            most = max((want[k] - got[k]).abs().max().item() for k in want)
            moved = load_file(f"{tmp}/init/model.safetensors")
            far = max((want[k] - moved[k]).abs().max().item() for k in want)
            same = True
            if rates is not None:
                with open(f"{data}/{kind}.json") as f:
                    there = json.load(f)["rate"][HALF:]
                same = all(abs(a - b) < 1e-12 for a, b in zip(there, rates, strict=True))
            failed |= most > 3e-6 or not same
            print(f"{kind}: {FORMS[kind][0]}: weights differ by at most {most:.1e} after they moved by {far:.1e}"
                  + ("" if rates is None else "; rates are those there" if same else f"; rates {rates} for {there}"))
    sys.exit(failed)


if __name__ == "__main__":
    main(*sys.argv[1:])

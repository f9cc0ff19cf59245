#!/usr/bin/env python3
"""make-schedules.py - learning rates of transformers' get_scheduler

    make-schedules.py [-o DIR]

schedules.tsv: lines `name lr steps warmup options rate0 .. rate49`: the rates of 50 steps, for the options of tp-run train in
OPTIONS, commas between them; "-": none.  reduce_lr_on_plateau and greedy are fed the losses of loss(), as evaluations after each
step: their rate is the one with which the next step is made.  tests/unit-train.c has loss() as well.
"""
import argparse
import os

import torch
from transformers import get_scheduler

here = os.path.dirname(os.path.abspath(__file__))
STEPS = 50


def loss(i):
    """Falls, then stays, rises and falls again."""
    return 4.0 - 0.08 * i + (0.002 * (i - 15) ** 2 if i > 15 else 0) + 0.05 * ((i * 7) % 5)


# name, lr, warmup, options of tp-run train, arguments of transformers
CASES = [
    ("linear", 1e-3, 5, "", {}),
    ("cosine", 1e-3, 5, "", {}),
    ("cosine", 1e-3, 5, "cycles=1.25", {"num_cycles": 1.25}),
    ("cosine_with_restarts", 1e-3, 5, "", {}),
    ("cosine_with_restarts", 1e-3, 5, "cycles=3", {"num_cycles": 3}),
    ("polynomial", 1e-3, 5, "", {}),
    ("polynomial", 1e-3, 5, "min-lr=1e-5,power=2", {"lr_end": 1e-5, "power": 2.0}),
    ("constant", 1e-3, 5, "", {}),
    ("constant_with_warmup", 1e-3, 5, "", {}),
    ("inverse_sqrt", 1e-3, 5, "", {}),
    ("inverse_sqrt", 1e-3, 0, "", {}),
    ("cosine_with_min_lr", 1e-3, 5, "min-lr-ratio=0.1", {"min_lr_rate": 0.1}),
    ("cosine_with_min_lr", 1e-3, 0, "min-lr=5e-5", {"min_lr": 5e-5}),
    ("cosine_warmup_with_min_lr", 1e-3, 5, "min-lr-ratio=0.1", {"min_lr_rate": 0.1}),
    ("cosine_warmup_with_min_lr", 1e-3, 5, "min-lr-ratio=0.1,warmup-lr-ratio=0.5", {"min_lr_rate": 0.1, "warmup_lr_rate": 0.5}),
    ("warmup_stable_decay", 1e-3, 5, "decay-steps=20", {"num_decay_steps": 20}),
    ("warmup_stable_decay", 1e-3, 5, "decay-steps=20,decay-type=linear,min-lr-ratio=0.1",
     {"num_decay_steps": 20, "decay_type": "linear", "min_lr_ratio": 0.1}),
    ("warmup_stable_decay", 1e-3, 5, "decay-steps=20,decay-type=1-sqrt,warmup-type=cosine,min-lr-ratio=0.1",
     {"num_decay_steps": 20, "decay_type": "1-sqrt", "warmup_type": "cosine", "min_lr_ratio": 0.1}),
    ("warmup_stable_decay", 1e-3, 5, "decay-steps=10,warmup-type=1-sqrt,cycles=1.5",
     {"num_decay_steps": 10, "warmup_type": "1-sqrt", "num_cycles": 1.5}),
    ("reduce_lr_on_plateau", 1e-3, 0, "", {}),
    ("reduce_lr_on_plateau", 1e-3, 0, "patience=2,factor=0.5,min-lr=1e-4,cooldown=3,threshold=0.01",
     {"patience": 2, "factor": 0.5, "min_lr": 1e-4, "cooldown": 3, "threshold": 0.01}),
    ("greedy", 1e-2, 0, "", {}),
    ("greedy", 1e-2, 0, "patience=1,factor=0.7,min-lr=1e-4,max-lr=0.02,cooldown=2,threshold=0.05",
     {"patience": 1, "factor": 0.7, "min_lr": 1e-4, "max_lr": 0.02, "cooldown": 2, "threshold": 0.05}),
]


def rates(name, lr, warmup, how):
    p = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([p], lr=lr)
    schedule = get_scheduler(name, optimizer, num_warmup_steps=warmup, num_training_steps=STEPS, scheduler_specific_kwargs=how)
    out = []
    for i in range(STEPS):
        out.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step(*([loss(i)] if name in ("reduce_lr_on_plateau", "greedy") else []))
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", dest="out", metavar="DIR", default=os.path.join(here, "..", "data"))
    args = parser.parse_args()
    with open(os.path.join(args.out, "schedules.tsv"), "w") as f:
        for name, lr, warmup, options, how in CASES:
            row = [name, f"{lr:g}", str(STEPS), str(warmup), options or "-"]
            f.write("\t".join(row + [f"{x:.15g}" for x in rates(name, lr, warmup, how)]) + "\n")


if __name__ == "__main__":
    main()

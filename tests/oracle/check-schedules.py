#!/usr/bin/env python3
"""Have PyTorch read, check and step through the tables that `pp-partition schedule --csv` writes.

usage: check-schedules.py PP_PARTITION

Needs torch (2.5 or newer: the functions are private and may move).
"""
import csv
import subprocess
import sys

from torch.distributed.pipelining.schedules import _Action, _add_send_recv, _simulate_comms_compute, _validate_schedule

RANKS, MICRO_BATCHES = 4, 8
for name, options, stages in (("gpipe", [], 4), ("1f1b", [], 4), ("interleaved", ["--model-chunks", "2"], 8),
                              ("zb-h1", [], 4), ("zb-h2", [], 4), ("zb-v", [], 8),
                              ("v-min", [], 8), ("v-half", [], 8)):
    table = subprocess.run([sys.argv[1], "schedule", "--pp", str(RANKS), "--micro-batches", str(MICRO_BATCHES),
                            "--schedule", name, *options, "--csv"], capture_output=True, text=True, check=True).stdout
    actions = {rank: [_Action.from_str(cell) for cell in row] for rank, row in enumerate(csv.reader(table.splitlines()))}
    count = sum(map(len, actions.values()))

    def rank_of(stage):
        return min(stage, 2 * RANKS - 1 - stage) if name in ("zb-v", "v-min", "v-half") else stage % RANKS

    _validate_schedule(actions, RANKS, stages, MICRO_BATCHES)
    _simulate_comms_compute(_add_send_recv(actions, rank_of, stages), rank_of, stages)
    print(f"{name}: {count} actions are sound and end")

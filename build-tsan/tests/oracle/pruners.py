#!/usr/bin/env python3
"""Fixtures of unit-pruner: decisions of optuna's pruners on random studies.

usage: pruners.py > tests/data/sweep/pruners.json

Each case replays a study: trials run one after another (or two interleaved), report a
value at each step, and stop when the pruner says so.  What the pruner saw is kept whole
in "events": [trial, step, value, prune]; a step of -1 ends the trial, with its value.
"""
import json
import math
import sys
import warnings

import numpy as np
import optuna
from optuna.trial import TrialState

warnings.filterwarnings("ignore")
optuna.logging.set_verbosity(optuna.logging.ERROR)
P = optuna.pruners
CASES = [
    ("median", lambda: P.MedianPruner()),
    ("median:startup=2,warmup=3,interval=2,trials=3", lambda: P.MedianPruner(2, 3, 2, n_min_trials=3)),
    ("percentile:percentile=25", lambda: P.PercentilePruner(25.0)),
    ("percentile:percentile=80,startup=1", lambda: P.PercentilePruner(80.0, 1)),
    ("successive-halving", lambda: P.SuccessiveHalvingPruner()),
    ("successive-halving:resource=1,reduction=2", lambda: P.SuccessiveHalvingPruner(1, 2)),
    ("successive-halving:resource=2,reduction=3,rate=1,bootstrap=2", lambda: P.SuccessiveHalvingPruner(2, 3, 1, 2)),
    ("hyperband:resource=1,max=27", lambda: P.HyperbandPruner(1, 27, 3)),
    ("hyperband:reduction=2", lambda: P.HyperbandPruner(1, "auto", 2)),
    ("hyperband:resource=1,max=16,reduction=2", lambda: P.HyperbandPruner(1, 16, 2)),
    ("patient:patience=2+none", lambda: P.PatientPruner(P.NopPruner(), 2)),
    ("patient:patience=2", lambda: P.PatientPruner(None, 2)),
    ("patient:patience=1,delta=0.05+median:startup=2", lambda: P.PatientPruner(P.MedianPruner(2), 1, 0.05)),
    ("threshold:lower=0.1,upper=0.9", lambda: P.ThresholdPruner(lower=0.1, upper=0.9)),
    ("threshold:upper=0.7,warmup=4,interval=3", lambda: P.ThresholdPruner(upper=0.7, n_warmup_steps=4, interval_steps=3)),
    ("none", lambda: P.NopPruner()),
    ("wilcoxon", lambda: P.WilcoxonPruner()),
    ("wilcoxon:p=0.3,startup=5", lambda: P.WilcoxonPruner(p_threshold=0.3, n_startup_steps=5)),
    ("wilcoxon:p=0.02,startup=0", lambda: P.WilcoxonPruner(p_threshold=0.02, n_startup_steps=0)),
]


def number(x):
    return "NaN" if math.isnan(x) else x


def replay(spec, pruner, direction, seed):
    rng = np.random.RandomState(seed)
    study = optuna.create_study(direction=direction, study_name="fixture")
    events, running = [], {}
    # a trial with one NaN is nothing that the Wilcoxon pruner judges
    lengths, nan = ([20, 40, 62], 0.001) if spec.startswith("wilcoxon") else ([8, 20, 28], 0.03)
    for n in range(24):
        # Now and then two trials run side by side.
        count = 2 if rng.rand() < 0.3 else 1
        for _ in range(count):
            t = study.ask()
            running[t.number] = (t, rng.rand(), int(rng.choice(lengths)), [0])
        while running:
            num = int(rng.choice(sorted(running)))
            t, level, last, step = running[num]
            value = level + 0.3 * rng.randn() / (1 + step[0]) + 0.4 / (1 + step[0])
            if rng.rand() < nan:
                value = math.nan
            value = round(value, 3) if rng.rand() < 0.7 else round(value, 1)
            t.report(value, step[0])
            study.pruner = pruner()  # a process of its own: nothing remembered
            prune = t.should_prune()
            events.append([num, step[0], number(value), int(prune)])
            step[0] += 1 if rng.rand() < 0.8 else 2
            if prune:
                study.tell(t, state=TrialState.PRUNED)
                events.append([num, -1, 0, 1])
                del running[num]
            elif step[0] >= last:
                study.tell(t, level)
                events.append([num, -1, level, 0])
                del running[num]
    return {"pruner": spec, "maximize": direction == "maximize", "events": events}


out = []
for i, (spec, pruner) in enumerate(CASES):
    for direction in ("minimize", "maximize"):
        out.append(replay(spec, pruner, direction, i))
json.dump(out, sys.stdout, separators=(",", ":"))
print()

#!/usr/bin/env python3
"""Optuna and hpo-sweep on the same PostgreSQL database, at the same time.

usage: postgres.py HPO-SWEEP URL     (an empty database; needs psycopg)

Ends with status 1 at the first difference.
"""
import collections
import json
import math
import os
import subprocess
import sys
import tempfile

import optuna
from optuna.trial import TrialState

optuna.logging.set_verbosity(optuna.logging.ERROR)
PROGRAM, URL = os.path.abspath(sys.argv[1]), sys.argv[2]
WORKERS, EACH, QUEUED = 4, 15, 40


def sweep(*words):
    p = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
    assert p.returncode == 0, (words, p.returncode, p.stderr)
    return p.stdout


def same(what, got, want):
    assert got == want, (what, got, want)
    print(f"ok - {what}")


def objective(trial):
    trial.report(trial.suggest_float("x", 0, 1), 1)
    return trial.suggest_float("x", 0, 1) + trial.suggest_categorical("k", ["a", "b'c"]).count("a")


def main():
    with open("s.yaml", "w") as f:
        f.write("x: uniform(0, 1)\nk: choice([a, \"b'c\"])\n")

    # ours, read by Optuna
    for _ in range(4):
        sweep("ask", "-S", URL, "--study", "ours", "s.yaml")
    sweep("report", "-S", URL, "--study", "ours", "0", "1", "inf")
    sweep("report", "-S", URL, "--study", "ours", "0", "2", "nan")
    sweep("tell", "-S", URL, "--study", "ours", "0", "--", "-inf")
    sweep("tell", "-S", URL, "--study", "ours", "1", "0.1")
    sweep("tell", "-S", URL, "--study", "ours", "--state", "pruned", "2")
    study = optuna.load_study(study_name="ours", storage=URL)
    trials = study.trials
    same("states", [t.state.name for t in trials], ["COMPLETE", "COMPLETE", "PRUNED", "RUNNING"])
    same("values", [t.value for t in trials[:2]], [-math.inf, 0.1])
    same("reports", [str(v) for v in trials[0].intermediate_values.values()], ["inf", "nan"])
    shown = [json.loads(x) for x in sweep("show", "-S", URL, "--study", "ours", "--json").splitlines()]
    same("parameters", [t.params for t in trials], [x["params"] for x in shown])
    study.optimize(objective, n_trials=3)
    same("Optuna goes on", len(study.trials), 7)

    # Optuna's, gone on with
    study = optuna.create_study(study_name="theirs", storage=URL)
    study.optimize(objective, n_trials=5)
    sweep("run", "-q", "-S", URL, "--study", "theirs", "--trials", "9", "s.yaml", "--", "echo", "{x}")
    same("we go on", [t.state for t in study.trials], [TrialState.COMPLETE] * 9)

    # both at the same time; what is enqueued runs once
    study = optuna.create_study(study_name="both", storage=URL)
    for i in range(QUEUED):
        study.enqueue_trial({"x": i / 1000, "k": "b'c"})
    theirs = ("import optuna, sys; optuna.logging.set_verbosity(optuna.logging.ERROR);"
              f"optuna.load_study(study_name='both', storage={URL!r}, sampler=optuna.samplers.RandomSampler())"
              f".optimize(lambda t: t.suggest_float('x', 0, 1) + len(t.suggest_categorical('k', ['a', \"b'c\"])), n_trials={EACH})")
    ours = (f"for i in $(seq {EACH}); do n=$('{PROGRAM}' ask -S '{URL}' --study both --sampler random s.yaml"
            f" | head -n 1 | cut -f 2); '{PROGRAM}' tell -S '{URL}' --study both \"$n\" 1 || exit; done")
    workers = [subprocess.Popen(c) for _ in range(WORKERS)
               for c in ([sys.executable, "-c", theirs], ["sh", "-c", ours])]
    same("all workers end well", [w.wait() for w in workers], [0] * 2 * WORKERS)
    trials = study.trials
    total = 2 * WORKERS * EACH
    same("numbers", sorted(t.number for t in trials), list(range(total)))
    same("states", collections.Counter(t.state for t in trials), {TrialState.COMPLETE: total})
    fixed = [t.params["x"] for t in trials if "fixed_params" in t.system_attrs]
    same("what was enqueued", fixed, [i / 1000 for i in range(QUEUED)])


with tempfile.TemporaryDirectory() as d:
    os.chdir(d)
    main()

#!/usr/bin/env python3
"""Optuna and hpo-sweep on the same studies.

usage: studies.py HPO-SWEEP [FIXTURE]

Writes studies with each, reads and continues them with the other, and ends with status 1
at the first difference.  With FIXTURE, leaves there the study that Optuna made
(tests/data/sweep/optuna.db).
"""
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile

import optuna
from optuna.trial import TrialState

optuna.logging.set_verbosity(optuna.logging.ERROR)
PROGRAM = os.path.abspath(sys.argv[1])
FIXTURE = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else None


def sweep(*words, status=0):
    p = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
    assert p.returncode == status, (words, p.returncode, p.stderr)
    return p.stdout


def lines(*words):
    return [json.loads(line) for line in sweep(*words, "--json").splitlines()]


def same(what, got, want):
    assert got == want or (isinstance(want, float) and math.isclose(got, want)), (what, got, want)
    print(f"ok - {what}")


def ours_read_by_optuna():
    with open("s.yaml", "w") as f:
        f.write("x: uniform(-5, 5)\nlr: loguniform(1e-5, 1e-1)\nn: randint(1, 9)\n"
                "d: quniform(0, 0.5, 0.1)\nopt: choice([sgd, adam, 3, true, null])\n"
                "m: uniform(0, 1) if opt == sgd\n")
    asked = [lines("ask", "s.yaml", "--seed", "1")[0]["params"] for _ in range(12)]
    for n, values in ((0, "1.5"), (1, "inf"), (2, "-2.25")):
        sweep("tell", "-S", "s.db", str(n), "--", values)
    sweep("tell", "-S", "s.db", "3", "nan")
    for step, value in ((0, "0.5"), (3, "nan"), (7, "inf")):
        sweep("report", "-S", "s.db", "4", str(step), value)
    sweep("report", "-S", "s.db", "5", "2", "0.75")
    sweep("tell", "-S", "s.db", "--state", "pruned", "5")
    sweep("enqueue", "s.yaml", "x=2.5", "opt=true")
    s = optuna.load_study(study_name="s", storage="sqlite:///s.db")
    t = s.trials
    same("parameters", [x.params for x in t[:12]], asked)
    same("values", [x.value for x in t[:4]], [1.5, math.inf, -2.25, None])
    same("states", [x.state.name for x in t],
         ["COMPLETE"] * 3 + ["FAIL", "RUNNING", "PRUNED"] + ["RUNNING"] * 6 + ["WAITING"])
    same("infinite and NaN reports", [str(v) for v in t[4].intermediate_values.values()],
         ["0.5", "nan", "inf"])
    same("a pruned trial's value is its last report", t[5].value, 0.75)
    same("best", s.best_trial.number, 2)
    same("fixed parameters", t[12].system_attrs["fixed_params"], {"x": 2.5, "opt": True})
    asked = s.ask()
    same("optuna starts the enqueued trial", (asked.number, asked.suggest_float("x", -5, 5)),
         (12, 2.5))
    s.tell(asked, 4.0)
    for _ in range(15):
        u = s.ask({k: d for k, d in t[0].distributions.items() if k != "m"})
        s.tell(u, u.params["x"] ** 2)
    same("optuna's trials are listed", len(lines("show", "-S", "s.db")), 28)
    same("the study goes on", lines("ask", "s.yaml")[0]["trial"], 28)


def several_objectives():
    with open("m.yaml", "w") as f:
        f.write("x: uniform(0, 1)\ny: uniform(0, 1)\n")
    sweep("run", "m.yaml", "--direction", "minimize", "--direction", "maximize", "--metric",
          "loss", "--metric", "acc", "--seed", "3", "--trials", "80", "-j", "2", "--", "echo",
          "{x}", "{y}")
    s = optuna.load_study(study_name="m", storage="sqlite:///m.db")
    same("directions", [d.name for d in s.directions], ["MINIMIZE", "MAXIMIZE"])
    same("metric names", s.metric_names, ["loss", "acc"])
    same("the Pareto front", sorted(x["trial"] for x in lines("pareto", "-S", "m.db")),
         sorted(x.number for x in s.best_trials))


def optunas_read_here():
    s = optuna.create_study(study_name="theirs", storage="sqlite:///o.db", direction="maximize",
                            sampler=optuna.samplers.RandomSampler(seed=1))
    for _ in range(30):
        t = s.ask()
        x = t.suggest_float("x", -1, 1)
        n = t.suggest_int("n", 1, 64, log=True)
        c = t.suggest_categorical("c", ["a", 1, None])
        t.report(x, 1)
        s.tell(t, -(x - 0.5) ** 2 + 0.001 * n + (c == "a"))
    failed = s.ask()
    s.tell(failed, state=TrialState.FAIL)
    s.enqueue_trial({"x": 0.25})
    s.set_user_attr("who", "optuna")
    if FIXTURE:
        shutil.copy("o.db", FIXTURE)
    same("states", [x["state"] for x in lines("show", "-S", "o.db")],
         [x.state.name for x in s.trials])
    same("parameters", [x["params"] for x in lines("show", "-S", "o.db")],
         [x.params for x in s.trials])
    same("best", lines("best", "-S", "o.db")[0]["trial"], s.best_trial.number)
    theirs = optuna.importance.get_param_importances(
        s, evaluator=optuna.importance.PedAnovaImportanceEvaluator())
    for row in lines("importance", "-S", "o.db"):
        same(f"importance of {row['name']}", row["importance"], float(theirs[row["name"]]))
    with open("theirs.yaml", "w") as f:
        f.write("x: uniform(-1, 1)\nn: lograndint(1, 65)\nc: choice([a, 1, null])\n")
    words = ("theirs.yaml", "-S", "o.db", "--direction", "maximize")
    same("an enqueued trial starts here", lines("ask", *words)[0]["params"]["x"], 0.25)
    same("the study goes on", lines("ask", *words)[0]["trial"], 32)


with tempfile.TemporaryDirectory() as tmp:
    os.chdir(tmp)
    ours_read_by_optuna()
    several_objectives()
    optunas_read_here()

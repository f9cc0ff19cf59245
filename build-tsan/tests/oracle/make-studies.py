#!/usr/bin/env python3
"""Write studies with Optuna: tests/data/sweep/optuna-VERSION.db and optuna-VERSION.jsonl.

usage: make-studies.py FILE.db | FILE.jsonl

They are `theirs` (30 finished trials, a failed one, one that waits), `one` (a parameter of each kind,
trials of all states, values and reports that are no numbers, attributes) and `two` (two objectives).
"""
import math
import sys

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

optuna.logging.set_verbosity(optuna.logging.ERROR)
file = sys.argv[1]
storage = f"sqlite:///{file}" if file.endswith(".db") else JournalStorage(JournalFileBackend(file))


def create(name, **how):
    return optuna.create_study(study_name=name, storage=storage,
                               sampler=optuna.samplers.RandomSampler(seed=1), **how)


theirs = create("theirs", direction="maximize")
for _ in range(30):
    t = theirs.ask()
    x = t.suggest_float("x", -1, 1)
    n = t.suggest_int("n", 1, 64, log=True)
    c = t.suggest_categorical("c", ["a", 1, None])
    t.report(x, 1)
    theirs.tell(t, -(x - 0.5) ** 2 + 0.001 * n + (c == "a"))
failed = theirs.ask()
theirs.tell(failed, state=TrialState.FAIL)
theirs.enqueue_trial({"x": 0.25})
theirs.set_user_attr("who", "optuna")

one = create("one", direction="minimize")
space = {"x": FloatDistribution(1e-4, 1.0, log=True), "n": IntDistribution(1, 9, step=2),
         "q": FloatDistribution(0.0, 1.0, step=0.25), "k": CategoricalDistribution(["a", 0.5, True, None])}
for i in range(5):
    t = one.ask(space)
    for step, value in enumerate((0.5, math.nan, math.inf, -math.inf)):
        t.report(value, step)
    t.set_user_attr("note", {"text": "NaN, Infinity", "list": [1, None]})
    if i == 2:
        one.tell(t, state=TrialState.PRUNED)
    elif i < 4:
        one.tell(t, math.inf if i == 1 else i / 4)
one.enqueue_trial({"x": 0.25, "n": 3, "q": 0.5, "k": None})

two = create("two", directions=["minimize", "maximize"])
two.set_metric_names(["loss", "accuracy"])
for i in range(3):
    t = two.ask({"x": FloatDistribution(0.0, 1.0)})
    two.tell(t, [i, -i])

#!/usr/bin/env python3
"""Write tests/data/sweep/optuna-journal.jsonl with Optuna, or check what hpo-sweep made of a copy of it.

usage: journal.py make FILE | check FILE TRIALS

The studies are `one` (a parameter of each kind, reports with NaN and infinity, attributes, an enqueued
trial) and `two` (two objectives).  Needs optuna 4 or newer.
"""
import sys

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

optuna.logging.set_verbosity(optuna.logging.ERROR)
storage = JournalStorage(JournalFileBackend(sys.argv[2]))
if sys.argv[1] == "make":
    one = optuna.create_study(study_name="one", storage=storage, direction="minimize")
    space = {"x": FloatDistribution(1e-4, 1.0, log=True), "n": IntDistribution(1, 9, step=2),
             "k": CategoricalDistribution(["a", "b", None])}
    for i in range(4):
        trial = one.ask(space)
        for step, value in enumerate((0.5, float("nan"), float("inf"), float("-inf"))):
            trial.report(value, step)
        trial.set_user_attr("note", {"text": "NaN, Infinity", "list": [1, None]})
        if i == 2:
            one.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            one.tell(trial, float("inf") if i == 1 else i / 4)
    one.enqueue_trial({"x": 0.25, "n": 3, "k": "b"})
    two = optuna.create_study(study_name="two", storage=storage, directions=["minimize", "maximize"])
    for i in range(3):
        trial = two.ask({"x": FloatDistribution(0.0, 1.0)})
        two.tell(trial, [i, -i])
else:
    study = optuna.load_study(study_name="one", storage=storage)
    assert len(study.trials) == int(sys.argv[3]), len(study.trials)
    assert all(t.state.is_finished() for t in study.trials), [t.state for t in study.trials]
    assert [t.number for t in study.trials] == list(range(len(study.trials)))
    print(len(study.trials), "trials, best", study.best_value, study.best_params)

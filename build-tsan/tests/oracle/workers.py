#!/usr/bin/env python3
"""Workers of Optuna and of hpo-sweep on one file at the same time, in SQLite and in a journal.

usage: workers.py HPO-SWEEP

16 of ours run 50 trials each, then 8 of ours and 8 of Optuna's; then both take 80 enqueued trials.
Ends with status 1 when a trial is lost or doubled, or a worker says or does anything wrong.
"""
import collections
import json
import os
import subprocess
import sys
import tempfile
import time

import optuna
from optuna.storages import JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend

optuna.logging.set_verbosity(optuna.logging.ERROR)
PROGRAM = os.path.abspath(sys.argv[1])
EACH, QUEUED = 50, 80


def storage_of(url):
    if url.startswith("journal:"):
        return JournalStorage(JournalFileBackend(url.removeprefix("journal:")))
    # SQLite's wait for a lock is 5 seconds by default, which is short for 16 writers.
    return RDBStorage(f"sqlite:///{url}", engine_kwargs={"connect_args": {"timeout": 100}})


def load(url, name):
    return optuna.load_study(study_name=name, storage=storage_of(url),
                             sampler=optuna.samplers.RandomSampler())


def note(number, x):
    """That this trial was run: one short write to the end of a file."""
    with open("ran", "a") as f:
        f.write(f"{number} {x}\n")


def work_for_optuna(url, name, trials, pause):
    """What one Python worker does, from the moment that the file `go` is there."""
    study = load(url, name)
    open(f"ready.{os.getpid()}", "w").close()
    while not os.path.exists("go"):
        time.sleep(0.01)

    def objective(trial):
        x = trial.suggest_float("x", 0, 1)
        note(trial.number, x)
        trial.report(x, 1)
        time.sleep(pause)
        return x

    study.optimize(objective, n_trials=trials)


def theirs(url, name, trials, pause=0.0):
    return [sys.executable, os.path.abspath(__file__), PROGRAM, url, name, str(trials), str(pause)]


def ours(url, name):
    """50 times ask and tell.  ask prints "trial", a number, "x" and its value."""
    script = """for k in $(seq "$4"); do
        asked=$("$1" ask s.yaml --storage "$2" --study "$3" --sampler random) || exit
        number=$(echo $asked | cut -d ' ' -f 2) x=$(echo $asked | cut -d ' ' -f 4)
        echo "$number $x" >> ran
        "$1" tell -S "$2" --study "$3" "$number" "$x" || exit
    done"""
    return ["sh", "-c", script, "sh", PROGRAM, url, name, str(EACH)]


def same(what, got, want):
    if got != want:
        sys.exit(f"not ok - {what}\n# got      {got}\n# expected {want}")
    print(f"ok - {what}", flush=True)


def together(what, python, shell):
    """Run all these commands; the Python ones, which are slow to start, come first and wait."""
    for file in [f for f in os.listdir() if f.startswith("ready.") or f in ("go", "ran")]:
        os.unlink(file)
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    workers = [subprocess.Popen(c, **how) for c in python]
    while sum(f.startswith("ready.") for f in os.listdir()) < len(python):
        time.sleep(0.05)
        assert all(w.poll() is None for w in workers), "a Python worker does not start"
    open("go", "w").close()
    workers += [subprocess.Popen(c, **how) for c in shell]
    said = [w.communicate()[0] for w in workers]
    same(f"{what}: workers say nothing", "".join(said), "")
    same(f"{what}: and end well", [w.returncode for w in workers], [0] * len(workers))


def finished(what, url, name, total):
    trials = load(url, name).trials
    same(f"{what}: {total} different numbers", [t.number for t in trials], list(range(total)))
    same(f"{what}: all complete", collections.Counter(t.state.name for t in trials), {"COMPLETE": total})
    same(f"{what}: values", [t.value for t in trials], [t.params["x"] for t in trials])
    with open("ran") as f:
        ran = [line.split() for line in f]
    same(f"{what}: each was run once, with its parameters",
         sorted((int(n), float(x)) for n, x in ran), [(t.number, t.params["x"]) for t in trials])
    shown = subprocess.run([PROGRAM, "show", "--json", "-S", url, "--study", name], check=True,
                           capture_output=True, text=True).stdout.splitlines()
    same(f"{what}: hpo-sweep shows the same",
         [(r["trial"], r["params"]) for r in map(json.loads, shown)], [(t.number, t.params) for t in trials])
    return trials


def check(url):
    optuna.create_study(study_name="ours", storage=storage_of(url))
    together("16 of ours", [], [ours(url, "ours")] * 16)
    finished("16 of ours", url, "ours", 16 * EACH)

    optuna.create_study(study_name="both", storage=storage_of(url))
    together("8 of each", [theirs(url, "both", EACH)] * 8, [ours(url, "both")] * 8)
    finished("8 of each", url, "both", 16 * EACH)

    study = optuna.create_study(study_name="queue", storage=storage_of(url))
    queue = [i / 1000 for i in range(QUEUED)]
    for x in queue[:QUEUED // 2]:
        study.enqueue_trial({"x": x})
    for x in queue[QUEUED // 2:]:
        subprocess.run([PROGRAM, "enqueue", "s.yaml", "--storage", url, "--study", "queue", f"x={x}"],
                       check=True)
    run = [PROGRAM, "run", "s.yaml", "--storage", url, "--study", "queue", "--share", "--sampler", "random",
           "--trials", str(QUEUED + 20), "-j", "2", "--", "sh", "-c",
           'echo "$HPO_TRIAL_NUMBER $1" >> ran; sleep 0.1; echo "$1"', "sh", "{x}"]
    together("enqueued", [theirs(url, "queue", 10, 0.1)] * 4, [run] * 4)
    trials = load(url, "queue").trials
    trials = finished("enqueued", url, "queue", len(trials))
    same("enqueued: each once, in order", [t.params["x"] for t in trials if "fixed_params" in t.system_attrs],
         queue)
    mine = sum("hpo-sweep:owner" in t.system_attrs for t in trials[:QUEUED])
    print(f"# {mine} of the {QUEUED} were run by ours, {QUEUED - mine} by Optuna's")
    same("enqueued: some by each", 0 < mine < QUEUED, True)


if len(sys.argv) > 2:
    work_for_optuna(sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
    sys.exit()
for url in ("s.db", "journal:s.jsonl"):
    with tempfile.TemporaryDirectory() as tmp:
        os.chdir(tmp)
        print(f"# optuna {optuna.__version__}, {url}")
        with open("s.yaml", "w") as f:
            f.write("x: uniform(0, 1)\n")
        check(url)
        os.chdir("/")

#!/usr/bin/env python3
"""Optuna and hpo-sweep on the same studies, in SQLite and in a journal.

usage: studies.py HPO-SWEEP

Writes studies with each, reads and continues them with the other, and ends with status 1
at the first difference.  Needs optuna 4 or newer; prove-optuna runs it with several.
"""
import datetime
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import warnings

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.simplefilter("ignore")
PROGRAM = os.path.abspath(sys.argv[1])
kind = None
copies = itertools.count()


def sweep(*words, status=0):
    p = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
    assert p.returncode == status, (words, p.returncode, p.stderr)
    return p.stdout


def lines(*words):
    return [json.loads(line) for line in sweep(*words, "--json").splitlines()]


def same(what, got, want):
    if got != want and not (isinstance(want, float) and math.isclose(got, want)):
        if isinstance(want, list):
            got, want = next((p for p in itertools.zip_longest(got, want) if p[0] != p[1]))
        sys.exit(f"not ok - {kind}: {what}\n# got      {got}\n# expected {want}")
    print(f"ok - {kind}: {what}")


def here(name):
    """The storage of that name, as hpo-sweep calls it."""
    return f"{name}.db" if kind == "sqlite" else f"journal:{name}.jsonl"


def there(name):
    """The same storage, opened by Optuna anew."""
    if kind == "sqlite":
        return f"sqlite:///{name}.db"
    return JournalStorage(JournalFileBackend(f"{name}.jsonl"))


def load(storage, study):
    return optuna.load_study(study_name=study, storage=there(storage))


def moment(t, storage):
    """Naive UTC.  What has no zone is local, but for version 4 on a database that others write."""
    if not t or (not t.tzinfo and optuna.__version__ < "5" and not isinstance(storage, JournalStorage)):
        return t
    return t.astimezone(datetime.timezone.utc).replace(tzinfo=None)


def whole(study):
    """All that a study has, in a form in which NaN equals itself."""
    storage = study._storage
    attrs = storage.get_study_system_attrs(study._study_id)
    return [repr(x) for x in [study.directions, study.user_attrs, sorted(attrs.items()), *(
        (t.number, t.state, t.values, sorted(t.params.items(), key=str),
         sorted(t.distributions.items()), sorted(t.intermediate_values.items()),
         sorted(t.user_attrs.items()), sorted(t.system_attrs.items()),
         moment(t.datetime_start, storage), moment(t.datetime_complete, storage))
        for t in study.trials)]]


def listed(what, storage, study):
    """What hpo-sweep shows of a study is what Optuna has."""
    rows = lines("show", "-S", here(storage), "--study", study.study_name)
    same(f"{what}: numbers", [x["trial"] for x in rows], [t.number for t in study.trials])
    same(f"{what}: states", [x["state"] for x in rows], [t.state.name for t in study.trials])
    same(f"{what}: parameters", [x["params"] for x in rows], [t.params for t in study.trials])
    words = {math.inf: "Infinity", -math.inf: "-Infinity"}
    same(f"{what}: values", [x["values"] or [] for x in rows],
         [[words.get(v, v) for v in t.values or []] for t in study.trials])


def moved(what, storage, study):
    """Export and import lose nothing of it."""
    sweep("export", "-S", here(storage), "--study", study.study_name, f"{study.study_name}.out")
    for target in ("sqlite", "journal"):
        file = f"moved{next(copies)}"
        db = target == "sqlite"
        sweep("import", "-S", file if db else f"journal:{file}", f"{study.study_name}.out")
        copy = optuna.load_study(study_name=study.study_name, storage=f"sqlite:///{file}" if db
                                 else JournalStorage(JournalFileBackend(file)))
        same(f"{what}: whole after export and import into {target}", whole(copy), whole(study))


def ours_read_by_optuna():
    with open("s.yaml", "w") as f:
        f.write("x: uniform(-5, 5)\nlr: loguniform(1e-5, 1e-1)\nn: randint(1, 9)\n"
                "d: quniform(0, 0.5, 0.1)\nopt: choice([sgd, adam, 3, true, null, 0.5])\n"
                "m: uniform(0, 1) if opt == sgd\n")
    before = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
    on = ("--storage", here("s"))
    asked = [lines("ask", "s.yaml", *on, "--seed", "1")[0]["params"] for _ in range(12)]
    for n, values in ((0, "1.5"), (1, "inf"), (2, "-2.25"), (6, "-inf"), (7, "1e-300"),
                      (8, "0.1"), (9, "0")):
        sweep("tell", "-S", here("s"), str(n), "--", values)
    sweep("tell", "-S", here("s"), "3", "nan")
    for step, value in ((0, "0.5"), (3, "nan"), (7, "inf"), (8, "-inf"), (2000000000, "1e300")):
        sweep("report", "-S", here("s"), "4", str(step), "--", value)
    sweep("report", "-S", here("s"), "5", "2", "0.75")
    sweep("tell", "-S", here("s"), "--state", "pruned", "5")
    sweep("tell", "-S", here("s"), "--state", "pruned", "10")
    sweep("enqueue", "s.yaml", *on, "x=2.5", "opt=true")
    after = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
    s = load("s", "s")
    t = s.trials
    same("parameters", [x.params for x in t[:12]], asked)
    same("their order", [list(x.params) for x in t[:12]], [list(x) for x in asked])
    same("distributions", {k: v for x in t[:12] for k, v in x.distributions.items()},
         {"x": FloatDistribution(-5, 5), "lr": FloatDistribution(1e-5, 0.1, log=True),
          "n": IntDistribution(1, 8), "d": FloatDistribution(0, 0.5, step=0.1),
          "opt": CategoricalDistribution(["sgd", "adam", 3, True, None, 0.5]),
          "m": FloatDistribution(0, 1)})
    same("a parameter with a condition", [("m" in x.params) for x in t[:12]],
         [x["opt"] == "sgd" for x in asked])
    same("values", [x.value for x in t[:4] + t[6:10]],
         [1.5, math.inf, -2.25, None, -math.inf, 1e-300, 0.1, 0.0])
    same("states", [x.state.name for x in t],
         ["COMPLETE"] * 3 + ["FAIL", "RUNNING", "PRUNED"] + ["COMPLETE"] * 4 +
         ["PRUNED", "RUNNING", "WAITING"])
    same("infinite and NaN reports", repr(sorted(t[4].intermediate_values.items())),
         "[(0, 0.5), (3, nan), (7, inf), (8, -inf), (2000000000, 1e+300)]")
    same("a pruned trial's value is its last report", t[5].value, 0.75)
    same("or none", t[10].value, None)
    same("best", s.best_trial.number, 6)
    same("fixed parameters", t[12].system_attrs["fixed_params"], {"x": 2.5, "opt": True})
    same("times are UTC", all(before <= moment(x.datetime_start, s._storage) <=
                              (moment(x.datetime_complete, s._storage) or after) <= after
                              for x in t[:12]), True)
    same("nobody waits for an enqueued trial's time", t[12].datetime_start, None)
    same("a finished trial's duration", t[0].duration >= datetime.timedelta(0), True)
    same("last_step", t[4].last_step, 2000000000)
    optuna.copy_study(from_study_name="s", from_storage=there("s"), to_storage="sqlite:///copy.db")
    same("a copy that optuna makes",
         whole(optuna.load_study(study_name="s", storage="sqlite:///copy.db")), whole(s))

    asked = s.ask()
    same("optuna starts the enqueued trial", (asked.number, asked.suggest_float("x", -5, 5)),
         (12, 2.5))
    s.tell(asked, 4.0)
    space = {k: d for k, d in t[0].distributions.items() if k != "m"}
    for _ in range(15):
        u = s.ask(space)
        s.tell(u, u.params["x"] ** 2)
    same("optuna's trials are listed", len(lines("show", "-S", here("s"))), 28)
    told = s.ask(space)
    told.report(3.0, 1)
    told.report(math.nan, 2)
    told.set_user_attr("note", {"text": "é\n\"", "list": [1, None, 0.5]})
    s.set_user_attr("who", ["optuna"])
    sweep("tell", "-S", here("s"), str(told.number), "0.125")
    same("ours finishes a trial that optuna asked for", load("s", "s").trials[28].value, 0.125)
    number = lines("ask", "s.yaml", *on)[0]["trial"]
    s.tell(number, 7.5)
    rows = lines("show", "-S", here("s"))
    same("optuna finishes one that we asked for", (number, rows[number]["values"]), (29, [7.5]))
    sampler = optuna.samplers.TPESampler(seed=1, n_startup_trials=3)
    s = optuna.load_study(study_name="s", storage=there("s"), sampler=sampler,
                          pruner=optuna.pruners.MedianPruner(n_startup_trials=1))

    def objective(trial):
        x = trial.suggest_float("x", -5, 5)
        for step in range(4):
            trial.report(abs(x) + step, step)
            if trial.should_prune():
                raise optuna.TrialPruned()
        return x

    s.optimize(objective, n_trials=20)
    sweep("run", "s.yaml", *on, "--trials", "70", "-j", "2", "--", "echo", "{x}")
    s = load("s", "s")
    same("both go on to the end", [x.number for x in s.trials], list(range(len(s.trials))))
    same("of as many as wished, those included that are asked for and not told",
         [sum(x.state.is_finished() for x in s.trials), len(s.trials)], [68, 70])
    same("user attributes stay", (s.trials[28].user_attrs, s.user_attrs["who"]),
         ({"note": {"text": "é\n\"", "list": [1, None, 0.5]}}, ["optuna"]))
    listed("after both", "s", s)
    same("best of both", lines("best", "-S", here("s"))[0]["trial"], s.best_trial.number)
    moved("after both", "s", s)


def several_objectives():
    with open("m.yaml", "w") as f:
        f.write("x: uniform(0, 1)\ny: uniform(0, 1)\n")
    run = ("run", "m.yaml", "--storage", here("m"), "--direction", "minimize", "--direction",
           "maximize", "--metric", "loss", "--metric", "acc", "--seed", "3", "-j", "2")
    sweep(*run, "--trials", "80", "--", "echo", "{x}", "{y}")
    s = load("m", "m")
    same("directions", [d.name for d in s.directions], ["MINIMIZE", "MAXIMIZE"])
    same("metric names", s.metric_names, ["loss", "acc"])
    same("values of two objectives", [t.values for t in s.trials],
         [[t.params["x"], t.params["y"]] for t in s.trials])
    s.sampler = optuna.samplers.NSGAIISampler(population_size=20, seed=1)
    s.optimize(lambda t: (t.suggest_float("x", 0, 1), t.suggest_float("y", 0, 1)), n_trials=40)
    sweep(*run, "--trials", "160", "--", "echo", "{x}", "{y}")
    listed("two objectives", "m", s)
    same("of 160 trials", len(s.trials), 160)
    same("the Pareto front", sorted(x["trial"] for x in lines("pareto", "-S", here("m"))),
         sorted(x.number for x in s.best_trials))
    moved("two objectives", "m", s)


def optunas_read_here():
    s = optuna.create_study(study_name="theirs", storage=there("o"), direction="maximize",
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
    listed("theirs", "o", s)
    same("best", lines("best", "-S", here("o"))[0]["trial"], s.best_trial.number)
    theirs = optuna.importance.get_param_importances(
        s, evaluator=optuna.importance.PedAnovaImportanceEvaluator())
    for row in lines("importance", "-S", here("o")):
        same(f"importance of {row['name']}", row["importance"], float(theirs[row["name"]]))
    with open("theirs.yaml", "w") as f:
        f.write("x: uniform(-1, 1)\nn: lograndint(1, 65)\nc: choice([a, 1, null])\n")
    words = ("theirs.yaml", "--storage", here("o"), "--direction", "maximize")
    same("an enqueued trial starts here", lines("ask", *words)[0]["params"]["x"], 0.25)
    same("the study goes on", lines("ask", *words)[0]["trial"], 32)


def optunas_run_here():
    """A study with all that Optuna can write is run on by hpo-sweep and then by Optuna."""
    space = {"x": FloatDistribution(-1, 1), "lr": FloatDistribution(1e-5, 1, log=True),
             "q": FloatDistribution(0.0, 1.0, step=0.25), "n": IntDistribution(0, 9, step=3),
             "l": IntDistribution(1, 1024, log=True), "one": IntDistribution(7, 7),
             "k": CategoricalDistribution(["a", 1, 0.5, None, True, "é \"{}\""])}
    s = optuna.create_study(study_name="all", storage=there("a"),
                            sampler=optuna.samplers.RandomSampler(seed=2))
    for i in range(12):
        t = s.ask(space)
        for step, value in enumerate((0.5, math.nan, math.inf, -math.inf, i)):
            t.report(value, step * 10)
        t.set_user_attr("note", {"i": i, "list": [1, None, "NaN"]})
        if i % 4 == 3:
            s.tell(t, state=TrialState.PRUNED)
        elif i % 4 == 2:
            s.tell(t, state=TrialState.FAIL)
        else:
            s.tell(t, (math.inf, 2.5, 0.1 + i, 3.0)[i % 4] if i != 9 else -math.inf)
    running = s.ask(space)
    for x in (0.5, -0.5):
        s.enqueue_trial({"x": x, "k": None, "one": 7}, user_attrs={"mine": x})
    s.set_user_attr("tags", ["a", {"b": None}])
    listed("theirs of every kind", "a", s)
    moved("theirs of every kind", "a", s)
    trials = s.trials
    with open("all.json", "w") as f:
        json.dump({k: json.loads(optuna.distributions.distribution_to_json(d))
                   for k, d in space.items()}, f)
    sweep("run", "all.json", "--storage", here("a"), "--study", "all", "--trials", "40", "-j", "2",
          "--sampler", "tpe", "--", "sh", "-c",
          'echo "1 0.5" >> "$HPO_REPORT"; echo "2 $1" >> "$HPO_REPORT"; echo "$1"', "sh", "{x}")
    s = load("a", "all")
    t = s.trials
    same("run on: numbers", [x.number for x in t], list(range(40)))
    same("what was there stays", repr(t[:13]) == repr(trials[:13]) and
         (t[12].state.name, t[12].number), ("RUNNING", running.number))
    same("their enqueued trials are run", [(x.state.name, x.params["x"], x.params["k"],
                                            x.user_attrs) for x in t[13:15]],
         [("COMPLETE", x, None, {"mine": x}) for x in (0.5, -0.5)])
    same("distributions are theirs", all(x.distributions == space for x in t[13:]), True)
    same("values and reports", all(x.value == x.params["x"] and x.intermediate_values ==
                                   {1: 0.5, 2: x.value} for x in t[13:]), True)
    same("the search space", optuna.search_space.intersection_search_space(t), space)
    sweep("tell", "-S", here("a"), "--study", "all", str(running.number), "0.25")
    same("what they asked for is told here", (load("a", "all").trials[12].state.name,
                                              load("a", "all").trials[12].value), ("COMPLETE", 0.25))
    s.optimize(lambda u: u.suggest_float("x", -1, 1) ** 2, n_trials=10)
    listed("run on by both", "a", s)
    moved("run on by both", "a", s)
    same("durations", all(x.duration >= datetime.timedelta(0) for x in s.trials), True)
    same("best of it", lines("best", "-S", here("a"), "--study", "all")[0]["trial"],
         s.best_trial.number)


def constraints():
    """What is infeasible for one is for the other."""
    sampler = optuna.samplers.TPESampler(
        seed=1, n_startup_trials=2, constraints_func=lambda t: (t.params["x"] - 0.5, -1.0))
    s = optuna.create_study(study_name="c", storage=there("c"), direction="maximize",
                            sampler=sampler)
    s.optimize(lambda t: t.suggest_float("x", 0, 1), n_trials=15)
    assert 0 < sum(t.params["x"] > 0.5 for t in s.trials) < 15
    feasible = max((t for t in s.trials if t.params["x"] <= 0.5), key=lambda t: t.value)
    same("the best that is feasible", lines("best", "-S", here("c"))[0]["trial"], feasible.number)
    same("and so says optuna", load("c", "c").best_trial.number, feasible.number)
    moved("constraints", "c", s)


def command_line():
    """Optuna's own program opens our studies."""
    tool = os.path.join(os.path.dirname(sys.executable), "optuna")

    def run(study, *words):
        file = "a" if study == "all" else study
        url = f"sqlite:///{file}.db" if kind == "sqlite" else f"{file}.jsonl"
        p = subprocess.run([tool, "--quiet", *words, "--storage", url, "--study-name", study],
                           capture_output=True, text=True)
        assert p.returncode == 0, (words, p.stderr)
        return p.stdout

    # Not of s: version 4 fails to subtract times with a zone, which we and version 5 write to a
    # journal, from its own without one, so that a trial that we started and it finished has no
    # duration.  To a journal that has times without a zone we write such.
    same("optuna trials", len(json.loads(run("m", "trials", "-f", "json"))), 160)
    same("optuna trials of both", len(json.loads(run("all", "trials", "-f", "json"))), 50)
    best = json.loads(run("m", "best-trials", "-f", "json"))
    same("optuna best-trials", sorted(x["number"] for x in best),
         sorted(x["trial"] for x in lines("pareto", "-S", here("m"))))
    asked = json.loads(run("s", "ask", "--search-space", json.dumps(
        {"x": {"name": "FloatDistribution", "attributes": {"low": -5.0, "high": 5.0}}})))
    run("s", "tell", "--trial-number", str(asked["number"]), "--values", "5")
    row = lines("show", "-S", here("s"))[asked["number"]]
    same("optuna ask and tell", (row["state"], row["values"], row["params"]),
         ("COMPLETE", [5], asked["params"]))


print(f"# optuna {optuna.__version__}")
for kind in ("sqlite", "journal"):
    with tempfile.TemporaryDirectory() as tmp:
        os.chdir(tmp)
        ours_read_by_optuna()
        several_objectives()
        optunas_read_here()
        optunas_run_here()
        constraints()
        command_line()
        os.chdir("/")

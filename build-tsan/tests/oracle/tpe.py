#!/usr/bin/env python3
"""Our TPE beside Optuna's: the next draw after the same history, and medians.

usage: tpe.py BENCH-SAMPLER [--draws 2000] [--seeds 80] [--michalewicz 200]

For flat and conditional spaces, histories of random trials are given to both, and the
distributions of the next point over many seeds are compared: the shares of each choice
(chi-squared) and every number in each branch (Kolmogorov-Smirnov), with group=yes against
Optuna's group=True as well.  Then the best of 100 trials over many seeds, by the
Mann-Whitney test.  NumPy's argsort, by which Optuna finds the neighbours of equal integers, is
made stable for the draws: by default their order, and with it which of them gets the wide
kernel, is that of the processor's vector unit.  Ends with status 1 when a draw differs at p < 0.05 over the number of
comparisons, or a median at p < 0.01.  Needs optuna and scipy.
"""
import argparse
import ctypes
import pathlib
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import optuna
from scipy import stats

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.simplefilter("ignore")
HERE = pathlib.Path(__file__).resolve().parent

# name: sweep file, and the same as a function of an Optuna trial (in the same order)
SPACES = {
    "flat": ("x: uniform(0, 1)\nlr: loguniform(1e-5, 1e-1)\nn: randint(1, 9)\n"
             "c: choice([p, q, r])\n",
             lambda t: (t.suggest_float("x", 0, 1),
                        t.suggest_float("lr", 1e-5, 1e-1, log=True),
                        t.suggest_int("n", 1, 8),
                        t.suggest_categorical("c", ["p", "q", "r"]))),
    "branches": ("b: choice([p, q, r])\n"
                 + "".join(f"{c}{i}: uniform(0, 1) if b == {c}\n" for c in "pqr" for i in "01"),
                 lambda t: [t.suggest_float(f"{c}{i}", 0, 1)
                            for c in t.suggest_categorical("b", ["p", "q", "r"])
                            for i in "01"]),
    "nested": ("lr: loguniform(1e-5, 1e-1)\nopt: choice([sgd, adam])\n"
               "momentum: uniform(0.5, 1) if opt == sgd\n"
               "warm: choice([no, yes]) if opt == adam\n"
               "steps: randint(1, 101) if warm == yes\nn: quniform(0, 1, 0.1)\n",
               lambda t: (t.suggest_float("lr", 1e-5, 1e-1, log=True),
                          t.suggest_float("momentum", 0.5, 1)
                          if t.suggest_categorical("opt", ["sgd", "adam"]) == "sgd" else
                          t.suggest_int("steps", 1, 100)
                          if t.suggest_categorical("warm", ["no", "yes"]) == "yes" else 0,
                          t.suggest_float("n", 0, 1, step=0.1))),
}


def names(text):
    return [line.split(":")[0] for line in text.splitlines()]


def loss(params):
    """Any function of a point will do: it only has to rank the history."""
    return sum((k + 1) * abs(np.log10(v) / 5 + 0.6 if name == "lr" else v - 0.35)
               if isinstance(v, float) else 0.1 * (len(str(v)) + ord(str(v)[0]) % 3)
               for k, (name, v) in enumerate(sorted(params.items())))


def history(suggest, n, seed):
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    for _ in range(n):
        t = study.ask()
        suggest(t)
        study.tell(t, loss(t.params))
    return study.trials


def internal(trial, order):
    return [trial.distributions[k].to_internal_repr(trial.params[k]) if k in trial.params
            else np.nan for k in order]


def their_draws(suggest, past, order, n, group):
    study = optuna.create_study()
    study.add_trials(past)
    out = []
    for seed in range(n):
        study.sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True if group else None,
                                                   group=group)
        t = study.ask()
        suggest(t)
        out.append(internal(t, order))
        study.tell(t, state=optuna.trial.TrialState.FAIL)
    return np.array(out)


def our_draws(bench, tmp, text, past, order, n, group):
    (tmp / "s.yaml").write_text(text)
    (tmp / "h.tsv").write_text("".join(
        "\t".join(repr(float(v)) for v in internal(t, order) + [t.value]) + "\n" for t in past))
    lines = subprocess.run([bench, "draws", f"tpe:group={'yes' if group else 'no'}",
                            str(tmp / "s.yaml"), str(tmp / "h.tsv"), str(n)],
                           check=True, capture_output=True, text=True).stdout
    return np.array([[float(v) for v in line.split()] for line in lines.splitlines()])


def compare(ours, theirs, order, past):
    """p-values: the share of each branch and choice, and each number in its branch."""
    dists = {k: d for t in past for k, d in t.distributions.items()}
    for i, name in enumerate(order):
        # a step away from 0.2 is 0.30000000000000004 there
        a, b = ours[:, i].round(12), theirs[:, i].round(12)
        a, b = a[~np.isnan(a)], b[~np.isnan(b)]
        if len(a) != len(ours) or len(b) != len(theirs):
            yield f"{name}: in force", stats.fisher_exact(
                [[len(a), len(ours) - len(a)], [len(b), len(theirs) - len(b)]])[1]
        if not len(a) or not len(b):
            continue
        if isinstance(dists[name], optuna.distributions.CategoricalDistribution):
            counts = np.array([[(v == k).sum() for k in set(a) | set(b)] for v in (a, b)])
            yield name, stats.chi2_contingency(counts)[1] if counts.shape[1] > 1 else 1.0
        else:
            yield name, stats.ks_2samp(a, b).pvalue


def one_step(bench, tmp, draws):
    found, argsort = [], np.argsort
    np.argsort = lambda a, *args, **kw: argsort(a, *args, **{"kind": "stable", **kw})
    for name, (text, suggest) in SPACES.items():
        for n in (15, 40, 120):
            past = history(suggest, n, n)
            for group in (False, True):
                ours = our_draws(bench, tmp, text, past, names(text), draws, group)
                theirs = their_draws(suggest, past, names(text), draws, group)
                for what, p in compare(ours, theirs, names(text), past):
                    found.append((p, f"{name} after {n}{', group' if group else ''}: {what}"))
    np.argsort = argsort
    found.sort()
    bad = [(p, what) for p, what in found if p < 0.05 / len(found)]
    print(f"one-step draws: {len(found)} comparisons of {draws} draws, least p {found[0][0]:.2g} "
          f"({found[0][1]}), {sum(p < 0.05 for p, _ in found)} below 0.05")
    for p, what in bad:
        print(f"  differs: {what}: p = {p:.2g}")
    return not bad


def their_best(lib, name, suggest, order, seeds, group):
    losses, out = (ctypes.c_double * 2)(), []
    for seed in range(seeds):
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(
            seed=seed, multivariate=True if group else None, group=group))
        for _ in range(100):
            t = study.ask()
            suggest(t)
            lib.objectives_evaluate(name.encode(), losses,
                                    (ctypes.c_double * len(order))(*internal(t, order)))
            study.tell(t, losses[0])
        out.append(study.best_value)
    return out


def medians(bench, lib, name, suggest, order, seeds, group):
    ours = [float(v) for v in subprocess.run(
        [bench, "quality", name, f"tpe:group={'yes' if group else 'no'}", "100", "0", str(seeds)],
        check=True, capture_output=True, text=True).stdout.split()]
    theirs = their_best(lib, name, suggest, order, seeds, group)
    p = stats.mannwhitneyu(ours, theirs).pvalue
    print(f"{name}{', group' if group else ''}: 100 trials, {seeds} seeds: median "
          f"{np.median(ours):.4g} ours, {np.median(theirs):.4g} Optuna's, p = {p:.3f}",
          flush=True)
    return p >= 0.01


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("bench")
    ap.add_argument("--draws", type=int, default=2000)
    ap.add_argument("--seeds", type=int, default=80)
    ap.add_argument("--michalewicz", type=int, default=200)
    args = ap.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = pathlib.Path(tmp)
        bench_dir = HERE.parent / "bench"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-I{HERE.parent.parent}", "-o",
                        tmp / "o.so", bench_dir / "objectives.c", "-lm"], check=True)
        lib = ctypes.CDLL(str(tmp / "o.so"))
        fine = not args.draws or one_step(args.bench, tmp, args.draws)
        text, suggest = SPACES["branches"]
        for group in (False, True) if args.seeds else ():
            fine &= medians(args.bench, lib, "branches", suggest, names(text), args.seeds, group)
        order = [f"x{i}" for i in range(5)]
        if args.michalewicz:
            fine &= medians(args.bench, lib, "michalewicz5",
                            lambda t: [t.suggest_float(k, 0, 3.14159265358979) for k in order],
                            order, args.michalewicz, False)
    return 0 if fine else 1


sys.exit(main())

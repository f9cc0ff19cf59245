#!/usr/bin/env python3
"""Fixtures of unit-sampling: what optuna 5, scipy and cmaes compute.

usage: sampling.py > tests/data/sweep/sampling.json
"""
import json
import math
import sys
import warnings

import cmaes
import numpy as np
import optuna
import scipy.stats
from optuna._hypervolume import compute_hypervolume
from optuna._hypervolume.hssp import _solve_hssp
from optuna.distributions import (
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
)
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.samplers._tpe import _truncnorm
from optuna.samplers._tpe.parzen_estimator import (
    _ParzenEstimator,
    _ParzenEstimatorParameters,
)
from optuna.samplers._tpe.sampler import default_weights
from optuna.study._multi_objective import _fast_non_domination_rank
from optuna.trial import create_trial

warnings.filterwarnings("ignore")
optuna.logging.set_verbosity(optuna.logging.ERROR)
rng = np.random.RandomState(1)

# Among equal observations numpy's default sort is arbitrary, and with it which of them
# gets which width.
_argsort = np.argsort
np.argsort = lambda a, *args, **kw: _argsort(a, kind="stable")


def dist_json(d):
    return json.loads(distribution_to_json(d))


def truncnorm():
    intervals = [(-1, 1), (-5, -4), (2, 3), (30, 31), (-40, -35), (-0.01, 8), (-25, 25)]
    out = []
    for a, b in intervals:
        mass = float(_truncnorm._log_gauss_mass(np.array([float(a)]), np.array([float(b)]))[0])
        for q in (0.001, 0.3, 0.5, 0.999):
            x = float(_truncnorm.ppf(np.array([q]), float(a), float(b))[0])
            out.append([a, b, mass, q, x])
    return out


SPACE = {
    "x": FloatDistribution(-2, 3),
    "lr": FloatDistribution(1e-6, 1e-1, log=True),
    "drop": FloatDistribution(0, 0.6, step=0.1),
    "layers": IntDistribution(1, 9, step=2),
    "width": IntDistribution(4, 512, log=True),
    "opt": CategoricalDistribution(["sgd", "adam", "lamb"]),
}


def draw(d):
    if isinstance(d, CategoricalDistribution):
        return rng.randint(len(d.choices))
    if isinstance(d, FloatDistribution) and d.step:
        return round(d.low + d.step * rng.randint(round((d.high - d.low) / d.step) + 1), 10)
    if isinstance(d, IntDistribution) and not d.log:
        return d.low + d.step * rng.randint((d.high - d.low) // d.step + 1)
    lo, hi = (math.log(d.low), math.log(d.high)) if d.log else (d.low, d.high)
    v = rng.uniform(lo, hi)
    v = math.exp(v) if d.log else v
    return min(max(round(v), d.low), d.high) if isinstance(d, IntDistribution) else v


def parzen():
    params = _ParzenEstimatorParameters(1.0, True, False, default_weights, True)
    out = []
    for n in (0, 1, 2, 7, 25, 26, 40, 130):
        obs = [[float(draw(d)) for d in SPACE.values()] for _ in range(n)]
        points = [[float(draw(d)) for d in SPACE.values()] for _ in range(4)]

        def columns(rows):
            return {k: np.array([r[i] for r in rows], dtype=float) for i, k in enumerate(SPACE)}

        pe = _ParzenEstimator(columns(obs), SPACE, params)
        out.append({"observations": obs, "points": points,
                    "log_density": [float(v) for v in pe.log_pdf(columns(points))]})
    return out


def sequences():
    d = 70
    ids = [0, 1, 2, 3, 7, 100, 1023, 40000]
    sobol = scipy.stats.qmc.Sobol(d, scramble=False, bits=32)
    halton = scipy.stats.qmc.Halton(d, scramble=False)
    s = sobol.random(2**16)[ids]
    h = halton.random(40001)[ids]
    return {"ids": ids, "sobol": s.tolist(), "halton": h.tolist()}


def cma():
    out = []
    for n in (1, 2, 5, 12):
        c = cmaes.CMA(mean=np.full(n, 0.5), sigma=1 / 6, bounds=np.array([[0.0, 1.0]] * n), seed=1)
        state = {"n": n, "population": c.population_size, "weights": c._weights.tolist(),
                 "mu_eff": float(c._mu_eff), "c1": float(c._c1), "cmu": float(c._cmu),
                 "cc": float(c._cc), "c_sigma": float(c._c_sigma), "d_sigma": float(c._d_sigma),
                 "points": [], "losses": []}
        for _ in range(6):
            xs = [c.ask() for _ in range(c.population_size)]
            ys = [float(sum((x - 0.3) ** 2 * (1 + np.arange(n)))) for x in xs]
            state["points"] += [float(v) for x in xs for v in x]
            state["losses"] += ys
            c.tell(list(zip(xs, ys)))
        c._eigen_decomposition()
        state.update(mean=c._mean.tolist(), sigma=float(c._sigma), c=c._C.ravel().tolist(),
                     p_sigma=c._p_sigma.tolist(), p_c=c._pc.tolist())
        out.append(state)
    return out


def fronts():
    out = []
    for n, m in ((1, 2), (12, 2), (40, 2), (30, 3), (25, 4), (30, 1)):
        pts = np.round(rng.rand(n, m) * (8 if n == 40 else 100)) / 10
        ref = np.full(m, 10.5)
        ranks = _fast_non_domination_rank(pts)
        top = pts[ranks == 0]
        uniq = np.unique(top, axis=0)
        k = max(1, len(uniq) // 2)
        chosen = _solve_hssp(top, np.arange(len(top)), k, ref)
        out.append({"n": n, "m": m, "losses": pts.tolist(), "ranks": ranks.tolist(),
                    "ranks_enough": _fast_non_domination_rank(pts, n_below=max(1, n // 3)).tolist(),
                    "enough": max(1, n // 3),
                    "volume": compute_hypervolume(pts, ref) if m > 1 else 10.5 - float(pts.min()),
                    "k": k, "front": top.tolist(),
                    "chosen_volume": compute_hypervolume(top[chosen], ref) if m > 1
                    else 10.5 - float(top.min())})
    return out


def importance():
    out = []
    for n, directions in ((1, 1), (2, 1), (30, 1), (300, 1), (120, 2), (200, 0)):
        conditional = directions == 0
        directions = directions or 1
        study = optuna.create_study(directions=["minimize"] * directions)
        rows = []
        for _ in range(n):
            vals = [float(draw(d)) for d in SPACE.values()]
            v = (vals[0] - 1) ** 2 + 3 * (vals[5] == 1) + abs(math.log10(vals[1]) + 3) + vals[2]
            losses = [v] if directions == 1 else [v, (vals[0] + 1) ** 2 + vals[3]]
            dists = dict(SPACE)
            if conditional and vals[5] != 1:
                dists.pop("lr")
                vals[1] = None
            rows.append({"x": vals, "losses": losses})
            study.add_trial(create_trial(
                values=losses, distributions=dists,
                params={k: d.to_external_repr(vals[list(SPACE).index(k)]) for k, d in dists.items()}))
        imp = optuna.importance.get_param_importances(
            study, evaluator=PedAnovaImportanceEvaluator(), normalize=False) if directions == 1 \
            else PedAnovaImportanceEvaluator().evaluate(study)
        out.append({"rows": rows, "importance": [float(imp[k]) for k in SPACE]})
    return out


def beta():
    return [[a, b, u, float(scipy.stats.beta.ppf(u, a, b))]
            for a, b in ((2, 5), (0.5, 0.5), (1, 1), (30, 2)) for u in (1e-6, 0.2, 0.5, 0.99)]


json.dump({"truncnorm": truncnorm(),
           "space": {k: dist_json(d) for k, d in SPACE.items()},
           "parzen": parzen(), "sequences": sequences(), "cma": cma(), "fronts": fronts(),
           "importance": importance(), "beta": beta()},
          sys.stdout, separators=(",", ":"))
print()

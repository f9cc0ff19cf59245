#!/usr/bin/env python3
"""check-rounding.py BEFORE AFTER STEP SEED RATE - one update of tp-run train --master none beside a float64 twin

BEFORE and AFTER are checkpoints of one rank, of steps STEP - 1 and STEP, of a model in f32 or bf16 that was trained
with --optimizer adamw (decay 0.01, betas 0.9 and 0.999, eps 1e-8), RATE the rate of the step (torch and numpy; by hand).
The twin computes each weight from the moments of AFTER in float64, and rounds it with the same random bits: Philox4x32-10
of the place, the tensor and the step.  Tells how many of the matrices' weights are the twin's, how far the others are,
and the mean of what rounding added, in units of the spacing, which is 0 but for 4 standard errors."""
import glob
import json
import sys

import numpy as np
import torch
from safetensors.torch import load_file


def philox(block, stream, step, key):
    c = [block & 0xFFFFFFFF, block >> np.uint64(32), np.full_like(block, stream), np.full_like(block, step)]
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    mask = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        p, q = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(q >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), q & mask, (p >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p & mask]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def random16(n, stream, step, key):
    at = np.arange(n, dtype=np.uint64)
    word = np.stack(philox(at // np.uint64(8), stream, step, key))
    half = (at % np.uint64(8)).astype(int)
    return (word[half // 2, np.arange(n)] >> (16 * (half % 2)).astype(np.uint64)) & np.uint64(0xFFFF)


def rounded(x, bits):
    """x, float64, to bf16 by 16 random bits of each: down unless they carry."""
    down = torch.from_numpy((torch.from_numpy(x.astype(np.float32)).view(torch.int32).numpy() & ~0xFFFF).copy())
    low = down.view(torch.float32).numpy().astype(np.float64)
    high = (down + 0x10000).view(torch.float32).numpy().astype(np.float64)
    share = (x - low) / (high - low)  # also of negative numbers, whose spacing is negative
    return np.where(np.floor(share * 65536) + bits.astype(np.float64) >= 65536, high, low), high - low


def main():
    before, after, step, seed, rate = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
    old, new = (load_file(glob.glob(f"{d}/rank-*.safetensors")[0]) for d in (before, after))
    names = json.load(open(f"{after}/checkpoint.json"))
    order = [t["name"] for t in names["tensors"] if t["name"] + ".exp_avg" in new]
    equal = total = 0
    worst, moved = 0.0, []
    for name in order:
        w = old[name].double().numpy().ravel()
        if not name.endswith("proj.weight"):
            continue
        m, v = (new[f"{name}.{k}"].double().numpy().ravel() for k in ("exp_avg", "exp_avg_sq"))
        x = w * (1 - rate * 0.01) - rate / (1 - 0.9**step) * m / (np.sqrt(v) / np.sqrt(1 - 0.999**step) + 1e-8)
        got, best = new[name].double().numpy().ravel(), -1
        for stream in range(2 * len(order) + 8):  # the number of the tensor in the model
            want, unit = rounded(x, random16(len(x), stream, step, seed ^ (0x5CA1AB1E << 32)))
            best = max(best, int((want == got).sum()))
            if best > 0.99 * len(x):
                break
        equal, total = equal + best, total + len(x)
        worst = max(worst, float(np.max(np.abs(got - x) / np.abs(unit))))
        moved += list((got - x) / np.abs(unit))
    error = 4 * np.std(moved) / np.sqrt(len(moved))
    print(f"{equal} of {total} are the twin's; {worst:.4f} of the spacing at most; mean {np.mean(moved):.5f} +- {error:.5f}")
    return 0 if equal > 0.995 * total and worst < 1.01 and abs(np.mean(moved)) < error else 1


sys.exit(main())

#!/usr/bin/env python3
"""activations.py - what transformers answers for each activation function, and its derivative

    activations.py > tests/data/activations.tsv

Each line: a name in ACT2FN, x, the function of x and its derivative by autograd, in float64.
The points are exact in float32 and none is a corner of a piecewise function.  A function that
transformers lacks goes into OWN, under its word.  tests/unit-activation.c reads the file.
(transformers 5.24, torch 2.13)
"""
import numpy as np
import torch
from transformers.activations import ACT2FN

OWN = {"softplus": torch.nn.functional.softplus}
# these have weights: operations of their own in the language
WEIGHTED = {"prelu", "xielu"}
POINTS = [-60.0, -20.5, -12.1, -8.3, -6.7, -5.2, -4.1, -3.3, -2.9, -2.2, -1.7, -1.1, -0.6, -0.3, -0.04,
          -0.001, 0.002, 0.05, 0.2, 0.4, 0.9, 1.3, 1.8, 2.4, 2.8, 3.4, 4.3, 5.6, 6.2, 8.1, 9.9, 10.4, 19.0, 21.5, 60.0]

functions = {name: ACT2FN[name] for name in ACT2FN if name not in WEIGHTED} | OWN
for name in sorted(functions):
    x = torch.tensor(np.float32(POINTS).astype(np.float64), requires_grad=True)
    y = functions[name](x)
    slope, = torch.autograd.grad(y.sum(), x)
    for line in zip(x.tolist(), y.tolist(), slope.tolist()):
        print(name, *("%.9g" % v for v in line), sep="\t")

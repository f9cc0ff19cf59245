#!/usr/bin/env python3
"""Load what `tp-shard merge --export dcp` wrote with PyTorch, and compare it with the original.

usage: check-dcp.py DCP_DIRECTORY MODEL.safetensors

Prints the checksums that tests/tp-shard-export.t holds.  Needs torch and safetensors.
"""
import os
import subprocess
import sys
import tempfile

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save



def raw(t):
    """The bytes of T: a NaN is equal to itself."""
    return t.contiguous().flatten().view(torch.uint8)


directory, original = sys.argv[1:]
want = load_file(original)
with tempfile.TemporaryDirectory() as scratch:
    path = os.path.join(scratch, "whole.pt")
    dcp_to_torch_save(directory, path)
    whole = torch.load(path, weights_only=True)
planned = {name: torch.zeros_like(t) for name, t in want.items()}
dcp.load(planned, checkpoint_id=directory, no_dist=True)
assert set(whole) == set(want), set(whole) ^ set(want)
for name, t in want.items():
    for got in (whole[name], planned[name]):
        assert got.dtype == t.dtype and got.shape == t.shape and torch.equal(raw(got), raw(t)), name
print(len(want), "tensors equal; torch", torch.__version__)
for name in (".metadata", "__0_0.distcp"):
    print(subprocess.run(["cksum", os.path.join(directory, name)], capture_output=True, text=True).stdout, end="")

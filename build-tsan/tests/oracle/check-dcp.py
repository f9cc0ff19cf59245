#!/usr/bin/env python3
"""Load what `tp-shard merge --export dcp` wrote with PyTorch, and compare it with the original.

usage: check-dcp.py DCP_DIRECTORY MODEL.safetensors

Loads it whole, into a plain dictionary, and into tensors that two and three ranks share by rows and by columns.
Prints the checksums that tests/tp-shard-export.t holds.  Needs torch and safetensors.
"""
import os
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors.torch import load_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard


def raw(t):
    """The bytes of T: a NaN is equal to itself."""
    return t.contiguous().flatten().view(torch.uint8)


def check(name, got, want):
    assert got.dtype == want.dtype and got.shape == want.shape and torch.equal(raw(got), raw(want)), name


def rank_main(rank, ranks, directory, original, rendezvous):
    """Load this rank's parts, cut along the last axis and along the first."""
    dist.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    want = load_file(original)
    for last in (False, True):
        planned, expected = {}, {}
        for name, t in want.items():
            axis = t.dim() - 1 if last else 0
            parts = t.chunk(ranks, axis) if t.dim() else [t] * ranks
            expected[name] = parts[rank] if rank < len(parts) else t.narrow(axis, 0, 0)
            planned[name] = DTensor.from_local(torch.zeros_like(expected[name]).contiguous(), mesh,
                                               [Shard(axis) if t.dim() else Replicate()], run_check=False,
                                               shape=t.shape, stride=t.stride())
        dcp.load(planned, checkpoint_id=directory)
        for name, t in expected.items():
            check(name, planned[name].to_local(), t)
    dist.destroy_process_group()


def main(directory, original):
    want = load_file(original)
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "whole.pt")
        dcp_to_torch_save(directory, path)
        whole = torch.load(path, weights_only=True)
        for ranks in (2, 3):
            mp.spawn(rank_main, (ranks, directory, original, os.path.join(scratch, f"meet{ranks}")), nprocs=ranks)
    planned = {name: torch.zeros_like(t) for name, t in want.items()}
    dcp.load(planned, checkpoint_id=directory, no_dist=True)
    assert set(whole) == set(want), set(whole) ^ set(want)
    for name, t in want.items():
        check(name, whole[name], t)
        check(name, planned[name], t)
    print(len(want), "tensors equal; torch", torch.__version__)
    for name in (".metadata", "__0_0.distcp"):
        print(subprocess.run(["cksum", os.path.join(directory, name)], capture_output=True, text=True).stdout, end="")


if __name__ == "__main__":
    main(*sys.argv[1:])

#!/usr/bin/env python3
"""make-pickles.py - files of torch.save, and what torch.load gives from them as safetensors

    make-pickles.py tests/data

Writes tests/data/pickles: NAME.pt beside NAME.safetensors with the same tensors; refused-*.pt, which a reader that
builds nothing but tensors must refuse; and two model directories cut from tests/data/models/llama-gqa,
one with pytorch_model.bin (some tensors stored transposed or sharing their storage), one with two shards and
an index in the older stream form.  Needs torch and safetensors.
"""
import collections
import json
import os
import pickle
import shutil
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

data = sys.argv[1]
out = os.path.join(data, "pickles")
shutil.rmtree(out, ignore_errors=True)
os.makedirs(out)
torch.manual_seed(1)


def path(name):
    return os.path.join(out, name)


def pair(name, tensors, saved=None, **options):
    """NAME.pt with SAVED (the tensors themselves, unless given) and NAME.safetensors."""
    torch.save(tensors if saved is None else saved, path(name + ".pt"), **options)
    save_file({k: v.detach().contiguous().clone() for k, v in tensors.items()}, path(name + ".safetensors"))


types = collections.OrderedDict()
for t in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
          torch.int8, torch.uint8, torch.bool):
    types["x." + str(t).split(".")[1]] = (torch.randn(3, 2) * 3).to(t)
pair("types", types)
pair("types-legacy", types, _use_new_zipfile_serialization=False)

base = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
views = {"whole": base, "row": base[1], "column": base[:, 1], "transposed": base.permute(2, 0, 1),
         "every.second": base.flatten()[::2], "expanded": base[0, 0].expand(3, 4), "scalar": base[1, 2, 3],
         "empty": base[:0], "parameter": torch.nn.Parameter(base[0] + 1)}
pair("views", views)
pair("views-legacy", views, _use_new_zipfile_serialization=False)

state = {"a.weight": torch.randn(4, 3), "a.bias": torch.randn(4)}
pair("training", state, {"epoch": 3, "model_state_dict": state, "optimizer": {"state": {0: {"m": torch.ones(2)}}},
                         "note": "x", "rate": 0.5, "none": None, "big": 1 << 80})
pair("nested", {"layers.0.w": torch.ones(2), "layers.1.w": torch.zeros(2), "pair.0": torch.ones(1)},
     {"layers": [{"w": torch.ones(2)}, {"w": torch.zeros(2)}], "pair": (torch.ones(1), 5)})


class Runs:
    def __reduce__(self):
        return os.system, ("touch /tmp/pickle-was-run",)


torch.save({"w": torch.ones(2), "x": Runs()}, path("refused-system.pt"))
torch.save({"w": torch.ones(2), "x": Runs()}, path("refused-system-legacy.pt"), _use_new_zipfile_serialization=False)
torch.save(torch.nn.Linear(2, 2), path("refused-module.pt"))
torch.save({"w": torch.ones(64)}, path("refused-short.pt"))
with open(path("refused-short.pt"), "r+b") as f:
    f.truncate(os.path.getsize(path("refused-short.pt")) - 100)
with open(path("refused-plain.pt"), "wb") as f:
    pickle.dump({"w": [1, 2, 3]}, f)
with open(path("refused-empty.pt"), "wb") as f:
    pass

source = os.path.join(data, "models", "llama-gqa")
weights = load_file(os.path.join(source, "model.safetensors"))
for name in ("model", "model-shards"):
    os.makedirs(path(name))
    shutil.copy(os.path.join(source, "config.json"), path(name))
odd = {k: v.t().contiguous().t() if "o_proj" in k else v for k, v in weights.items()}
joined = torch.stack([v for k, v in weights.items() if k.endswith("layernorm.weight")])
for i, k in enumerate(k for k in weights if k.endswith("layernorm.weight")):
    odd[k] = joined[i]
torch.save(odd, path("model/pytorch_model.bin"))
names = list(weights)
index = {"metadata": {"total_size": sum(v.numel() * v.element_size() for v in weights.values())}, "weight_map": {}}
for i, part in enumerate((names[: len(names) // 2], names[len(names) // 2:])):
    file = f"pytorch_model-{i + 1:05}-of-00002.bin"
    torch.save({k: weights[k] for k in part}, path("model-shards/" + file), _use_new_zipfile_serialization=False)
    index["weight_map"].update({k: file for k in part})
with open(path("model-shards/pytorch_model.bin.index.json"), "w") as f:
    json.dump(index, f, indent=1)
torch.save({"w": torch.ones(2, dtype=torch.complex64).conj().imag}, path("refused-negated.pt"))

# types that have no storage of their own: bytes, and the type beside them
newer = {}
for t in (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
          torch.uint16, torch.uint32, torch.uint64, torch.complex64):
    newer["x." + str(t).split(".")[1]] = torch.randint(0, 100, (3, 2 * t.itemsize), dtype=torch.uint8).view(t)
newer["row"] = newer["x.uint16"][1]
newer["transposed"] = newer["x.float8_e4m3fn"].t()
newer["transposed.wide"] = newer["x.uint64"].t()
newer["empty"] = torch.zeros(0, 3, dtype=torch.float8_e5m2)
pair("types-new", newer, {"state_dict": newer, "type": torch.float8_e4m3fn})

# a model's state since transformers 5, in which the experts of a layer are one tensor
stacked = path("model-experts")
os.makedirs(stacked)
shutil.copy(os.path.join(data, "models", "qwen3-moe", "config.json"), stacked)
model = transformers.AutoModelForCausalLM.from_pretrained(os.path.join(data, "models", "qwen3-moe"))
torch.save(model.state_dict(), path("model-experts/pytorch_model.bin"))

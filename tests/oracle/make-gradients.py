#!/usr/bin/env python3
"""make-gradients.py - the gradients of tiny models of make-models.py and make-encoders.py

    make-gradients.py [-o FILE] [NAME...]

For each tensor of a checkpoint, that of the mean negative log-likelihood of all targets of the
model's ids (expected.json), by PyTorch in float64 with eager attention.  NAME is that of a causal
model; stacks/NAME of one of two stacks, whose ids the decoder reads; or encoders/NAME or heads/NAME, whose targets
follow from its head (targets()). A line of FILE
(tests/data/gradients.tsv) has what tells one gradient from another, separated by tabs:

    model  tensor  elements  largest absolute value  4 sums under signs  4 elements

The sign of element i in sum k and the place of element k follow from i and k alone (sign(),
place()); tests/unit-gradient.c has the same functions. Gradients become tensors of a checkpoint
by being saved as the model's weights are, so that experts, prefixes and old forms come out as the
model's own files have them.
"""
import argparse
import importlib.util
import json
import os
import shutil
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("models", os.path.join(here, "make-models.py"))
models = importlib.util.module_from_spec(spec)
spec.loader.exec_module(models)

import torch
import transformers
from safetensors.torch import load_file

# of two stacks, and encoders with a head
MORE = ["stacks/t5", "stacks/t5-gated", "stacks/bart", "stacks/bart-odd", "stacks/mbart", "stacks/plbart", "stacks/blenderbot",
        "stacks/blenderbot-small", "stacks/led", "stacks/bigbird-pegasus", "stacks/bigbird-pegasus-blocks", "stacks/umt5", "stacks/longt5", "stacks/marian",
        "stacks/marian-odd", "stacks/pegasus", "stacks/m2m-100", "stacks/fsmt", "heads/t5-tags"]

CARRIED = (".act_fn.beta", ".act_fn.eps")  # numbers of xIELU that are no weights
data = os.path.join(here, "..", "data")
spec = importlib.util.spec_from_file_location("encoders", os.path.join(here, "make-encoders.py"))
encoders = importlib.util.module_from_spec(spec)
spec.loader.exec_module(encoders)


def signs(n, k):
    i = torch.arange(n, dtype=torch.int64)
    h = (i * 0x9E3779B1 + k * 0x85EBCA77) & 0xFFFFFFFF
    h = h ^ (h >> 15)
    h = (h * 0x2C1B3C6D) & 0xFFFFFFFF
    return 1.0 - 2.0 * (h >> 31).double()


def place(n, k):
    return (k * 7919 + 13) * 104729 % n


def targets(n, classes):
    """The label of each of N tokens, or with N 1 of a text: tests/unit-gradient.c has them, too."""
    return [(i * 7 + 3) % classes if i % 3 == 0 else -100 for i in range(n)]


def loss_of_stack(model, name, how):
    with open(os.path.join(data, "stacks", name, "expected.json")) as f:
        facts = json.load(f)
    ids = torch.tensor([facts["ids"]])
    if "source_ids" in facts:
        source = torch.tensor([facts["source_ids"]])
    else:
        source = load_file(os.path.join(data, "stacks", name, "features.safetensors"))["input_features"][None].to(model.dtype)
    logits = model(**{model.main_input_name: source}, decoder_input_ids=ids, use_cache=False).logits[0]
    return torch.nn.functional.cross_entropy(logits[:-1], ids[0, 1:])


def loss_of_encoder(model, name, how, where):
    path = os.path.join(data, where, name)
    with open(os.path.join(path, "ids")) as f:
        ids = [int(x) for x in f.read().split(",")]
    more = {}
    if os.path.exists(os.path.join(path, "line.json")):
        with open(os.path.join(path, "line.json")) as f:
            line = json.load(f)
        more = {"token_type_ids" if k == "token_types" else k: torch.tensor([v]) for k, v in line.items() if k != "ids"}
    out = model(input_ids=torch.tensor([ids]), **more, return_dict=True)
    logits = out.prediction_logits if "prediction_logits" in out else out.logits
    logits = logits.reshape(-1, logits.shape[-1])
    return torch.nn.functional.cross_entropy(logits, torch.tensor(targets(len(logits), logits.shape[-1])))


def loss_of_causal(model, name, how):
    with open(os.path.join(data, "models", name, "expected.json")) as f:
        ids = torch.tensor([json.load(f)["ids"]])
    if "dynamic" in name:  # as make-models.py: a short input makes it forget longer ones
        model(ids[:, :1], use_cache=False)
    logits = model(ids, use_cache=False).logits[0]
    return torch.nn.functional.cross_entropy(logits[:-1], ids[0, 1:])


def gradients(name):
    """Tensor name -> float64 gradient."""
    where, _, base = name.rpartition("/")
    after, how = None, {}
    with tempfile.TemporaryDirectory() as tmp:
        if where in ("encoders", "heads"):
            with open(os.path.join(data, name, "config.json")) as f:
                kind = json.load(f)["architectures"][0]
            shutil.copytree(os.path.join(data, name), tmp, dirs_exist_ok=True)
            loss_of, how = (lambda *a: loss_of_encoder(*a, where)), {"attn": None if kind.startswith("Longformer") else "eager",
                                             "wide": torch.float32 if kind.startswith("XLNet") else torch.float64}
        else:
            kind, _, how, after = (models.STACKS if where else models.MODELS)[base]
            models.write_model(tmp, base)
            loss_of = loss_of_stack if where else loss_of_causal
        model = getattr(transformers, kind).from_pretrained(
            tmp, dtype=how.get("wide", torch.float64), experts_implementation="eager",
            attn_implementation=how.get("attn", "eager")).eval()
        loss = loss_of(model, base, how)
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(p.grad if p.grad is not None else torch.zeros_like(p))
            for b in model.buffers():
                if b.is_floating_point():
                    b.zero_()
        model.save_pretrained(tmp)
        if after and not where:
            after(tmp)
        if "last" in how:
            how["last"](tmp)
        out = {}
        for entry in os.scandir(tmp):
            if entry.name.endswith(".safetensors"):
                out.update(load_file(entry.path))
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", dest="out", metavar="FILE",
                        default=os.path.join(data, "gradients.tsv"))
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    names = args.names or [n for n, m in models.MODELS.items() if m[0] == models.CAUSAL] + MORE
    lines = []
    for name in names:
        wanted = gradients(name)
        for key in sorted(wanted):
            if key.endswith(CARRIED):
                continue
            g = wanted[key].double().reshape(-1)
            sums = [(g * signs(len(g), k)).sum().item() for k in range(4)]
            some = [g[place(len(g), k)].item() for k in range(4)]
            lines.append("\t".join([name, key, str(len(g)),
                                    *(f"{x:.7g}" for x in [g.abs().max().item(), *sums, *some])]))
    if args.names and os.path.exists(args.out):  # the other models' lines stay
        with open(args.out) as f:
            lines = [s for s in f.read().splitlines() if s.split("\t")[0] not in args.names] + lines
    with open(args.out, "w") as f:
        f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

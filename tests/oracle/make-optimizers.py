#!/usr/bin/env python3
"""make-optimizers.py - what plain loops with optimizers of whole tensors make of some models

    make-optimizers.py [-o DIR] [OPTIMIZER]...

muon.tsv, adafactor.tsv, adafactor-relative.tsv, adam8bit.tsv: as make-training.py's training.tsv, by

 - torch.optim.Muon for the matrices of layers, its Newton-Schulz iteration in the numbers' type in
   place of bfloat16, and torch.optim.AdamW for all else with a third of the rate;
 - transformers' Adafactor, as its Trainer sets it, and with relative_step and scale_parameter;
 - AdamW with both moments in 8 bits: torchao's map and rounding, in blocks of at most 256 columns of a
   row, of matrices of at least 4096 numbers.

codes8.tsv: lines `signed code part` of torchao's maps, and `block signed scale x .. / code ..` of blocks.
"""
import argparse
import importlib.util
import os
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("training", os.path.join(here, "make-training.py"))
training = importlib.util.module_from_spec(spec)
spec.loader.exec_module(training)
models, gradients = training.models, training.gradients

import torch
import transformers
from safetensors.torch import load_file
from torchao.optim.quant_utils import create_dynamic_map, quantize_8bit_with_qmap

# gpt2's bias of keys has no gradient but rounding errors, by whose size Adafactor divides
NAMES = {"muon": ["llama-gqa", "gpt2-untied", "qwen3"], "adam8bit": ["gptj", "neox"],
         "adafactor": ["llama-gqa", "gemma2", "qwen3"], "adafactor-relative": ["llama-gqa", "gemma2", "qwen3"]}
RATE = training.RATE


def newton_schulz(g, coefficients, steps, eps):
    a, b, c = coefficients
    x = g.T if g.size(0) > g.size(1) else g.clone()
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if g.size(0) > g.size(1) else x


torch.optim._muon._zeropower_via_newtonschulz = newton_schulz


class Both:
    """Several optimizers, whose rates keep their ratios."""
    def __init__(self, *all_of):
        self.all_of = all_of
        self.ratio = [o.param_groups[0]["lr"] / RATE for o in all_of]

    def step(self, rate):
        for o, ratio in zip(self.all_of, self.ratio):
            for group in o.param_groups:
                if group["lr"] is not None:
                    group["lr"] = rate * ratio
            o.step()


class Adam8bit(torch.optim.Optimizer):
    """AdamW whose moments are rounded between steps."""
    def __init__(self, groups):
        super().__init__(groups, {"lr": RATE})

    @staticmethod
    def round(x, signed):
        if x.ndim != 2 or x.numel() < 4096:
            return x
        qmap = torch.tensor(create_dynamic_map(signed)).to(x.dtype)
        out = torch.empty_like(x)
        for at in range(0, x.size(1), 256):
            block = x[:, at:at + 256]
            scale = block.abs().amax(-1, keepdim=True).clip(1e-12)
            out[:, at:at + 256] = qmap[quantize_8bit_with_qmap(block / scale, qmap).int()] * scale
        return out

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                s = self.state[p]
                if not s:
                    s["t"], s["m"], s["v"] = 0, torch.zeros_like(p), torch.zeros_like(p)
                s["t"] += 1
                p.mul_(1 - group["lr"] * group["weight_decay"])
                m = s["m"].lerp(p.grad, 0.1)
                v = s["v"].lerp(p.grad.square(), 0.05)
                root = v.sqrt() / (1 - 0.95 ** s["t"]) ** 0.5 + 1e-8
                p.addcdiv_(m, root, value=-group["lr"] / (1 - 0.9 ** s["t"]))
                s["m"], s["v"] = self.round(m, True), self.round(v, False)


def groups_of(named, spared):
    kept = [p for n, p in named if not any(p is q for q in spared)]
    rest = [p for _, p in named if any(p is q for q in spared)]
    return [{"params": x, "weight_decay": d} for x, d in ((kept, training.DECAY), (rest, 0.0)) if x]


def muon(named, spared):
    inner = [(n, p) for n, p in named if p.ndim == 2 and (".layers." in n or ".h." in n)]
    outer = [(n, p) for n, p in named if not any(p is q for _, q in inner)]
    return Both(torch.optim.Muon(groups_of(inner, spared), lr=RATE, momentum=0.9),
                torch.optim.AdamW(groups_of(outer, spared), lr=RATE / 3, betas=(0.9, 0.95), eps=1e-8,
                                  foreach=False))


def adafactor(named, spared):
    return Both(transformers.Adafactor(groups_of(named, spared), lr=RATE, scale_parameter=False,
                                       relative_step=False))


class Relative(transformers.Adafactor):
    """The rate of a step is the schedule's times what Adafactor finds."""
    factor = 1.0

    def _get_lr(self, group, state):
        return super()._get_lr(group, state) * self.factor


class RelativeBoth:
    def __init__(self, o):
        self.o = o

    def step(self, rate):
        self.o.factor = rate / RATE * 2
        self.o.step()


def adafactor_relative(named, spared):
    return RelativeBoth(Relative(groups_of(named, spared), scale_parameter=True, relative_step=True))


OPTIMIZERS = {"muon": muon, "adafactor": adafactor, "adafactor-relative": adafactor_relative,
              "adam8bit": lambda named, spared: Both(Adam8bit(groups_of(named, spared)))}


def train(name, dtype, make):
    """Lines of steps, and the tensors at the end."""
    kind, _, how, after = models.MODELS[name]
    lines = []
    with tempfile.TemporaryDirectory() as tmp:
        models.write_model(tmp, name)
        model = getattr(transformers, kind).from_pretrained(
            tmp, dtype=dtype, attn_implementation=how.get("attn", "eager")).eval()
        norms = {id(p) for m in model.modules() if isinstance(m, torch.nn.LayerNorm)
                 for p in m.parameters()}
        named = list(model.named_parameters())
        optimizer = make(named, [p for n, p in named
                                 if training.SPARED.search(n.lower()) or id(p) in norms])
        for step in range(training.STEPS):
            samples = [training.batch(step, i, model.config.vocab_size)
                       for i in range(training.GLOBAL)]
            counted = sum(y != -100 for _, labels in samples for y in labels[1:])
            loss = 0.0
            model.zero_grad()
            for ids, labels in samples:
                logits = model(torch.tensor([ids]), use_cache=False).logits[0, :-1]
                part = torch.nn.functional.cross_entropy(
                    logits, torch.tensor(labels[1:]), ignore_index=-100, reduction="sum") / counted
                part.backward()
                loss += part.item()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), training.CLIP).item()
            rate = training.rate_of(step)
            optimizer.step(rate)
            lines.append([name, str(step + 1), f"{loss:.9g}", f"{norm:.9g}", f"{rate:.9g}"])
        model.save_pretrained(tmp)
        if after:
            after(tmp)
        out = {}
        for entry in os.scandir(tmp):
            if entry.name.endswith(".safetensors"):
                out.update(load_file(entry.path))
    return lines, out


def write_training(file, names, make):
    with open(file, "w") as f:
        for name in names:
            lines, wide = train(name, torch.float64, make)
            _, narrow = train(name, torch.float32, make)
            for line in lines:
                f.write("\t".join(line) + "\n")
            for key in sorted(wide):
                w = wide[key].double().reshape(-1)
                off = (narrow[key].double().reshape(-1) - w).abs().max().item()
                sums = [(w * gradients.signs(len(w), k)).sum().item() for k in range(4)]
                f.write("\t".join([name, key, f"{off:.3g}", *(f"{x:.9g}" for x in sums)]) + "\n")


def write_codes(file):
    torch.manual_seed(11)
    with open(file, "w") as f:
        for signed in (1, 0):
            qmap = torch.tensor(create_dynamic_map(bool(signed)))
            for code, part in enumerate(qmap.tolist()):
                f.write(f"map\t{signed}\t{code}\t{part.hex()}\n")
        for block in range(12):
            signed = block % 2 == 0
            qmap = torch.tensor(create_dynamic_map(signed))
            x = torch.randn(40) * 10.0 ** (-block)
            x = x if signed else x * x
            x[3] = 0
            if block == 10:
                x[:] = 0
            scale = x.abs().amax().clip(1e-12)
            codes = quantize_8bit_with_qmap(x / scale, qmap)
            for value, code in zip(x.tolist(), codes.tolist()):
                f.write(f"block\t{int(signed)}\t{code}\t{value.hex()}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", dest="out", metavar="DIR", default=gradients.data)
    parser.add_argument("optimizer", nargs="*", default=list(OPTIMIZERS))
    args = parser.parse_args()
    write_codes(os.path.join(args.out, "codes8.tsv"))
    for name in args.optimizer:
        write_training(os.path.join(args.out, f"{name}.tsv"), NAMES[name], OPTIMIZERS[name])


if __name__ == "__main__":
    main()

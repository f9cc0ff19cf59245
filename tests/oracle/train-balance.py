#!/usr/bin/env python3
"""train-balance.py - the balance of experts in tp-run train against a plain loop of PyTorch

    train-balance.py [MODEL...]        (nine families of tests/data/models)
    train-balance.py --constants       what tests/train-terms.t has

Each model is stored in f32 and trained for some steps by tp-run train, on the layouts below, with
a balance loss, and once with a z-loss of the router and label smoothing, too; and by a loop of
PyTorch in float64 whose loss is the cross-entropy plus C times the mean, over the micro-batches,
of transformers' load_balancing_loss_func of the same rows.  AdamW with a large eps, so that a
weight's update follows its gradient.  Weights must agree to 1e-6, losses and aux_loss to 1e-6 of
theirs.  The biases of deepseek_v3 are moved by a loop over the choices that transformers' router
makes, and an average of weights is held against that of all steps' weights.  Needs torch, transformers, safetensors, and the programs in PATH.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

MODELS = ["mixtral", "qwen2-moe", "qwen3-moe", "olmoe", "granitemoe", "gpt-oss", "ernie4-5-moe", "minimax-m2",
          "deepseek-v3"]
LAYOUTS = [[], ["--tp", "2"], ["--pp", "2"], ["--dp", "2"], ["--tp", "2", "--pp", "2", "--dp", "2"]]
STEPS, GLOBAL, MICRO, RATE, EPS, C, Z, SMOOTH, SPEED = 5, 8, 2, 1e-2, 1e-1, 0.7, 0.05, 0.1, 1e-2


def documents(vocab):
    """Twice as many samples as steps need but two, so that the last step has fewer."""
    return [[3 + (i * 31 + k * k * 7 + k * 11) % (vocab - 4) for k in range(12)] for i in range(STEPS * GLOBAL - 3)]


def choices(model):
    """The experts that the routers of deepseek_v3 choose, layer by layer, by hooks."""
    seen = []
    for m in model.modules():
        if type(m).__name__ == "DeepseekV3TopkRouter":
            m.register_forward_hook(lambda m, args, out: seen.append(out[2].flatten()))
    return seen


def loop(path, docs, c, z, smooth, speed, total):
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64, attn_implementation="eager",
                                                 experts_implementation="eager").eval()
    cfg, seen = model.config, choices(model)
    experts = getattr(cfg, "num_local_experts", None) or getattr(cfg, "n_routed_experts", None) or \
        getattr(cfg, "num_experts", None) or cfg.moe_num_experts
    top = getattr(cfg, "num_experts_per_tok", None) or cfg.moe_k
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, eps=EPS, weight_decay=0.0, foreach=False, fused=False)
    losses, auxes = [], []
    for step in range(STEPS):
        batch = docs[step * GLOBAL:(step + 1) * GLOBAL]
        micro = [batch[i:i + MICRO] for i in range(0, len(batch), MICRO)]
        counted = sum(len(d) - 1 for d in batch)
        optimizer.zero_grad()
        loss = aux = 0.0
        load = None
        for m in micro:
            seen.clear()
            ids = torch.tensor(m)
            out = model(ids[:, :-1]) if speed else model(ids[:, :-1], output_router_logits=True)
            logits = out.logits
            ce = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1),
                                                   reduction="sum", label_smoothing=smooth) / counted
            a = zs = torch.zeros(())
            if not speed:
                a = load_balancing_loss_func(out.router_logits, experts, top)
                zs = torch.cat([torch.logsumexp(x, -1) ** 2 for x in out.router_logits]).mean()
            (ce + (c * a + z * zs) / (1 if total else len(micro))).backward()
            loss, aux = loss + ce.item(), aux + a.item() / len(micro)
            if speed:
                biases = [m for n, m in model.named_buffers() if n.endswith("e_score_correction_bias")]
                counts = [torch.bincount(x, minlength=experts) for x in seen]
                load = counts if load is None else [a + b for a, b in zip(load, counts)]
        optimizer.step()
        if speed:
            for b, n in zip(biases, load):
                b += speed * torch.sign(n.double().mean() - n)
        losses.append(loss)
        auxes.append(aux)
    return losses, auxes, {k: v.detach().double() for k, v in model.state_dict().items()}


def run(path, docs, layout, out, options):
    data = pathlib.Path(out).with_suffix(".jsonl")
    data.write_text("".join(json.dumps({"ids": d}) + "\n" for d in docs))
    subprocess.run(["tp-run", "train", "-q", "--data", str(data), "--pack", "none", "--order", "sequential",
                    "--dropout", "0", "--seq", "16", "--steps", str(STEPS), "--global-batch", str(GLOBAL),
                    "--micro-batch", str(MICRO), "--lr", str(RATE), "--lr-schedule", "constant", "--eps", str(EPS),
                    "--clip", "0", "--threads", "1", *options, *layout, "-o", out, path], check=True)
    subprocess.run(["tp-shard", "merge", "-q", f"{out}/step-{STEPS:06}", out + ".merged"], check=True)
    with open(f"{out}/log.jsonl", encoding="utf-8") as f:
        lines = [x for x in map(json.loads, f) if x["type"] == "step"]
    model = AutoModelForCausalLM.from_pretrained(out + ".merged", dtype=torch.float32)
    return [x["loss"] for x in lines], [x.get("aux_loss") for x in lines], \
        {k: v.double() for k, v in model.state_dict().items()}


def cases(name):
    if name != "deepseek-v3":
        yield C, 0, 0, 0, False, ["--balance-loss", str(C)]
    if name == "mixtral":
        yield C, Z, SMOOTH, 0, True, ["--balance-loss", str(C), "--router-z-loss", str(Z), "--balance-sum",
                                      "--label-smoothing", str(SMOOTH)]
    if name == "deepseek-v3":
        yield 0, 0, 0, SPEED, False, ["--bias-update-speed", str(SPEED)]


def average(path, scratch):
    """--ema, beside the weights after each step, averaged in float64."""
    out, decay = os.path.join(scratch, "ema"), 0.9
    docs = documents(64)
    run(path, docs, ["--tp", "2", "--dp", "2", "--zero", "1"], out, ["--ema", str(decay), "--save-every", "1"])
    mean = {k: v.double() for k, v in load_file(os.path.join(path, "model.safetensors")).items()}
    for step in range(1, STEPS + 1):
        subprocess.run(["tp-shard", "merge", "-q", f"{out}/step-{step:06}", f"{out}.{step}"], check=True)
        now = load_file(f"{out}.{step}/model.safetensors")
        mean = {k: decay * v + (1 - decay) * now[k].double() for k, v in mean.items()}
    subprocess.run(["tp-shard", "merge", "-q", "--average", out, f"{out}.mean"], check=True)
    got = load_file(f"{out}.mean/model.safetensors")
    off = max((got[k].double() - v).abs().max().item() for k, v in mean.items())
    print(f"an average of the weights within {off:.1e}: {'ok' if off < 1e-6 else 'NOT OK'}", flush=True)
    return off >= 1e-6


def constants():
    global STEPS
    STEPS = 3
    models = pathlib.Path(__file__).resolve().parent.parent / "data/models"
    for c, z, smooth, total in (C, 0, 0, False), (C, Z, SMOOTH, True):
        losses, auxes, _ = loop(models / "mixtral", documents(64), c, z, smooth, 0, total)
        print(losses, auxes)
    losses, _, weights = loop(models / "deepseek-v3", documents(64), 0, 0, 0, SPEED, False)
    print(losses, {k: v.tolist() for k, v in weights.items() if "correction" in k})


def main():
    if sys.argv[1:] == ["--constants"]:
        return constants()
    here = pathlib.Path(__file__).resolve().parent
    bad = 0
    for name in sys.argv[1:] or MODELS:
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, name)
            model = AutoModelForCausalLM.from_pretrained(here.parent / "data/models" / name, dtype=torch.float32)
            model.save_pretrained(path)
            docs = documents(model.config.vocab_size)
            if name == "qwen3-moe":
                bad += average(path, scratch)
            for n, (c, z, smooth, speed, total, options) in enumerate(cases(name)):
                losses, auxes, weights = loop(path, docs, c, z, smooth, speed, total)
                for layout in LAYOUTS:
                    out = os.path.join(scratch, f"run{n}" + "".join(layout))
                    l, a, w = run(path, docs, layout, out, options)
                    off = max(abs(x - y) / y for x, y in zip(l, losses))
                    aux = max(abs(x - y) / y for x, y in zip(a, auxes)) if c else 0
                    worst = max(((w[k] - weights[k]).abs().max().item(), k) for k in weights)
                    verdict = "ok" if off < 1e-6 and aux < 1e-6 and worst[0] < 1e-6 else "NOT OK"
                    bad += verdict != "ok"
                    print(f"{name} {' '.join(options + layout)}: losses within {off:.1e}, aux_loss within {aux:.1e}, "
                          f"weights within {worst[0]:.1e} ({worst[1]}): {verdict}", flush=True)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""population.py - hpo-sweep's populations and pauses against a plain loop of PyTorch

    population.py [MODEL]        (llama-groups of tests/data/models)

A population of four members trains a small model by tp-run train, in parts of three steps, each of
which forks from its parent's checkpoint, with the parent's rate or, after an exploit, another.  A
loop over the same documents that keeps the parent's moments and takes the new rate must have the
same loss at every step, to 1e-6, and the same weights, to ten times the distance of the loop in
float32 and in float64, from which a loop without the moments is far away.  Then
trials are paused at rungs and promoted: a training that was paused must have the losses of one that
never was, to the bit.  Needs torch, transformers, and the programs in PATH.
"""
import json
import os
import pathlib
import sqlite3
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM

PART, GLOBAL, DECAY, CLIP = 3, 4, 0.1, 1.0

PART_SH = """#!/bin/sh
steps=$(((HPO_GENERATION + 1) * %d))
common='-q --threads 1 --save-every 1000'
if [ -n "${HPO_PARENT-}" ]; then
    exec tp-run train $common --fork "$HPO_PARENT" --lr "$HPO_lr" --steps $steps
fi
exec tp-run train $common --data "$1" --pack none --order sequential --dropout 0 --seq 16 \\
    --steps $steps --global-batch %d --lr "$HPO_lr" --lr-schedule constant --beta2 0.95 \\
    --weight-decay %g --clip %g "$2"
""" % (PART, GLOBAL, DECAY, CLIP)

PAUSE_SH = """#!/bin/sh
common='-q --threads 1 --save-every 1000 --eval-every 1'
if [ -n "${HPO_RESUME-}" ]; then
    exec tp-run train $common --fork "$HPO_RESUME"
fi
exec tp-run train $common --data "$1" --eval-data "$1" --pack none --order sequential --dropout 0 --seq 16 \\
    --steps 7 --global-batch %d --lr "$HPO_lr" --lr-schedule cosine "$2"
""" % GLOBAL


def documents(vocab, steps):
    return [[3 + (i * 31 + k * k * 7 + k * 11) % (vocab - 4) for k in range(9 + i * 5 % 7)]
            for i in range(steps * GLOBAL)]


def is_spared(name):
    low = name.lower()
    return "bias" in low or any(p == "norm" or p.endswith(("_norm", "layernorm")) for p in low.split("."))


def loop(path, docs, rates, dtype=torch.float32, forget=False):
    """Losses and, at the end, weights; with FORGET the last part begins with no moments."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, attn_implementation="eager").eval()
    groups = [[], []]
    for name, p in model.named_parameters():
        groups[is_spared(name)].append(p)
    optimizer = torch.optim.AdamW([{"params": groups[0], "weight_decay": DECAY},
                                   {"params": groups[1], "weight_decay": 0.0}],
                                  lr=rates[0], betas=(0.9, 0.95), eps=1e-8, foreach=False, fused=False)
    losses = []
    for step in range(PART * len(rates)):
        for g in optimizer.param_groups:
            g["lr"] = rates[step // PART]
        if forget and step == PART * (len(rates) - 1):
            optimizer.state.clear()
        batch = docs[step * GLOBAL:(step + 1) * GLOBAL]
        counted = sum(len(d) - 1 for d in batch)
        optimizer.zero_grad()
        total = 0.0
        for d in batch:
            ids = torch.tensor([d])
            nll = torch.nn.functional.cross_entropy(model(ids).logits[0, :-1], ids[0, 1:], reduction="sum")
            (nll / counted).backward()
            total += nll.item()
        losses.append(total / counted)
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
    return losses, {k: v.detach().double() for k, v in model.state_dict().items()}


def sh(*words):
    subprocess.run(words, check=True)


def log_of(directory, kind="step", key="loss"):
    with open(directory / "log.jsonl", encoding="utf-8") as f:
        return {x["step"]: x[key] for x in map(json.loads, f) if x["type"] == kind}


def trials_of(db):
    with sqlite3.connect(db) as c:
        trials = [{"state": s, "lr": v} for s, v in
                  c.execute("SELECT state, param_value FROM trials JOIN trial_params USING (trial_id) ORDER BY number")]
        for n, key, value in c.execute("SELECT number, key, value_json FROM trials JOIN trial_system_attributes USING (trial_id)"):
            trials[n][key] = value
    return trials


def population(path, docs, data):
    pathlib.Path("part.sh").write_text(PART_SH)
    pathlib.Path("p.yaml").write_text("lr: loguniform(1e-4, 3e-3)\n")
    sh("hpo-sweep", "run", "-q", "p.yaml", "--sampler", "pbt:population=4", "--seed", "3", "--trials", "12", "-j", "2",
       "--", "sh", "part.sh", data, path)
    trials, bad, exploits = trials_of("p.db"), 0, 0
    for n, t in enumerate(trials):
        line, at = [n], n
        while "hpo-sweep:parent" in trials[at]:
            at = int(trials[at]["hpo-sweep:parent"])
            line.insert(0, at)
        rates = [trials[k]["lr"] for k in line]
        exploited = len(line) > 1 and trials[line[-2]]["hpo-sweep:member"] != t["hpo-sweep:member"]
        exploits += exploited
        if not exploited and n < 10:
            continue
        losses, weights = loop(path, docs, rates)
        ours = {}
        for k in line:
            ours.update(log_of(pathlib.Path(f"p.trials/{k:06}")))
        off = max(abs(ours[i + 1] - a) for i, a in enumerate(losses))
        sh("tp-shard", "merge", "-q", f"p.trials/{n:06}/step-{PART * len(line):06}", "merged")
        merged = AutoModelForCausalLM.from_pretrained("merged", dtype=torch.float32).state_dict()
        sh("rm", "-r", "merged")
        exact, forgetful = (loop(path, docs, rates, *how)[1] for how in ((torch.float64,), (torch.float32, True)))

        def distance(other, weights=weights, exact=exact):
            return max((other[k].double() - weights[k]).abs().max().item() /
                       (10 * (weights[k] - exact[k]).abs().max().item() + 1e-7) for k in weights)

        worst, far = distance(merged), distance(forgetful)
        ok = off < 1e-6 and worst <= 1 and len(ours) == len(losses) and (len(line) == 1 or far > 10)
        bad += not ok
        print(f"trial {n}, {'exploit' if exploited else 'on its own'}, rates {['%.3g' % r for r in rates]}: "
              f"losses within {off:.1e}, weights within {worst:.2f} of the bound, without moments {far:.0f}: "
              f"{'ok' if ok else 'NOT OK'}", flush=True)
    if not exploits:
        print("no exploit: NOT OK")
    return bad + (exploits == 0)


def pauses(path, data):
    pathlib.Path("pause.sh").write_text(PAUSE_SH)
    pathlib.Path("h.yaml").write_text("lr: loguniform(1e-4, 1e-2)\n")
    for rate in ("3e-3", "2.9e-3", "1e-3", "9e-4", "8e-4", "7e-4", "6e-4", "5e-4"):
        sh("hpo-sweep", "enqueue", "h.yaml", f"lr={rate}")
    sh("hpo-sweep", "run", "-q", "h.yaml", "--trials", "8", "--pruner", "successive-halving:promote=yes,resource=2,reduction=2", "--", "sh", "pause.sh", data, path)
    trials, bad, promoted = trials_of("h.db"), 0, 0
    for n, t in enumerate(trials):
        if "hpo-sweep:resumes" not in t or t["state"] != "COMPLETE":
            continue
        promoted += 1
        line, at = [n], n
        while "hpo-sweep:resumes" in trials[at]:
            at = int(trials[at]["hpo-sweep:resumes"])
            line.insert(0, at)
        ours = {}
        for k in line:
            ours.update(log_of(pathlib.Path(f"h.trials/{k:06}")))
        sh("env", f"HPO_lr={t['lr']!r}", "sh", "-c", PAUSE_SH.replace("exec tp-run train", "exec tp-run train -o whole"), "sh",
           data, path)
        whole = log_of(pathlib.Path("whole"))
        sh("rm", "-r", "whole")
        ok = ours == whole and len(whole) == 7 and trials[line[0]]["lr"] == t["lr"]
        bad += not ok
        print(f"trial {n}, paused as {line[:-1]}: {len(ours)} losses, {'to the bit: ok' if ok else 'NOT OK'}", flush=True)
    if not promoted:
        print("no promotion to the end: NOT OK")
    return bad + (promoted == 0)


def main():
    here = pathlib.Path(__file__).resolve().parent
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        model = AutoModelForCausalLM.from_pretrained(here.parent / "data/models" / (sys.argv[1:] or ["llama-groups"])[0],
                                                     dtype=torch.float32)
        model.save_pretrained("model")
        docs = documents(model.config.vocab_size, 32)
        pathlib.Path("data.jsonl").write_text("".join(json.dumps({"ids": d}) + "\n" for d in docs))
        here = os.getcwd()
        data, path = f"{here}/data.jsonl", f"{here}/model"
        sys.exit(population(path, docs, data) + pauses(path, data) > 0)


if __name__ == "__main__":
    main()

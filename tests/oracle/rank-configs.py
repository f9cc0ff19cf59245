#!/usr/bin/env python3
"""rank-configs.py [TP_SHARD [MODEL...]]: parts that tp-shard --rank-configs makes, in transformers

For each small model of the tests and each tp that it can be cut for, every part is opened with
AutoModel and with the class that the model's config.json names.  There may be no missing keys, and
none unexpected but those that the whole model has so opened.

Then the part runs beside the whole on the same ids.  Each linear layer of which a part has some
columns (what an all-reduce follows: attention's and the FFN's last projection) must be given the
columns of what the whole's is given, which are the results of the part's own heads and FFN units;
its output is replaced by the whole's, as if the all-reduce had been made, so that the next layer can
be compared as well.  Experts' outputs must add up over the parts.  In the end the logits must be the
whole's.

GPT-NeoX has no key for a part of its heads; the part's tensors, as they lie in the rank file, are
put in the place of the whole's, and the same holds.

Prints one line a model and ends with status 1 when anything differs.  Needs torch, transformers 5
and safetensors."""
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors import safe_open

TOP = pathlib.Path(__file__).resolve().parents[2]
SHARD = sys.argv[1] if len(sys.argv) > 1 else str(TOP / "bin/tp-shard")
IDS = torch.tensor([[5, 9, 3, 7, 11, 4, 8, 2]])
TOLERANCE = 2e-5  # of the largest magnitude, in float32
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def plan(model, tp):
    """{name: {part: runs of each axis}}"""
    out = subprocess.run([SHARD, "plan", "--json", f"--tp={tp}", "--keep-vocab", model],
                         check=True, capture_output=True, text=True).stdout
    slices = {}
    for line in map(json.loads, out.splitlines()):
        if line["type"] == "slice" and "axes" in line:
            slices.setdefault(line["name"], {})[line["part"]] = line["axes"]
    return slices


def indices(runs):
    return torch.cat([torch.arange(s, s + n) for s, n in runs])


def load(cls, directory):
    model, info = cls.from_pretrained(directory, output_loading_info=True, dtype=torch.float32,
                                      attn_implementation="eager", experts_implementation="eager")
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("experts.down_proj_bias"):  # a sum over ranks adds it once, this one in each
                p.zero_()
    return model.eval(), {k: sorted(info[k]) for k in ("missing_keys", "unexpected_keys", "mismatched_keys")}


def arguments(model):
    return {"input_ids": IDS, **({"decoder_input_ids": IDS} if model.config.is_encoder_decoder else {}),
            "use_cache": False}


def row_linears(model, slices):
    """{module name: {part: columns}} of the linear layers whose columns are dealt."""
    modules = dict(model.named_modules())
    found = {}
    for name, parts in slices.items():
        module = modules.get(name.removesuffix(".weight"))
        if not isinstance(module, torch.nn.Linear):
            continue
        columns = {p: indices(axes[1]) for p, axes in parts.items()}
        if any(len(c) < module.in_features for c in columns.values()):
            found[name.removesuffix(".weight")] = columns
    return found


def experts(model):
    return [n for n, m in model.named_modules() if type(m).__name__.endswith("Experts")]


def distance(a, b):
    if a.shape != b.shape:
        return float("inf")
    return ((a - b).abs().max() / b.abs().max().clamp(min=1e-30)).item()


def run(model, linears, sums, whole=None, part=None):
    """Run MODEL.  The whole (WHOLE None) keeps inputs and outputs; a part is compared with them.
    Returns what was kept, the largest distance, and the outputs of the experts."""
    kept, worst, partial, handles = {}, [0.0], {}, []

    def keep(name):
        def hook(module, args, output):
            kept.setdefault(name, []).append((args[0].detach(), output.detach()))
        return hook

    def compare(name):
        def hook(module, args, output):
            seen = kept.setdefault(name, [])
            given, made = whole[name][len(seen)]
            seen.append(None)
            if name in linears:
                worst[0] = max(worst[0], distance(args[0], given[..., linears[name][part]]))
            else:
                partial.setdefault(name, []).append(output.detach())
            return made
        return hook

    for name, module in model.named_modules():
        if name in linears or name in sums:
            handles.append(module.register_forward_hook((compare if whole else keep)(name)))
    with torch.no_grad():
        logits = model(**arguments(model))[0]
    for h in handles:
        h.remove()
    return kept, worst[0], partial, logits


def opened(directory, whole_info, cls, complaints):
    for c in (cls, transformers.AutoModel):
        model, info = load(c, directory)
        # what a model carries, unused, is in the first part alone
        extra = set(info["unexpected_keys"]) - set(whole_info[c]["unexpected_keys"])
        if info["missing_keys"] or info["mismatched_keys"] or extra:
            complaints.append(f"{directory}: {c.__name__}: {info}")
        if c is cls:
            part = model
    return part


def substituted(cls, directory, path):
    """The whole model with what a rank file has of its tensors in their place."""
    model, _ = load(cls, directory)
    with safe_open(path, "pt") as f:
        for name in f.keys():
            if name == "embed_out.weight":  # whole, and called otherwise in transformers 5
                continue
            owner, _, leaf = name.rpartition(".")
            owner = model.get_submodule(owner)
            setattr(owner, leaf, torch.nn.Parameter(f.get_tensor(name).float(), requires_grad=False))
    return model


def check(directory, tp, by_hand, scratch, complaints):
    """Returns the number of parts compared and the largest distance, or why there are none."""
    out = pathlib.Path(scratch) / "cut"
    flags = [] if by_hand else ["--rank-configs"]
    done = subprocess.run([SHARD, "split", "-q", "-f", f"--tp={tp}", "--keep-vocab", *flags, directory, out],
                          capture_output=True, text=True)
    if done.returncode:
        return done.stderr.strip().split(": ", 1)[-1]
    config = json.loads((directory / "config.json").read_text())
    cls = getattr(transformers, config["architectures"][0])
    whole, info = load(cls, directory)
    whole_info = {cls: info, transformers.AutoModel: load(transformers.AutoModel, directory)[1]}
    linears, sums = row_linears(whole, plan(directory, tp)), experts(whole)
    if len(linears) < 2:
        complaints.append(f"{directory}: only {len(linears)} linear layers are dealt by columns")
    kept, _, _, logits = run(whole, linears, sums)
    total, worst = {}, 0.0
    for p in range(tp):
        if by_hand:
            part = substituted(cls, directory, out / f"rank-tp{p}-pp0.safetensors")
        else:
            part = opened(out / f"hf-tp{p}-pp0", whole_info, cls, complaints)
        _, d, partial, answer = run(part, linears, sums, kept, p)
        worst = max(worst, d, distance(answer, logits))
        for name, outputs in partial.items():
            for i, x in enumerate(outputs):
                total[name, i] = total.get((name, i), 0) + x
    for (name, i), x in total.items():
        worst = max(worst, distance(x, kept[name][i][1]))
    if worst > TOLERANCE:
        complaints.append(f"{directory} at tp {tp}: off by {worst:.2g}")
    return worst


def main():
    data = TOP / "tests/data"
    models = sorted(p.parent for p in data.glob("models/**/config.json"))
    models += sorted(p.parent for p in data.glob("stacks/*/config.json"))
    models += [data / "quantized/gpt-oss-bf16", data / "quantized/mxfp4"]
    models = [m for m in models if len(sys.argv) < 3 or m.name in sys.argv[2:]]
    complaints, refused, parts = [], {}, 0
    for directory in models:
        config = json.loads((directory / "config.json").read_text())
        by_hand = config["model_type"] == "gpt_neox"
        heads = next(config[k] for k in ("num_attention_heads", "num_heads", "n_head", "n_heads") if k in config)
        with tempfile.TemporaryDirectory() as scratch:
            done, reasons = {}, {}
            for tp in range(2, heads + 1):
                found = check(directory, tp, by_hand, scratch, complaints)
                (reasons if isinstance(found, str) else done)[tp] = found
        for tp, why in reasons.items():
            refused.setdefault(why, []).append(f"{directory.name}@{tp}")
        parts += sum(done)
        if done:
            print(f"{directory.relative_to(data)}: tp {' '.join(map(str, done))}: within {max(done.values()):.1e}",
                  flush=True)
    print(f"{parts} parts; refused:")
    for why, where in sorted(refused.items()):
        print(f"  {why}: {' '.join(where)}")
    for c in complaints:
        print(c, file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())

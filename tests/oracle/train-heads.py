#!/usr/bin/env python3
"""train-heads.py - tp-run train beside a plain loop of PyTorch, for losses other than that of the next token

    train-heads.py [NAME...]
    train-heads.py --fixtures [NAME...]  write tests/data/labelled: for models of tests/data samples, and the losses of six steps

Six steps of four samples, AdamW with decay, clipping and a cosine: losses of each step within 1e-5, and the merged
weights within ten times what f32 changes in PyTorch itself.  Dropout is off.
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import tokenizers
import torch
import transformers

STEPS, GLOBAL, RATE, DECAY, NORM, WARMUP = 6, 4, 1e-3, 0.1, 1.0, 2
LAYOUTS = [[], ["--tp", "2"], ["--pp", "2"], ["--dp", "2"], ["--sp", "2"], ["--tp", "2", "--dp", "2", "--micro-batch", "2"]]
BERT = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40, vocab_size=60,
            max_position_embeddings=32, hidden_dropout_prob=0, attention_probs_dropout_prob=0)
LLAMA = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=40,
             vocab_size=60, max_position_embeddings=32, pad_token_id=0)
T5 = dict(d_model=32, d_kv=8, d_ff=40, num_layers=2, num_decoder_layers=2, num_heads=4, vocab_size=60, dropout_rate=0,
          relative_attention_num_buckets=8, relative_attention_max_distance=20, decoder_start_token_id=0)
BART = dict(d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=40,
            decoder_ffn_dim=40, vocab_size=60, max_position_embeddings=64, dropout=0)
MODELS = {
    "bert-class": ("class", lambda: transformers.BertForSequenceClassification(transformers.BertConfig(**BERT, num_labels=3))),
    "bert-masked": ("masked", lambda: transformers.BertForMaskedLM(transformers.BertConfig(**BERT))),
    "bert-tags": ("tags", lambda: transformers.BertForTokenClassification(transformers.BertConfig(**BERT, num_labels=5))),
    "roberta-class": ("class", lambda: transformers.RobertaForSequenceClassification(
        transformers.RobertaConfig(**{**BERT, "max_position_embeddings": 34}, num_labels=3, pad_token_id=1))),
    "llama-class": ("class", lambda: transformers.LlamaForSequenceClassification(transformers.LlamaConfig(**LLAMA, num_labels=3))),
    "t5": ("target", lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(**T5))),
    "t5-smoothed": ("smoothed", lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(**T5))),
    "bart": ("target", lambda: transformers.BartForConditionalGeneration(transformers.BartConfig(**BART, decoder_start_token_id=2))),
    "mbart": ("target", lambda: transformers.MBartForConditionalGeneration(transformers.MBartConfig(**BART))),
    "pegasus": ("target", lambda: transformers.PegasusForConditionalGeneration(transformers.PegasusConfig(**BART))),
    "marian": ("target", lambda: transformers.MarianMTModel(transformers.MarianConfig(
        **BART, pad_token_id=59, decoder_start_token_id=59, eos_token_id=0))),
    "m2m": ("target", lambda: transformers.M2M100ForConditionalGeneration(transformers.M2M100Config(
        **BART, decoder_start_token_id=2, encoder_layerdrop=0, decoder_layerdrop=0))),
    "bert-regression": ("regression", lambda: transformers.BertForSequenceClassification(transformers.BertConfig(**BERT, num_labels=1))),
    "bert-labels": ("multi-label", lambda: transformers.BertForSequenceClassification(transformers.BertConfig(**BERT, num_labels=4))),
    "bert-span": ("span", lambda: transformers.BertForQuestionAnswering(transformers.BertConfig(**BERT))),
    "llama-reward": ("reward", lambda: transformers.LlamaForSequenceClassification(transformers.LlamaConfig(**LLAMA, num_labels=1))),
    "llama-orpo": ("orpo", lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA))),
    "llama-z": ("z", lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA))),
    "llama-kto": ("kto", lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA))),
    "llama-policy": ("policy", lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA))),
    "llama-distill": ("distill", lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA))),
    "bert-choice": ("choice", lambda: transformers.BertForMultipleChoice(transformers.BertConfig(**BERT))),
    "llama-dpo": ("dpo", lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA))),
}

FIXTURES = {"models/bert-classify": "class", "models/roberta-mlm": "masked", "heads/mistral-tags": "tags",
            "heads/qwen2-score": "class", "stacks/t5": "target", "stacks/mbart": "target", "stacks/bart": "smoothed"}
# of losses that are not the model's own: the name of the samples as well
OTHERS = {"heads/gemma2-score": "regression", "heads/gemma2-score reward": "reward", "models/bert-classify labels": "multi-label",
          "encoders/bert-answers": "span", "models/llama-groups orpo": "orpo", "models/llama-groups z": "z",
          "models/llama-groups kto": "kto", "models/llama-groups policy": "policy", "models/llama-groups distill": "distill",
          "encoders/bert-choice": "choice", "encoders/bert-answers squad": "squad", "models/bert-classify pairs": "pairs"}
FIXTURES.update(OTHERS)
SMOOTHED = 0.1
Z = 0.01
GOOD, BAD = 1.0, 0.7  # of KTO
CLIP, KL = 0.2, 0.04
TEMPERATURE, HARD, TOP = 2.0, 0.25, 5
BETA, SMOOTHING = 0.3, 0.1


def likelihood(model, s, which):
    ids = torch.tensor(s["prompt"] + s[which])
    n = len(s["prompt"])
    logits = model(input_ids=ids[None]).logits[0, n - 1:-1]
    return -torch.nn.functional.cross_entropy(logits, ids[n:], reduction="sum")


def likelihoods(model, prompt, drawn):
    logits = model(input_ids=torch.tensor([prompt + drawn])).logits[0, len(prompt) - 1:-1]
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(drawn)[:, None])[:, 0]


def distance(model, batch):  # KTO's, of answers to other prompts
    with torch.no_grad():
        return torch.stack([likelihood(model, s, "KL_completion") - s["reference_KL_logps"] for s in batch]).mean().clamp(min=0)


def tokenizer():  # of all pieces that the words below have, saved beside their samples
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "a", "an", "who", "when", "king", "##s", "##ing", "north", "sea", "castle",
              "é", "cafe", "1492", "li", "##ons", "##ve", "d", "in", ",", ".", "-", "(", ")", "?", "bread", "wine"]
    data = tokenizers.Tokenizer(tokenizers.models.WordPiece({x: i for i, x in enumerate(pieces)}, unk_token="[UNK]"))
    data.normalizer = tokenizers.normalizers.BertNormalizer()
    data.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    data.post_processor = tokenizers.processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", 2), ("[SEP]", 3)])
    return data


WORDS = ["The", "a", "an", "king", "Kings", "sing", "north", "northing", "Sea", "castle", "café", "1492", "lions", "live", "d", "in", "bread", "wine"]
PUNCTUATION = ["", "", "", "", ",", ".", " (", ")", "-", " -"]


def written(rng, n):
    return " ".join(rng.choice(WORDS) + rng.choice(PUNCTUATION) for _ in range(n))


def question(rng, none):
    """A line of SQuAD: an answer is made of whole words, and has others beside it."""
    context = written(rng, rng.randrange(6, 9))
    spaces = [-1] + [i for i, c in enumerate(context) if c == " "] + [len(context)]
    first = rng.randrange(len(spaces) - 1)
    last = min(len(spaces) - 1, first + rng.randrange(1, 4))
    answers = [(spaces[first] + 1, spaces[last])] + [(spaces[i] + 1, spaces[i + 1]) for i in range(rng.randrange(2))]
    answers = [] if none else [(a, b) for a, b in answers if b > a]
    return {"question": written(rng, 2) + "?", "context": context,
            "answers": {"text": [context[a:b] for a, b in answers], "answer_start": [a for a, _ in answers]}}


def features(s):
    """What run_qa.py makes of a question without a window: ids, types, places in the context, and the two labels."""
    enc = tokenizer().encode(s["question"], s["context"])
    own = [i for i, x in enumerate(enc.sequence_ids) if x == 1]
    start, end = 0, 0
    if s["answers"]["text"]:
        a, b = s["answers"]["answer_start"][0], s["answers"]["answer_start"][0] + len(s["answers"]["text"][0])
        start = max(i for i in own if enc.offsets[i][0] <= a)
        end = min(i for i in own if enc.offsets[i][1] >= b)
    return enc.ids, enc.type_ids, {i: enc.offsets[i] for i in own}, start, end


def samples(kind, model):
    rng = random.Random(3)
    out = []
    if kind == "squad":
        return [question(rng, i % 6 == 5) for i in range(GLOBAL * STEPS)]
    if kind == "pairs":
        for i in range(GLOBAL * STEPS):
            s = {"text": written(rng, 3), "pair": written(rng, 3)}
            enc = tokenizer().encode(s["text"], s["pair"])
            out.append({**(s if i % 2 else {"ids": enc.ids, "token_type_ids": enc.type_ids}), "label": rng.randrange(model.config.num_labels)})
        return out
    for _ in range(GLOBAL * STEPS):
        if kind == "dpo":
            s = {k: [rng.randrange(3, 60) for _ in range(rng.randrange(2, 7))] for k in ("prompt", "chosen", "rejected")}
            with torch.no_grad():
                for k in ("chosen", "rejected"):
                    s[f"ref_{k}_logps"] = round(likelihood(model, s, k).item(), 5)
            out.append(s)
            continue
        some = lambda a, b, most=60: [rng.randrange(3, most) for _ in range(rng.randrange(a, b))]
        if kind == "choice":
            out.append({"choices": [some(3, 6, 40) for _ in range(3)], "label": rng.randrange(3)})
            continue
        if kind == "kto":
            s = {"prompt": some(2, 5), "completion": some(2, 6), "KL_completion": some(2, 6), "label": rng.random() < 0.5}
            with torch.no_grad():
                for k, name in (("completion", "reference_logps"), ("KL_completion", "reference_KL_logps")):
                    s[name] = round(likelihood(model, s, k).item() + rng.uniform(-2, 1), 5)
            out.append(s)
            continue
        if kind == "policy":
            s = {"prompt": some(2, 5), "drawn": some(3, 8)}
            with torch.no_grad():
                each = likelihoods(model, s["prompt"], s["drawn"])
            out.append({"ids": s["prompt"] + s["drawn"], "advantage": round(rng.uniform(-2, 2), 3),
                        "old_logprobs": [round(x.item() + rng.uniform(-0.4, 0.4), 5) for x in each],
                        "ref_logprobs": [round(x.item() + rng.uniform(-1, 1), 5) for x in each]})
            continue
        if kind == "distill":
            ids = some(4, 10)
            n = rng.randrange(2, len(ids))
            p = torch.log_softmax(torch.tensor([[rng.gauss(0, 2) for _ in range(60)] for _ in range(n)]), -1).topk(TOP)
            out.append({"ids": ids, "teacher_ids": p.indices.tolist(), "teacher_logprobs": [[round(x, 5) for x in r] for r in p.values.tolist()]})
            continue
        if kind == "z":
            out.append({"ids": [rng.randrange(3, 60) for _ in range(rng.randrange(4, 14))]})
            continue
        if kind in ("reward", "orpo"):
            out.append({k: [rng.randrange(3, 40) for _ in range(rng.randrange(2, 6))] for k in ("prompt", "chosen", "rejected")})
            continue
        if kind in ("regression", "multi-label", "span"):
            ids = [rng.randrange(3, 40) for _ in range(rng.randrange(4, 14))]
            first = rng.randrange(len(ids))
            out.append({"ids": ids, **(
                {"label": round(rng.uniform(-1, 1), 3)} if kind == "regression" else
                {"labels": [int(rng.random() < 0.5) for _ in range(model.config.num_labels)]} if kind == "multi-label" else
                {"start_positions": first, "end_positions": rng.randrange(first, len(ids))})})
            continue
        ids = [rng.randrange(3, 58 if kind in ("target", "smoothed") else 60) for _ in range(rng.randrange(4, 14))]
        if kind in ("target", "smoothed"):
            out.append({"source": ids, "target": [rng.randrange(3, 58) for _ in range(rng.randrange(3, 9))]})
            continue
        if kind == "class":
            out.append({"ids": ids, "label": rng.randrange(model.config.num_labels)})
        else:
            most = 60 if kind == "masked" else model.config.num_labels
            out.append({"ids": ids, "labels": [rng.randrange(most) if rng.random() < 0.4 else -100 for _ in ids]})
    return out


def loss_of(model, kind, s, kl=None):
    if kind == "squad":
        ids, types, _, start, end = features(s)
        return model(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([types]), start_positions=torch.tensor([start]),
                     end_positions=torch.tensor([end])).loss, 1
    if kind == "pairs":
        enc = tokenizer().encode(s["text"], s["pair"]) if "text" in s else None
        ids, types = (enc.ids, enc.type_ids) if enc else (s["ids"], s["token_type_ids"])
        return model(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([types]), labels=torch.tensor([s["label"]])).loss, 1
    if kind == "choice":
        scores = torch.stack([model(input_ids=torch.tensor([[c]])).logits[0, 0] for c in s["choices"]])
        return torch.nn.functional.cross_entropy(scores[None], torch.tensor([s["label"]])), 1
    if kind == "kto":  # kto_loss of trl
        r = likelihood(model, s, "completion") - s["reference_logps"]
        return (GOOD * (1 - torch.sigmoid(BETA * (r - kl))) if s["label"] else BAD * (1 - torch.sigmoid(BETA * (kl - r)))), 1
    if kind == "policy":  # GRPOTrainer of trl, loss_type "dapo"
        n = len(s["old_logprobs"])
        new = likelihoods(model, s["ids"][:-n], s["ids"][-n:])
        old, ref = torch.tensor(s["old_logprobs"], dtype=new.dtype), torch.tensor(s["ref_logprobs"], dtype=new.dtype)
        ratio = torch.exp(new - old)
        gain = torch.min(ratio * s["advantage"], torch.clamp(ratio, 1 - CLIP, 1 + CLIP) * s["advantage"])
        return (KL * (torch.exp(ref - new) - (ref - new) - 1) - gain).sum(), n
    if kind == "distill":
        n = len(s["teacher_ids"])
        logits = model(input_ids=torch.tensor([s["ids"]])).logits[0, -n - 1:-1]
        q = torch.softmax(logits / TEMPERATURE, -1).gather(1, torch.tensor(s["teacher_ids"]))
        p = torch.tensor(s["teacher_logprobs"], dtype=logits.dtype).exp()
        p, q = (torch.cat((x, 1 - x.sum(1, keepdim=True)), 1) for x in (p, q))  # and all others
        soft = TEMPERATURE ** 2 * (p * (p / q).log()).sum()
        return (1 - HARD) * soft + HARD * torch.nn.functional.cross_entropy(logits, torch.tensor(s["ids"][-n:]), reduction="sum"), n
    if kind == "dpo":
        z = BETA * ((likelihood(model, s, "chosen") - s["ref_chosen_logps"]) - (likelihood(model, s, "rejected") - s["ref_rejected_logps"]))
        sigmoid = torch.nn.functional.logsigmoid
        return -(1 - SMOOTHING) * sigmoid(z) - SMOOTHING * sigmoid(-z), 1
    if kind == "z":  # PaLM (Chowdhery et al. 2022), section 5
        ids = torch.tensor(s["ids"])
        logits = model(input_ids=ids[None]).logits[0, :-1]
        return torch.nn.functional.cross_entropy(logits, ids[1:], reduction="sum") + Z * logits.logsumexp(-1).square().sum(), len(ids) - 1
    if kind == "orpo":  # odds_ratio_loss of trl, with the likelihood of the answer as in the paper
        chosen, rejected = (likelihood(model, s, k) / len(s[k]) for k in ("chosen", "rejected"))
        odds = (chosen - rejected) - (torch.log1p(-torch.exp(chosen)) - torch.log1p(-torch.exp(rejected)))
        return -chosen - BETA * torch.nn.functional.logsigmoid(odds), 1
    if kind == "reward":
        score = [model(input_ids=torch.tensor([s["prompt"] + s[k]])).logits[0, 0] for k in ("chosen", "rejected")]
        return -torch.nn.functional.logsigmoid(score[0] - score[1]), 1
    if kind in ("regression", "multi-label", "span"):
        model.config.problem_type = {"regression": "regression", "multi-label": "multi_label_classification", "span": None}[kind]
        given = {k: torch.tensor([s[k]]) for k in ("start_positions", "end_positions")} if kind == "span" else \
            {"labels": torch.tensor([s.get("label", s.get("labels"))], dtype=model.dtype)}
        return model(input_ids=torch.tensor([s["ids"]]), **given).loss, 1
    if kind in ("target", "smoothed"):
        labels = torch.tensor([s["target"]])
        logits = model(input_ids=torch.tensor([s["source"]]), labels=labels).logits[0]
        return torch.nn.functional.cross_entropy(logits, labels[0], reduction="sum",
                                                 label_smoothing=SMOOTHED if kind == "smoothed" else 0), len(s["target"])
    logits = model(input_ids=torch.tensor([s["ids"]])).logits
    labels = [s["label"]] if kind == "class" else s["labels"]
    return torch.nn.functional.cross_entropy(logits.reshape(len(labels), -1), torch.tensor(labels), reduction="sum",
                                             ignore_index=-100), sum(x != -100 for x in labels)


def rate(step):
    import math
    if step < WARMUP:
        return step / max(1, WARMUP)
    return max(0.0, 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / max(1, STEPS - WARMUP))))


def loop(cls, path, kind, data, dtype):
    model = cls.from_pretrained(path, dtype=dtype).train()
    plain = [n for n, p in model.named_parameters() if p.ndim < 2 or "norm" in n.lower() or "bias" in n]
    groups = [{"params": [p for n, p in model.named_parameters() if n not in plain], "weight_decay": DECAY},
              {"params": [p for n, p in model.named_parameters() if n in plain], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95))
    losses = []
    for step in range(STEPS):
        for g in optimizer.param_groups:
            g["lr"] = RATE * rate(step)
        optimizer.zero_grad()
        batch = data[step * GLOBAL:(step + 1) * GLOBAL]
        kl = distance(model, batch) if kind == "kto" else None
        parts = [loss_of(model, kind, s, kl) for s in batch]
        counted = sum(n for _, n in parts)
        (sum(x for x, _ in parts) / counted).backward()
        losses.append(sum(x.item() for x, _ in parts) / counted)
        torch.nn.utils.clip_grad_norm_(model.parameters(), NORM)
        optimizer.step()
    return losses, {k: v.detach().double() for k, v in model.state_dict().items() if v.is_floating_point()}


def run(cls, path, kind, data, layout, out):
    file = pathlib.Path(out).with_suffix(".jsonl")
    file.write_text("".join(json.dumps(s) + "\n" for s in data))
    given = {"reward": ["--loss", "reward"], "orpo": ["--loss", "orpo", "--loss-beta", str(BETA)], "z": ["--z-loss", str(Z)],
             "kto": ["--loss", "kto", "--loss-beta", str(BETA), "--kto-undesirable", str(BAD)],
             "policy": ["--loss", "policy", "--loss-beta", str(KL)],
             "distill": ["--loss", "distill", "--distill-temperature", str(TEMPERATURE), "--distill-hard", str(HARD)], "multi-label": ["--loss", "multi-label"], "masked": ["--mask-probability", "0"], "smoothed": ["--label-smoothing", str(SMOOTHED)],
             "dpo": ["--loss", "dpo", "--loss-beta", str(BETA), "--dpo-smoothing", str(SMOOTHING)]}.get(kind, [])
    subprocess.run(["tp-run", "train", "-q", "--data", str(file), "--pack", "none", "--order", "sequential", "--dropout", "0",
                    "--seq", "32", "--steps", str(STEPS), "--global-batch", str(GLOBAL), "--lr", str(RATE), "--lr-schedule",
                    "cosine", "--warmup", str(WARMUP), "--beta2", "0.95", "--weight-decay", str(DECAY), "--clip", str(NORM),
                    "--threads", "1", *given, *layout, "-o", out, path], check=True)
    subprocess.run(["tp-shard", "merge", "-q", f"{out}/step-{STEPS:06}", out + ".merged"], check=True)
    with open(f"{out}/log.jsonl", encoding="utf-8") as f:
        lines = [json.loads(x) for x in f]
    model = cls.from_pretrained(out + ".merged", dtype=torch.float32)
    return [x["loss"] for x in lines if x["type"] == "step"], {k: v.double() for k, v in model.state_dict().items()}


def fixtures(names):
    here = pathlib.Path(__file__).resolve().parent.parent / "data"
    out = here / "labelled"
    out.mkdir(exist_ok=True)
    tokenizer().save(str(out / "tokenizer.json"), pretty=False)
    lines = []
    old = {x.split("\t")[0]: x for x in (out / "losses.tsv").read_text().splitlines()}
    for name, kind in FIXTURES.items():
        if names and name not in names:
            lines.append(old[name])
            continue
        path = here / name.split()[0]
        with open(path / "config.json", encoding="utf-8") as f:
            cls = getattr(transformers, json.load(f)["architectures"][0])
        config = transformers.AutoConfig.from_pretrained(path)
        for key in ("hidden_dropout_prob", "attention_probs_dropout_prob", "attention_dropout", "dropout",
                    "dropout_rate"):
            if hasattr(config, key):
                setattr(config, key, 0)
        config.classifier_dropout = 0.0  # else 0.1 of a head on tokens
        model = cls.from_pretrained(path, dtype=torch.float32, config=config)
        short = name.rsplit("/", 1)[-1].replace(" ", "-")
        with tempfile.TemporaryDirectory() as scratch:
            model.save_pretrained(scratch)
            data = samples(kind, model)
            losses, _ = loop(cls, scratch, kind, data, torch.float64)
        (out / f"{short}.jsonl").write_text("".join(json.dumps(s, separators=(",", ":")) + "\n" for s in data))
        lines.append("\t".join([name, *(f"{x:.8g}" for x in losses)]))
    (out / "losses.tsv").write_text("\n".join(lines) + "\n")


def main():
    if sys.argv[1:2] == ["--fixtures"]:
        fixtures(sys.argv[2:])
        return
    bad = 0
    for name in sys.argv[1:] or MODELS:
        kind, make = MODELS[name]
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, name)
            torch.manual_seed(1)
            model = make()
            model.save_pretrained(path)
            data = samples(kind, model)
            l32, w32 = loop(type(model), path, kind, data, torch.float32)
            _, w64 = loop(type(model), path, kind, data, torch.float64)
            for layout in LAYOUTS:
                try:
                    losses, weights = run(type(model), path, kind, data, layout, os.path.join(scratch, "run" + "".join(layout)))
                except subprocess.CalledProcessError:
                    print(f"{name} {' '.join(layout)}: could not be trained")
                    bad += 1
                    continue
                off = max(abs(a - b) / b for a, b in zip(losses, l32))
                worst = max(((weights[k] - w32[k]).abs().max().item() /
                             (10 * (w32[k] - w64[k]).abs().max().item() + 1e-7), k) for k in w32)
                verdict = "ok" if off < 1e-5 and len(losses) == STEPS and worst[0] <= 1 else "NOT OK"
                bad += verdict != "ok"
                print(f"{name} {' '.join(layout) or 'one rank'}: losses within {off:.1e}, weights within "
                      f"{worst[0]:.2f} of the bound ({worst[1]}): {verdict}", flush=True)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()

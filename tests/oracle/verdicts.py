#!/usr/bin/env python3
"""verdicts.py - accuracy and F1 as scikit-learn and seqeval have them: writes tests/data/verdicts.tsv

Of random labels: a line "KIND CLASSES NAMES IS SAYS ACCURACY F1 PRECISION RECALL"; places of a text have commas
between, texts a slash, -1 is no label.  Of models of tests/data, as Trainer's compute_metrics would be given their
logits: a line "model NAME ACCURACY F1".  Names of tags are those of entities (run_ner.py), or of none (run_glue.py's
accuracy; F1 of class 1 of two, else macro); sets have F1 "micro" (run_classification.py).  Of answers: a line
"squad SAYS ANSWERS EXACT F1", ANSWERS with slashes between, and of a model "model NAME EXACT F1", as torchmetrics has
SQuAD's evaluation; what the model says is found as run_qa.py does, with a null answer as some of the data have none.
"""
import importlib
import importlib.util
import json
import pathlib
import random
import warnings

import seqeval.metrics
import sklearn.metrics
import torch
import transformers

_squad = importlib.import_module("torchmetrics.functional.text.squad")
spec = importlib.util.spec_from_file_location("heads", pathlib.Path(__file__).resolve().parent / "train-heads.py")
heads = importlib.util.module_from_spec(spec)
spec.loader.exec_module(heads)
warnings.filterwarnings("ignore")
HERE = pathlib.Path(__file__).resolve().parent.parent / "data"
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
PARTS = ["O", "B-A", "I-A", "E-A", "S-A", "B-B", "I-B", "E-B", "S-B", "I-C-D"]


def text(lists):
    return "/".join(",".join(map(str, x)) for x in lists)


def drawn(rng, classes, right):
    is_ = [[rng.randrange(-1, classes) for _ in range(rng.randrange(1, 14))] for _ in range(8)]
    says = [[y if y >= 0 and rng.random() < right else rng.randrange(classes) for y in t] for t in is_]
    return is_, says


def classes(is_, says, n):
    y = [(a, b) for t, u in zip(is_, says) for a, b in zip(t, u) if a >= 0]
    a, b = [x for x, _ in y], [x for _, x in y]
    f1 = sklearn.metrics.f1_score(a, b, average="binary" if n == 2 else "macro", zero_division=0)
    return sklearn.metrics.accuracy_score(a, b), f1


def squad(says, answers):
    """Exact match and F1, shares of 1."""
    answers = [x for x in answers if _squad._normalize_text(x)] or [""]
    return (max(_squad._compute_exact_match_score(says, x) for x in answers).item() * 1.0,
            max(float(_squad._compute_f1_score(says, x)) for x in answers))


def answers(rng):
    """Pairs of an answer and what is said."""
    words = ["The", "a", "An", "the", "king's", "Café", "CAFÉ", "a–b", "the_end", "x-ray", "1,492", "ÅNGSTRÖM", "—", "...", "Пётр", "theme"]
    text = lambda: rng.choice(["", " ", "\u00a0"]) + rng.choice([" ", "  ", "\u2003"]).join(rng.choice(words) for _ in range(rng.randrange(0, 5)))
    for _ in range(36):
        right = [text() for _ in range(rng.randrange(1, 4))]
        yield rng.choice(right).swapcase() + rng.choice(["", "!", " a", " king"]) if rng.random() < 0.5 else text(), right


def said(logits, places, context, none):
    """postprocess_qa_predictions of run_qa.py, for one feature."""
    start, end = logits
    found = [(start[i] + end[k], i, k) for i in sorted(start.argsort()[-20:].tolist()) for k in sorted(end.argsort()[-20:].tolist())
             if i in places and k in places and i <= k < i + 30]
    score, i, k = max(found, key=lambda x: x[0])
    return "" if none and start[0] + end[0] > score else context[places[i][0]:places[k][1]]


def main():
    rng = random.Random(5)
    lines = []
    for n, right in ((2, 0.7), (2, 0.2), (3, 0.5), (7, 0.6), (40, 0.5), (5, 1.0)):
        is_, says = drawn(rng, n, right)
        lines.append(["classes", n, "-", text(is_), text(says), *classes(is_, says, n), "nan", "nan"])
    for names, right in ((TAGS, 0.8), (TAGS, 0.3), (PARTS, 0.85), (PARTS, 0.6), (TAGS, 1.0), (TAGS, 0.0)):
        is_, says = drawn(rng, len(names), right)
        a = [[names[y] for y in t if y >= 0] for t in is_]
        b = [[names[z] for y, z in zip(t, u) if y >= 0] for t, u in zip(is_, says)]
        m = seqeval.metrics
        lines.append(["entities", len(names), ",".join(names), text(is_), text(says), m.accuracy_score(a, b), m.f1_score(a, b),
                      m.precision_score(a, b), m.recall_score(a, b)])
    for name, kind in (("models/bert-classify", "class"), ("heads/mistral-tags", "tags"), ("models/bert-classify labels", "sets"),
                       ("encoders/bert-choice", "choice"), ("encoders/bert-answers squad", "squad")):
        path = HERE / name.split()[0]
        cls = getattr(transformers, json.loads((path / "config.json").read_text())["architectures"][0])
        model = cls.from_pretrained(path, dtype=torch.float32).eval()
        data = [json.loads(x) for x in (HERE / "labelled" / (name.rsplit("/", 1)[-1].replace(" ", "-") + ".jsonl")).read_text().splitlines()]
        with torch.no_grad():
            if kind == "squad":
                both = []
                for s in data:
                    ids, types, places, *_ = heads.features(s)
                    x = model(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([types]))
                    both.append(squad(said((x.start_logits[0], x.end_logits[0]), places, s["context"], True), s["answers"]["text"]))
                result = [sum(x) / len(both) for x in zip(*both)]
            elif kind == "choice":
                scores = [[model(input_ids=torch.tensor([[c]])).logits[0, 0].item() for c in s["choices"]] for s in data]
                result = sklearn.metrics.accuracy_score([s["label"] for s in data], [x.index(max(x)) for x in scores]), "nan"
            else:
                logits = [model(input_ids=torch.tensor([s["ids"]])).logits[0] for s in data]
            if kind == "class":
                result = classes([[s["label"]] for s in data], [[x.argmax().item()] for x in logits], model.config.num_labels)
            elif kind == "tags":
                result = classes([[max(y, -1) for y in s["labels"]] for s in data], [x.argmax(-1).tolist() for x in logits],
                                 model.config.num_labels)
            elif kind == "sets":
                a, b = [s["labels"] for s in data], [(x > 0).int().tolist() for x in logits]
                result = sklearn.metrics.accuracy_score(a, b), sklearn.metrics.f1_score(a, b, average="micro", zero_division=0)
        lines.append(["model", name, *result])
    rng = random.Random(7)
    lines += [["squad", says, "/".join(right), *squad(says, right)] for says, right in answers(rng)]
    (HERE / "verdicts.tsv").write_text("".join("\t".join(f"{x:.9g}" if isinstance(x, float) else str(x) for x in y) + "\n" for y in lines))


if __name__ == "__main__":
    main()

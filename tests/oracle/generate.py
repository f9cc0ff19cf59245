#!/usr/bin/env python3
"""generate.py - what transformers' generate() makes of small models under each setting

    generate.py -o tests/data/generation

Writes NAME.jsonl, a line for tp-run generate --input each, and NAME.expected, a line with the new ids and a
line with their log-probabilities (of the raw logits) each, of models in tests/data.  Presence and frequency
penalties are those of vLLM: over generated tokens.

beams.settings has settings of beam searches, a line each, and NAME.beams the part of a line that says where such
searches begin, and for each setting a line with what is found: ids, and the score behind a colon, the best first.

draws has settings of samplers, and after a tab the probabilities of the last token: of one token after 3,4,5, or for
beams, of the best of 40,000 texts with two more tokens.
(transformers 5.24, torch 2.13; float32)
"""
import argparse
import json
import os
import random

import torch
import transformers
from transformers import LogitsProcessor, LogitsProcessorList

here = os.path.dirname(os.path.abspath(__file__))
data = os.path.join(here, "..", "data")
MODELS = {
    "llama": ("models/llama-gqa", transformers.AutoModelForCausalLM),
    "gpt2": ("models/gpt2-awkward", transformers.AutoModelForCausalLM),
    "qwen3": ("models/qwen3", transformers.AutoModelForCausalLM),
    "bart": ("stacks/bart", transformers.AutoModelForSeq2SeqLM),
    "t5": ("stacks/t5", transformers.AutoModelForSeq2SeqLM),
    "marian": ("stacks/marian", transformers.AutoModelForSeq2SeqLM),
}
NEW = 14
BEAMS = "llama", "bart", "t5", "marian"


class Counted(LogitsProcessor):
    """vLLM's penalties: what was generated loses PRESENCE, and FREQUENCY for each time."""

    def __init__(self, prompt, presence, frequency):
        self.prompt, self.presence, self.frequency = prompt, presence, frequency

    def __call__(self, ids, scores):
        counts = torch.zeros_like(scores)
        for row, seen in enumerate(ids[:, self.prompt:].tolist()):
            for i in seen:
                counts[row, i] += 1
        return scores - self.presence * (counts > 0) - self.frequency * counts


def settings_of(greedy, vocab, rng):
    """Settings that matter for a text whose greedy ids are GREEDY."""
    a, b, c = greedy[1], greedy[2], greedy[3]
    d = rng.choice([i for i in range(3, vocab) if i not in greedy])
    eos = {"ignore_eos": True, "stop_ids": [greedy[4]]}
    return [
        {},
        {"repetition_penalty": 1.3},
        {"repetition_penalty": 0.8},
        {"encoder_repetition_penalty": 1.4},
        {"encoder_repetition_penalty": 1.4, "repetition_penalty": 1.2},
        {"no_repeat_ngram_size": 1},
        {"no_repeat_ngram_size": 2},
        {"no_repeat_ngram_size": 3, "repetition_penalty": 1.1},
        {"encoder_no_repeat_ngram_size": 1},
        {"encoder_no_repeat_ngram_size": 2},
        {"bad_words_ids": [[a], [b, c], [d]]},
        {"bad_words_ids": [[greedy[0], a], [a, b, c]]},
        {"suppress_tokens": [a, b]},
        {"begin_suppress_tokens": [greedy[0]]},
        {"sequence_bias": [[[a], -3.5], [[b], 2.25], [[a, d], 9.0]]},
        {"presence_penalty": 0.75},
        {"frequency_penalty": 0.5, "presence_penalty": -0.25},
        {"frequency_penalty": 0.5, "repetition_penalty": 1.2, "no_repeat_ngram_size": 2},
        eos,
        {**eos, "min_new_tokens": 9},
        {**eos, "min_length": 12},
        {**eos, "bad_words_ids": [[greedy[4]]]},
        {**eos, "exponential_decay_length_penalty": [2, 1.6]},
        {**eos, "exponential_decay_length_penalty": [2, 3.0], "repetition_penalty": 1.5},
        {"forced_eos_token_id": d},
        {"forced_eos_token_id": d, "suppress_tokens": [a]},
    ]


def expect(model, kind, prompt, own):
    source = kind is transformers.AutoModelForSeq2SeqLM
    kw = {k: v for k, v in own.items() if k not in ("ignore_eos", "stop_ids", "presence_penalty", "frequency_penalty")}
    kw["eos_token_id"] = own.get("stop_ids")
    counted = Counted(1 if source else len(prompt), own.get("presence_penalty", 0), own.get("frequency_penalty", 0))
    out = model.generate(torch.tensor([prompt]), max_new_tokens=NEW, do_sample=False, num_beams=1, pad_token_id=0, use_cache=False,
                        
                         logits_processor=LogitsProcessorList([counted]), output_logits=True,
                         return_dict_in_generate=True, **kw)
    ids = out.sequences[0, -len(out.logits):].tolist()
    logprobs = [round(torch.log_softmax(row[0].double(), -1)[i].item(), 5) for row, i in zip(out.logits, ids)]
    return ids, logprobs


def beam_settings():
    for n in 2, 4, 7:
        for penalty in 0.6, 1, 2:
            for early in False, True, "never":
                yield {"num_beams": n, "length_penalty": penalty, "early_stopping": early}
    yield {"num_beams": 3, "no_repeat_ngram_size": 2, "num_return_sequences": 3}
    yield {"num_beams": 4, "repetition_penalty": 1.4, "early_stopping": True}
    yield {"num_beams": 4, "min_new_tokens": 7, "encoder_no_repeat_ngram_size": 2, "length_penalty": -1,
           "early_stopping": "never"}
    yield {"num_beams": 5, "forced_bos_token_id": 11, "forced_eos_token_id": 12, "early_stopping": "never"}
    yield {"num_beams": 3, "suppress_tokens": [5, 6, 7, 8], "renormalize_logits": True, "num_return_sequences": 3}
    yield {"num_beams": 2, "sequence_bias": [[[9], 2.0], [[10], -1.0]], "length_penalty": 0}


def search(model, prompt, stops, own):
    kw = {"num_return_sequences": 2, **own}
    out = model.generate(torch.tensor([prompt]), max_new_tokens=NEW, do_sample=False, pad_token_id=0, eos_token_id=stops,
                         use_cache=False, output_scores=True, return_dict_in_generate=True, **kw)
    found = []
    for ids, score, beams in zip(out.sequences.tolist(), out.sequences_scores.tolist(), out.beam_indices.tolist()):
        n = sum(b >= 0 for b in beams)
        begin = 1 if model.config.is_encoder_decoder else len(prompt)
        found.append("%s:%.5f" % (",".join(map(str, ids[begin:begin + n])), score))
    return " ".join(found)


def stops_of(model, prompt):
    """An id that ends some of the beams, and one that rarely does."""
    found = search(model, prompt, None, {"num_beams": 7, "num_return_sequences": 7})
    ids = [int(i) for one in found.split() for i in one.split(":")[0].split(",")[3:]]
    counts = sorted(set(ids), key=lambda i: (abs(ids.count(i) - 8), i))
    return counts[:2]


def search_all(out, name, path, kind):
    model = kind.from_pretrained(os.path.join(data, path), dtype=torch.float32, attn_implementation="eager").eval()
    config = transformers.GenerationConfig()
    config.decoder_start_token_id = model.generation_config.decoder_start_token_id
    model.generation_config = config
    rng = random.Random(name + " beams")
    prompt = [rng.randrange(3, model.config.vocab_size) for _ in range(7)]
    stops = stops_of(model, prompt)
    where = "source" if kind is transformers.AutoModelForSeq2SeqLM else "ids"
    with open(os.path.join(out, name + ".beams"), "w") as f:
        f.write('"%s":%s,"ignore_eos":true,"stop_ids":%s\n' % (where, prompt, stops))
        for own in beam_settings():
            f.write(search(model, prompt, stops, own) + "\n")


DRAWS = [
    {"temperature": 1.3},
    {"temperature": 0.7, "top_k": 12},
    {"temperature": 1.5, "top_p": 0.6},
    {"temperature": 1.0, "min_p": 0.3},
    {"temperature": 1.2, "typical_p": 0.4},
    {"temperature": 1.0, "top_h": 0.5},
    {"temperature": 0.9, "epsilon_cutoff": 0.02},
    {"temperature": 0.9, "eta_cutoff": 0.02},
    {"temperature": 1.1, "top_k": 40, "top_p": 0.8, "min_p": 0.1, "repetition_penalty": 1.5},
    {"temperature": 1.0, "top_k": 5, "num_beams": 2},
    {"temperature": 2.0, "num_beams": 3, "length_penalty": 0},
]


def draw(model, own):
    """What is drawn after 3,4,5, with its probability."""
    kw = {"top_k": 0, **own, "do_sample": True, "pad_token_id": 0, "return_dict_in_generate": True, "output_scores": True}
    if "num_beams" not in own:
        out = model.generate(torch.tensor([[3, 4, 5]]), max_new_tokens=1, **kw)
        return torch.softmax(out.scores[0][0].double(), -1)
    counts = torch.zeros(model.config.vocab_size, dtype=torch.double)
    for _ in range(20):
        out = model.generate(torch.tensor([[3, 4, 5]] * 2000), max_new_tokens=2, **kw)
        counts += torch.bincount(out.sequences[:, -1], minlength=len(counts))
    return counts / counts.sum()


def draw_all(out):
    model = transformers.AutoModelForCausalLM.from_pretrained(os.path.join(data, MODELS["llama"][0]), dtype=torch.float32)
    model.generation_config = transformers.GenerationConfig()
    torch.manual_seed(1)
    with open(os.path.join(out, "draws"), "w") as f:
        for own in DRAWS:
            p = draw(model.eval(), own)
            f.write("%s\t%s\n" % (json.dumps(own)[1:-1], " ".join("%d:%.4g" % (i, x) for i, x in enumerate(p.tolist()) if x > 0)))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-o", default=os.path.join(data, "generation"))
    p.add_argument("names", nargs="*")
    args = p.parse_args()
    torch.set_num_threads(1)
    os.makedirs(args.o, exist_ok=True)
    if not args.names or "draws" in args.names:
        draw_all(args.o)
    with open(os.path.join(args.o, "beams.settings"), "w") as f:
        for own in beam_settings():
            f.write(json.dumps({"num_return_sequences": 2, **own})[1:-1] + "\n")
    for name, (path, kind) in MODELS.items():
        if name in BEAMS and (not args.names or name in args.names):
            search_all(args.o, name, path, kind)
        if args.names and name not in args.names:
            continue
        rng = random.Random(name)
        model = kind.from_pretrained(os.path.join(data, path), dtype=torch.float32, attn_implementation="eager")
        model.eval()
        config = transformers.GenerationConfig()
        config.decoder_start_token_id = model.generation_config.decoder_start_token_id
        model.generation_config = config
        vocab = model.config.vocab_size
        lines, answers = [], []
        for n in range(2):
            prompt = [rng.randrange(3, vocab) for _ in range(5 + 4 * n)]
            greedy, _ = expect(model, kind, prompt, {})
            for own in settings_of(greedy, vocab, rng):
                ids, logprobs = expect(model, kind, prompt, own)
                where = "source" if kind is transformers.AutoModelForSeq2SeqLM else "ids"
                lines.append(json.dumps({where: prompt, "ignore_eos": True, **own}))
                answers.append("%s\n%s\n" % (",".join(map(str, ids)), ",".join(map(str, logprobs))))
        with open(os.path.join(args.o, name + ".jsonl"), "w") as f:
            f.write("".join(line + "\n" for line in lines))
        with open(os.path.join(args.o, name + ".expected"), "w") as f:
            f.write("".join(answers))
        print(name, len(lines))


main()

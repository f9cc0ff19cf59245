#!/usr/bin/env python3
"""make-oldfiles.py - tokenizers that are no tokenizer.json, in tests/data/tokenizer/old

    make-oldfiles.py [-o DIR] [llama] [tekken]

gpt2, opt and roberta: vocab.json and merges.txt, of kinds/roberta.json.
albert, camembert, deberta-v2 and xlm-roberta: a SentencePiece model, whose pieces and rules are those of
kinds/precompiled.json, written by hand as sentencepiece_model.proto has it; bert and mpnet: a vocab.txt, with the words of
kinds/bert.json.  llama and tekken: a SentencePiece BPE trained here on examples/bard/heldout.txt, whose ids are those of transformers with
"legacy": false, and in plain those of sentencepiece; a tekken.json, whose ids are tiktoken's.
*.out are the ids by `tokenizers` of the stages that transformers 5.23 gives each kind
(convert_slow_tokenizer.py; for vocab.txt its own classes), as tests/tokenize -d prints ids.
"""
import argparse
import base64
import io
import json
import os
import struct

import sentencepiece
import tiktoken
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import Unigram
from transformers import BertTokenizer, GPT2Tokenizer, LlamaTokenizer, MPNetTokenizer, RobertaTokenizer

here = os.path.dirname(os.path.abspath(__file__))
data = os.path.join(here, "..", "data", "tokenizer")
TEXTS = ["Where is he?", "  two  spaces,\tand a tab ", "", "1, 23, 4,", "ﬁne № ½ Ⅷ", "``quoted'' Élan naïve Ångström",
         "ROMEO:\nWhat, art thou hurt?", "[MASK] <mask> [CLS] </s> <unk>", "北京 and café", "x" * 60, "A.B-C'd"]


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, value):
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def proto(pieces, unk, charsmap):
    out = b"".join(field(1, field(1, text.encode()) + field(2, float(score)) + (field(3, kind) if kind != 1 else b""))
                   for text, score, kind in pieces)
    return out + field(2, field(3, 1) + field(40, unk)) + field(3, field(1, b"nmt_nfkc") + field(2, charsmap))


def float32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def comma(text):
    return len(text) < 2 or text[-1] != "," or not text[-2].isdigit()


def build(kind, pieces, unk, charsmap):
    vocab = [(text, float32(score)) for text, score, _ in pieces]
    rules = [normalizers.Precompiled(charsmap), normalizers.Replace(Regex(" {2,}"), " ")]
    split = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")]
    begin, end = ("<s>", "</s>") if kind in ("xlm-roberta", "camembert") else ("[CLS]", "[SEP]")
    added = []
    if kind == "xlm-roberta":
        vocab, unk = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)] + vocab[3:] + [("<mask>", 0.0)], 3
    elif kind == "camembert":
        vocab, unk = [("<s>NOTUSED", 0.0), ("<pad>", 0.0), ("</s>NOTUSED", 0.0), ("<unk>", 0.0), ("<unk>NOTUSED", -100.0)
                      ] + vocab[1:] + [("<mask>", 0.0)], 3
    elif kind == "albert":
        vocab = [(t, s if comma(t) else s - 100) for t, s in vocab]
        rules = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(),
                 normalizers.Lowercase(), *rules]
    else:
        rules, split, added = [normalizers.Strip(), *rules], split[1:], ["[MASK]"]
    t = Tokenizer(Unigram(vocab, unk_id=unk))
    t.normalizer, t.pre_tokenizer = normalizers.Sequence(rules), pre_tokenizers.Sequence(split)
    names = [text for text, _ in vocab]
    t.add_special_tokens([x for x in names if x in ("<s>", "</s>", "<pad>", "<unk>", "<mask>", "[CLS]", "[SEP]", "[PAD]", "[UNK]",
                                                    "[MASK]")] + added)
    t.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}", pair=f"{begin} $A {end} $B {end}",
        special_tokens=[(x, t.token_to_id(x)) for x in (begin, end)])
    return t


def write(out, kind, encode):
    with open(os.path.join(out, kind, "out"), "w") as f:
        f.writelines("".join(f" {i}" for i in encode(text)) + "\n" for text in TEXTS)


def llama(out):
    made = io.BytesIO()
    with open(os.path.join(here, "..", "..", "examples", "bard", "heldout.txt")) as f:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(f.read().split("\n")), model_writer=made, model_type="bpe", vocab_size=480, byte_fallback=True,
            normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True, minloglevel=2, character_coverage=0.99,
            allow_whitespace_only_pieces=True, user_defined_symbols=["<u>"])
    path = os.path.join(out, "llama")
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "tokenizer.model"), "wb") as f:
        f.write(made.getvalue())
    with open(os.path.join(path, "tokenizer_config.json"), "w") as f:
        json.dump(dict(legacy=False, add_bos_token=True, add_eos_token=False, bos_token="<s>", eos_token="</s>", unk_token="<unk>"), f)
    t = LlamaTokenizer.from_pretrained(path)
    write(out, "llama", lambda text: t(text).input_ids)
    plain = sentencepiece.SentencePieceProcessor(model_proto=made.getvalue())
    with open(os.path.join(path, "plain"), "w") as f:
        f.writelines("".join(f" {i}" for i in [1] + plain.encode(text)) + "\n" for text in TEXTS if "</s>" not in text)


def tekken(out):
    pattern = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
               r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    with open(os.path.join(data, "kinds", "roberta.json")) as f:
        model = json.load(f)["model"]
    order = [b for b in range(256) if chr(b).isprintable() and chr(b) != " "]
    byte = {chr(b): b for b in order} | {chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in order)}
    ranks = {bytes([b]): b for b in range(256)}
    for m in model["merges"]:
        ranks.setdefault(bytes(byte[c] for c in (m if isinstance(m, str) else "".join(m)).replace(" ", "")), len(ranks))
    nspecial = 20
    path = os.path.join(out, "tekken")
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "tekken.json"), "w") as f:
        json.dump({"config": {"pattern": pattern, "num_vocab_tokens": len(ranks), "default_vocab_size": len(ranks) + nspecial,
                              "default_num_special_tokens": nspecial, "version": "v3"},
                   "vocab": [{"rank": r, "token_bytes": base64.b64encode(b).decode()} for b, r in ranks.items()]}, f)
    t = tiktoken.Encoding("tekken", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    names = {"<s>": 1, "</s>": 2, "<unk>": 0}

    def encode(text):
        ids, rest = [1], text
        while rest:
            at = min((rest.find(n), n) for n in names if n in rest) if any(n in rest for n in names) else (len(rest), "")
            ids += [nspecial + i for i in t.encode(rest[:at[0]])] + ([names[at[1]]] if at[1] else [])
            rest = rest[at[0] + len(at[1]):]
        return ids
    write(out, "tekken", encode)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", dest="out", metavar="DIR", default=os.path.join(data, "old"))
    parser.add_argument("kinds", nargs="*", help="llama and tekken alone")
    args = parser.parse_args()
    out = args.out
    for kind, make in (("llama", llama), ("tekken", tekken)):
        if kind in args.kinds or not args.kinds:
            make(out)
    if args.kinds:
        return
    source = json.load(open(os.path.join(data, "kinds", "precompiled.json")))
    charsmap = base64.b64decode(source["normalizer"]["precompiled_charsmap"])
    words = [(text, score, 1) for text, score in source["model"]["vocab"][3:]] + [("1,", -2.0, 1)]
    fronts = {
        "xlm-roberta": ([("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)], 0, "sentencepiece.bpe.model"),
        "camembert": ([("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)], 0, "sentencepiece.bpe.model"),
        "albert": ([("<pad>", 0.0, 3), ("<unk>", 0.0, 2), ("[CLS]", 0.0, 3), ("[SEP]", 0.0, 3), ("[MASK]", 0.0, 3)], 1,
                   "spiece.model"),
        "deberta-v2": ([("[PAD]", 0.0, 3), ("[CLS]", 0.0, 3), ("[SEP]", 0.0, 3), ("[UNK]", 0.0, 2)], 3, "spm.model"),
    }
    with open(os.path.join(out, "inp") if os.makedirs(out, exist_ok=True) is None else "", "w") as f:
        f.writelines(json.dumps(text) + "\n" for text in TEXTS)
    for kind, (front, unk, name) in fronts.items():
        os.makedirs(os.path.join(out, kind), exist_ok=True)
        with open(os.path.join(out, kind, name), "wb") as f:
            f.write(proto(front + words, unk, charsmap))
        t = build(kind, front + words, unk, charsmap)
        write(out, kind, lambda text: t.encode(text).ids)
    bert = sorted((i, w) for w, i in json.load(open(os.path.join(data, "kinds", "bert.json")))["model"]["vocab"].items())
    bert = [w for _, w in bert]
    for kind, cls, lines in (("bert", BertTokenizer, bert),
                             ("mpnet", MPNetTokenizer, ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"] + [w for w in bert if w[0] != "["])):
        os.makedirs(os.path.join(out, kind), exist_ok=True)
        with open(os.path.join(out, kind, "vocab.txt"), "w") as f:
            f.writelines(w + "\n" for w in lines)
        t = cls.from_pretrained(os.path.join(out, kind))
        write(out, kind, lambda text: t(text).input_ids)
    merged = json.load(open(os.path.join(data, "kinds", "roberta.json")))["model"]
    plain = {w: i for w, i in merged["vocab"].items()}
    for kind, cls, more, config in (
            ("gpt2", GPT2Tokenizer, ["<|endoftext|>"], {}),
            ("opt", GPT2Tokenizer, ["<pad>", "</s>"], dict(add_bos_token=True, bos_token="</s>", eos_token={"__type": "AddedToken", "content": "</s>"},
                                                           unk_token="</s>", pad_token="<pad>", add_prefix_space=True)),
            ("roberta", RobertaTokenizer, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], {})):
        os.makedirs(os.path.join(out, kind), exist_ok=True)
        vocab = dict(plain)
        for word in more:
            vocab.setdefault(word, len(vocab))
        with open(os.path.join(out, kind, "vocab.json"), "w") as f:
            json.dump(vocab, f, ensure_ascii=False)
        with open(os.path.join(out, kind, "merges.txt"), "w") as f:
            f.writelines(["#version: 0.2\n"] + [(m if isinstance(m, str) else " ".join(m)) + "\n" for m in merged["merges"]])
        if config:
            with open(os.path.join(out, kind, "tokenizer_config.json"), "w") as f:
                json.dump(config, f)
        t = cls.from_pretrained(os.path.join(out, kind))
        write(out, kind, lambda text: t(text).input_ids)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""check-unicode.py - every code point through tests/tokenize and Python's `tokenizers`

    check-unicode.py [-e N] [STAGE...]      one text of N

Run in the top directory of a built tree.  Each stage is the pattern of a known model, or a normalizer: its
tokenizer.json has a token for each byte, and marks the beginning of each piece, so that the ids tell where a text was
cut and what it became.  Texts have every code point once, among letters, digits, blanks, marks and other code points
drawn at random.  A difference is printed, and the status is 1.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
PATTERNS = {
    "gpt2": [GPT2], "qwen2": [WORDS % ""], "llama3": [WORDS % "{1,3}"], "o200k": [O200K], "clip": [CLIP],
    "deepseek": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"],
    "deepseek3": [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
                  r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "kimi": [r"[\p{Han}]+|\p{^Han}!?"],
    "words": [r"\w+|[^\w\s]+", r"\b\d|\W\B"],
    "mistral": [r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
}
CATEGORIES = "L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Co Cn".split()
# one text is cut by all of them: a code point of another category than the oracle's shows; `category-Lu` says which
PATTERNS["categories"] = [r"\p{%s}+" % c for c in CATEGORIES if len(c) == 2]
PATTERNS["kinds"] = [r"\p{%s}+" % c for c in CATEGORIES if len(c) == 1]
ALONE = {"category-" + c: [r"\p{%s}+" % c] for c in CATEGORIES}
NORMALIZERS = {
    "nfc": normalizers.NFC(), "nfd": normalizers.NFD(), "nfkc": normalizers.NFKC(), "nfkd": normalizers.NFKD(),
    "lower": normalizers.Lowercase(), "accents": normalizers.StripAccents(), "strip": normalizers.Strip(),
    "bert": normalizers.BertNormalizer(), "cased": normalizers.BertNormalizer(lowercase=False, strip_accents=True),
}
STAGES = {"digits": pre_tokenizers.Digits(True), "punctuation": pre_tokenizers.Punctuation(), "split": pre_tokenizers.WhitespaceSplit(),
          "pieces": pre_tokenizers.BertPreTokenizer(), "whitespace": pre_tokenizers.Whitespace(), "scripts": pre_tokenizers.UnicodeScripts()}


def tokenizer(normalizer, stages):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    t = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.Sequence(stages + [pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    return t


def texts():
    rng = random.Random(1)
    points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    marks = ["\u0301", "\u0334", "\u0345", "\u3099", "\u0327", "\u05b0"]
    for i in range(0, len(points), 64):
        out = []
        for c in points[i:i + 64]:
            out.append("a" + chr(c) + rng.choice(marks) + "b" + rng.choice([" ", "1", "", "."]) + chr(c) + chr(rng.choice(points)) + " ")
        yield "".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-e", type=int, default=1)
    parser.add_argument("stages", nargs="*")
    args = parser.parse_args()
    chosen = args.stages
    patterns = PATTERNS | {n: ps for n, ps in ALONE.items() if n in args.stages}
    kinds = {n: tokenizer(None, [pre_tokenizers.Split(Regex(p), "isolated") for p in ps]) for n, ps in patterns.items()}
    kinds |= {n: tokenizer(s, []) for n, s in NORMALIZERS.items()} | {n: tokenizer(None, [s]) for n, s in STAGES.items()}
    every = list(texts())[::args.e]
    lines = "".join(json.dumps(t) + "\n" for t in every).encode()
    bad = 0
    for name, t in kinds.items():
        if chosen and name not in chosen:
            continue
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            f.write(t.to_str())
            f.flush()
            got = subprocess.run(["tests/tokenize", "-d", f.name], input=lines, capture_output=True).stdout.decode().split("\n")
        wrong = 0
        for text, line, want in zip(every, got, t.encode_batch(every)):
            ids = line.split("\t")[0].split()
            if ids != [str(i) for i in want.ids]:
                wrong += 1
                if wrong <= 3:
                    at = next((i for i, (a, b) in enumerate(zip(ids, want.ids)) if a != str(b)), min(len(ids), len(want.ids)))
                    before = t.decode(want.ids[max(at - 30, 0):at])
                    print(f"{name}: differs after {before[-12:]!r} {[hex(ord(c)) for c in before[-6:]]}"
                          f"\n  got  {t.decode(list(map(int, ids[at:at + 12])))!r}\n  want {t.decode(want.ids[at:at + 12])!r}")
        print(f"{name}: {len(every)} texts, {wrong} differ", flush=True)
        bad += wrong
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()

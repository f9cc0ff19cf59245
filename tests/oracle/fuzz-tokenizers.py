#!/usr/bin/env python3
"""fuzz-tokenizers.py - random texts through tests/tokenize and Python's `tokenizers`

    fuzz-tokenizers.py [-n TEXTS] [-s SEED] TOKENIZER.JSON[.GZ]...

Ids (with special tokens) and the texts of the ids must be the same, or a difference is
printed and the status is 1.  The texts mix scripts, emoji and control characters, NUL, runs of
punctuation and blanks, any code points, and the tokenizer's own special and added tokens; the last one has
a million characters without a blank.  Of a tenth of them the places of tokens
in the text must be the same, too.  Then a tenth as many that are no UTF-8: lone
surrogates, overlong forms, parts of characters.  A Python string cannot hold them; the ids
must be those of the text that bytes.decode("utf-8", "replace") makes of them.
"""
import argparse
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
POOLS = ["abcdefghijklmnopqrstuvwxyz", "ABC XYZ  '", "'s't're've'm'll'd 'S'LL", "0123456789",
         ".,;:!?-_/()[]{}", " \t\n\r\u00a0\u2003\u3000\u200b", "äöüßéèñçøåŁžİı", "привет мир",
         "日本語中文한국어ﾊﾝｶｸ", "مرحبا עברית हिन्दी ไทย", "🙂👩‍👩‍👧🇩🇪🏽", "e\u0301a\u0300\u200d\ufeff\u0345",
         "½²³①٣४ﬁǆ", "\x00\x01\x7f\x85\xad", "𝔘𝔫𝔦\U0010ffff\ufffd\ufffe", "\u2019\u201c\u2026\u2581",
         "the quick brown fox", "#$%&*+<=>@\\^`|~"]


def text(rng, special):
    out = []
    for _ in range(rng.randint(1, 12)):
        kind = rng.random()
        if kind < 0.12 and special:
            out.append(rng.choice(special))
        elif kind < 0.18:
            out += [chr(c) for c in (rng.randrange(0x80, 0x110000) for _ in range(2)) if not 0xD800 <= c < 0xE000]
        elif kind < 0.24:
            out.append(rng.choice(rng.choice(POOLS)) * rng.randint(2, 40))
        elif kind < 0.5:
            pool = rng.choice(POOLS)
            out.append("".join(rng.choice(pool) for _ in range(rng.randint(1, 10))))
        else:
            out.append("".join(rng.choice(rng.choice(POOLS)) for _ in range(rng.randint(1, 8))))
    return "".join(out)


ILL = [b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xed\xa0\xbd\xed\xb8\x80", b"\xc0\x80", b"\xe2\x82", b"\xf0\x9f\x99",
       b"\x80", b"\xff", b"\xf4\x90\x80\x80", b"\xe0\x80\xaf", b"\xc3", b"\xf8\x88\x80\x80\x80"]


def ill_formed(rng, special):
    out = b""
    for _ in range(rng.randint(1, 4)):
        out += text(rng, special).encode()[:rng.randint(0, 30)] + rng.choice(ILL) * rng.randint(1, 3)
    return out


def check_bytes(path, raw, tok, special, count, seed):
    rng = random.Random(seed + 1)
    texts = [ill_formed(rng, special) for _ in range(count)]
    with tempfile.NamedTemporaryFile(suffix=".json") as f:
        f.write(raw)
        f.flush()
        got = subprocess.run([os.path.join(HERE, "..", "tokenize"), "-x", f.name],
                             input="".join(t.hex() + "\n" for t in texts).encode(),
                             capture_output=True).stdout.decode().split("\n")
    wrong = 0
    for t, line in zip(texts, got):
        want = tok.encode(t.decode("utf-8", "replace")).ids
        if line.split() != [str(i) for i in want]:
            wrong += 1
            if wrong <= 5:
                print(f"{path}: {t!r}\n  got  {line[:300]}\n  want {str(want)[:300]}")
    print(f"{path}: {len(texts)} that are no UTF-8, {wrong} differ", flush=True)
    return wrong


def in_bytes(text, offsets):
    """Offsets in characters as offsets in bytes."""
    at = [0]
    for c in text:
        at.append(at[-1] + len(c.encode()))
    return " ".join(f"{at[a]}-{at[b]}" for a, b in offsets)


def check_places(path, raw, tok, texts):
    with tempfile.NamedTemporaryFile(suffix=".json") as f:
        f.write(raw)
        f.flush()
        got = subprocess.run([os.path.join(HERE, "..", "tokenize"), "-p", f.name],
                             input="".join(json.dumps(t) + "\n" for t in texts).encode(),
                             capture_output=True).stdout.decode().split("\n")
    wrong = 0
    for t, line in zip(texts, got):
        e = tok.encode(t)
        mine = line.split("\t")[-1].strip()
        want = in_bytes(t, e.offsets)
        if mine != want:
            wrong += 1
            if wrong <= 5:
                print(f"{path}: {json.dumps(t)[:300]}\n  {e.tokens[:40]}\n  got  {mine[:300]}\n  want {want[:300]}")
    print(f"{path}: the places of tokens in {len(texts)} texts, {wrong} differ", flush=True)
    return wrong


def check(path, count, seed):
    raw = gzip.open(path, "rb").read() if path.endswith(".gz") else open(path, "rb").read()
    try:
        tok = Tokenizer.from_str(raw.decode())
    except Exception as e:  # it raises nothing narrower
        print(f"{path}: not read by tokenizers: {e}")
        return 0
    tok.no_truncation()
    tok.no_padding()
    special = [t["content"] for t in json.loads(raw).get("added_tokens", [])][:200]
    rng = random.Random(seed)
    texts = [text(rng, special) for _ in range(count)]
    texts.append("".join(rng.choice(POOLS[0]) for _ in range(1000000 if count > 10000 else 10000)))
    with tempfile.NamedTemporaryFile(suffix=".json") as f:
        f.write(raw)
        f.flush()
        got = subprocess.run([os.path.join(HERE, "..", "tokenize"), "-d", f.name],
                             input="".join(json.dumps(t) + "\n" for t in texts).encode(),
                             capture_output=True).stdout.decode("utf-8", "replace").split("\n")
    wrong = 0
    for t, line in zip(texts, got):
        ids = tok.encode(t).ids
        want = (" ".join(map(str, ids)), tok.decode(ids), tok.decode(ids, skip_special_tokens=False))
        mine = line.split("\t")
        mine = (mine[0].strip(), *map(json.loads, mine[1:])) if len(mine) == 3 else (line, "", "")
        if mine != want:
            wrong += 1
            if wrong <= 5:
                print(f"{path}: {json.dumps(t)[:300]}"
                      f"\n  got  {str(mine)[:300]}\n  want {str(want)[:300]}")
    print(f"{path}: {len(texts)} texts, {wrong} differ", flush=True)
    return wrong + check_bytes(path, raw, tok, special, count // 10, seed) + check_places(path, raw, tok, texts[:count // 10])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-n", type=int, default=100000)
    parser.add_argument("-s", type=int, default=1)
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    sys.exit(any([check(f, args.n, args.s) for f in args.files]))


if __name__ == "__main__":
    main()

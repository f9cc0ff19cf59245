#!/usr/bin/env python3
"""Compare how random patterns cut random texts with Python's `tokenizers`, which has Oniguruma:

    tokenizer-patterns.py SEED N TOKENIZE

Run in the top directory.  What either refuses is counted, not compared."""
import json
import random
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer

ATOMS = r"""a b ab ' 1 . _ é ß 漢 \d \D \w \W \s \S \h \H \n \t \v \R \X \N \O \b \B ^ $ \A \z \Z \G \K [ab] [^ab] [a-c\s]
[^\s\p{L}] [\w'] [\d_] [\h] [^\n] [\S] [a[bc]] [^a[bc]] [[:punct:]] [[:space:]a] [[:digit:]] [[:word:]] []a] [a\]] [\b] [\v]
[+-] [a\-z] [.^$|] [a-] [\W] [^\h] [^\v\S] [\07-\x3f] [é-ü] \p{L} \p{Lu} \P{L} \p{^L} \p{N} \p{P} \p{S} \p{M} \p{Z} \p{C}
\p{Han} \p{Hiragana} \p{Alpha} [\p{Lower}] [\p{L}&&\p{Lu}] \x41 \x{e9} \u0061 \x7f \012 \07 \0 \. \( \/ \- \' \_ \@ { } ]
(?#x) (?i:a) (?i:É) (?m:.) (?-m:.) (?:(?i)A) (?>a|ab) (?=a) (?!a) (?<=a) (?<!b) (a|b)\1 (?<x>a)\k<x> (b)\g<1> \e \y \Q""".split()
QUANTIFIERS = ["", "", "", "", *r"? * + ?? *? +? ?+ *+ ++ {2} {1,2} {2,} {,2} {1,2}? {2}? {1,2}+ {2}+ {2,}+ {,2}? {a} {1".split()]
LETTERS = "aabbc'1.9_éÉßſ漢々、\n\n\t\u000b\u0085\u00a0AB²½ⓐ\u0301-()/{},]x\r"
BEHAVIORS = ["Isolated", "MergedWithNext", "MergedWithPrevious", "Removed", "Contiguous"]


def pattern(rng, depth=0):
    text = ""
    for _ in range(rng.randint(1, 3)):
        if rng.random() < 0.15 and depth < 2:
            text += rng.choice(["(", "(?:", "(?:", "(?i:", "(?="]) + pattern(rng, depth + 1) + ")"
        else:
            text += rng.choice(ATOMS)
        text += rng.choice(QUANTIFIERS)
    return text + ("|" + pattern(rng, depth + 1) if rng.random() < 0.25 else "")


def main():
    rng = random.Random(int(sys.argv[1]))
    j = json.load(open("tests/data/tokenizer/kinds/digits.json"))
    count = dict.fromkeys(["agree", "differ", "refused here", "refused there"], 0)
    for _ in range(int(sys.argv[2])):
        regex = pattern(rng)
        cases = ["".join(rng.choice(LETTERS) for _ in range(rng.randint(1, 10))) for _ in range(30)]
        # the second stage puts a space before each piece, so that they are seen
        j["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": regex}, "behavior": rng.choice(BEHAVIORS), "invert": False},
            {"type": "ByteLevel", "add_prefix_space": True, "use_regex": False, "trim_offsets": True}]}
        try:
            t = Tokenizer.from_str(json.dumps(j))
            want = [t.decode(t.encode(c).ids) for c in cases]
        except BaseException:  # a panic is none of Exception's
            count["refused there"] += 1
            continue
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            json.dump(j, f)
            f.flush()
            got = subprocess.run([sys.argv[3], "-d", f.name], input="".join(json.dumps(c) + "\n" for c in cases).encode(),
                                 stdout=subprocess.PIPE, check=False).stdout.decode().split("\n")
        if "\t" not in got[0]:
            count["refused here"] += 1
            continue
        bad = [i for i, w in enumerate(want) if json.loads(got[i].split("\t")[1]) != w]
        count["differ" if bad else "agree"] += 1
        if bad:
            print(regex, j["pre_tokenizer"]["pretokenizers"][0]["behavior"], [cases[bad[0]], want[bad[0]], got[bad[0]]])
    print(count)
    sys.exit(count["differ"] > 0)


main()

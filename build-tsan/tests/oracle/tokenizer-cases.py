#!/usr/bin/env python3
"""Write tests/data/tokenizer/random.inp and .out: texts of odd characters and the ids that Python's
`tokenizers` gives them with GPT-2's tokenizer.json.  Run in the top directory."""
import gzip
import random

from tokenizers import Tokenizer

tok = Tokenizer.from_str(gzip.open("tests/data/tokenizer/gpt2.json.gz", "rt").read())
rng = random.Random(1)
pools = ["abc XYZ  '", "'s't're've'm'll'd 'S'LL", "0123456789.,;:!?-_/()[]{}", " \t\n\r\u00a0\u2003\u3000",
         "äöüßéèñçøåŁž", "привет мир", "日本語中文한국어", "مرحبا עברית", "🙂👩‍👩‍👧🇩🇪🏽", "e\u0301a\u0300\u200d\ufeff",
         "½²³①٣४", "\x01\x7f<|endoftext|>", "𝔘𝔫𝔦", "\u2019\u201c\u2026"]
texts = []
for i in range(300):
    text = "".join(rng.choice(rng.choice(pools)) if rng.random() < 0.8 else rng.choice(pools)
                   for _ in range(rng.randint(1, 24)))
    texts.append(text)
with open("tests/data/tokenizer/random.inp", "w", newline="") as f:
    f.write("".join(t + "\n__ggml_vocab_test__\n" for t in texts))
with open("tests/data/tokenizer/random.out", "w") as f:
    f.writelines("".join(f" {i}" for i in tok.encode(t, add_special_tokens=False).ids) + "\n"
                 for t in texts)

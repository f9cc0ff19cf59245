#!/usr/bin/env python3
"""Kinds of tokenizer.json and what Python's `tokenizers` makes of texts with them.

    tokenizer-kinds.py [KIND...]            write tests/data/tokenizer/kinds
    tokenizer-kinds.py --random N TOKENIZE  compare the program with N random texts and lists of ids of each kind
                      [FILE...]             ... and with these files

Run in the top directory.  A tokenizer.json that is there is kept, for training differs from run to
run; remove it to make it anew.  The vocabularies are trained on examples/bard/heldout.txt."""
import base64
import json
import os
import random
import struct
import subprocess
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import processors, trainers

DIR = "tests/data/tokenizer/kinds"
TEXT = open("examples/bard/heldout.txt").read().split("\n")
TEXT += ["Größe Ärger naïve façade crème brûlée", "привет мир", "日本語の文章", "한국어", "مرحبا", "🙂 👍🏽", "e\u0301a\u0300", "12 345 6789"]
POOLS = ["abc XYZ  '", "'s't're've'm'll'd 'S'LL", "0123456789.,;:!?-_/()[]{}", " \t\n\r\u00a0\u2003\u3000\u0085\u2028",
         "äöüßéèñçøåŁžİĲǅ", "привет мир", "日本語中文한국어ｶﾞﾊﾟ", "مرحبا עברית", "🙂👩‍👩‍👧🇩🇪🏽", "e\u0301a\u0300\u200d\ufeff\u0327\u0345",
         "½²³①٣४Ⅷ㎏", "\x01\x02\x7f\x9f\ufffd\u200b", "𝔘𝔫𝔦ﬁﬀÅΩ", "\u2019\u201c\u2026▁", "thou art and the king"]
ALPHABET = pre_tokenizers.ByteLevel.alphabet()
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def trained(t, size=400, **options):
    """T trained, its stages as they are."""
    kind = {"BPE": trainers.BpeTrainer, "WordPiece": trainers.WordPieceTrainer, "Unigram": trainers.UnigramTrainer}
    t.train_from_iterator(TEXT, kind[type(t.model).__name__](vocab_size=size, show_progress=False, **options))
    return t


def changed(t, **model):
    """T with members of its model set."""
    j = json.loads(t.to_str())
    j["model"].update(model)
    return Tokenizer.from_str(json.dumps(j))


def bytes_kind(pre=None, **options):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre or pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    return trained(t, initial_alphabet=ALPHABET, **options)


def digits():
    return bytes_kind(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=True)]))


def strips():
    t = bytes_kind()
    t.add_tokens([AddedToken("<l>", lstrip=True), AddedToken("<r>", rstrip=True), AddedToken("<b>", lstrip=True, rstrip=True),
                  AddedToken("<w>", single_word=True), AddedToken("thou", single_word=True), AddedToken("thou art"),
                  AddedToken("Ġx"), AddedToken("日Ġ")])
    t.add_special_tokens([AddedToken("<s>", rstrip=True)])
    return t


def normalized():
    t = Tokenizer(models.BPE(unk_token="<unk>"))
    t.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Strip(right=False)])
    t.pre_tokenizer = pre_tokenizers.Split(Regex(r"\s"), "merged_with_next")
    trained(t, special_tokens=["<unk>"])
    t.add_tokens([AddedToken("XYZ", normalized=True), AddedToken("ABC", normalized=False), AddedToken("ÄÖ", normalized=True)])
    t.decoder = decoders.Fuse()
    return t


def bare():
    """No decoder; no unknown token."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trained(t)
    t.add_special_tokens(["<s>"])
    return t


def patterns():
    return bytes_kind(pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"^\S|.$|(?=q)"), "isolated"),
        pre_tokenizers.Split(Regex(r"\h{2}|[\h_]+x|\bt"), "merged_with_previous"),
        pre_tokenizers.Split(Regex(r"\d{2,3}+|[a-f]{2}?!|[^\S\n]{2}?[\w']{,2}\v?|(?m:\(.)"), "merged_with_next"),
        pre_tokenizers.Split(Regex(r"[[:punct:]]|\W\B|(?:it|a{2})?t+"), "contiguous", invert=True),
        pre_tokenizers.Split("(", "removed"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))


def scripts():
    return bytes_kind(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"[\p{Han}!]+|\p{^Greek}{3}|\p{Alphabetic}\P{Latin}"), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))


def llama3():
    t = bytes_kind(pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))
    j = json.loads(t.to_str())
    j["model"]["ignore_merges"] = True
    j["model"]["merges"] = [m for m in j["model"]["merges"] if len("".join(m)) != 3]
    j["model"]["merges"] = [m for m in j["model"]["merges"] if all(len(s) != 3 for s in m)]
    t = Tokenizer.from_str(json.dumps(j))
    t.add_special_tokens(["<|begin_of_text|>", "<|eot_id|>"])
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B",
        special_tokens=[("<|begin_of_text|>", t.token_to_id("<|begin_of_text|>"))])])
    return t


def form(normalizer):
    t = Tokenizer(models.BPE())
    t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    return trained(t, initial_alphabet=ALPHABET, size=300)


def changes():
    return form(normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(),
                                      normalizers.Replace(Regex(r"\s{2,}"), " "), normalizers.Replace("'", "`"),
                                      normalizers.Strip(), normalizers.Prepend("x ")]))


def framed(processor):
    t = bytes_kind(pre_tokenizers.ByteLevel(add_prefix_space=True), special_tokens=["<s>", "</s>", "<mask>"])
    t.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    t.post_processor = processor(("</s>", 1), ("<s>", 0))
    return t


BYTES = [f"<0x{b:02X}>" for b in range(256)]
FALLBACK = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])


def llama2():
    """The older form of Llama 2's and Mistral's: normalizers make the spaces."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    trained(t, size=600, special_tokens=["<unk>", "<s>", "</s>"] + BYTES, limit_alphabet=60)
    j = json.loads(t.to_str())
    j["pre_tokenizer"] = None
    j["added_tokens"] = [a for a in j["added_tokens"] if a["content"] not in BYTES]
    t = Tokenizer.from_str(json.dumps(j))
    t.decoder = FALLBACK
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return t


def metaspace(scheme, split=True):
    """The newer form."""
    t = llama2()
    t.normalizer = None
    j = json.loads(t.to_str())
    j["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}
    j["normalizer"] = None
    t = Tokenizer.from_str(json.dumps(j))
    if scheme == "always":
        t.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return t


def gemma():
    t = llama2()
    t.normalizer = normalizers.Replace(" ", "▁")
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return t


def suffix():
    """CLIP's."""
    t = Tokenizer(models.BPE(unk_token="<end>", end_of_word_suffix="</w>", continuing_subword_prefix=""))
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True)])
    trained(t, special_tokens=["<start>", "<end>"], end_of_word_suffix="</w>")
    t.decoder = decoders.BPEDecoder(suffix="</w>")
    t.post_processor = processors.RobertaProcessing(("<end>", 1), ("<start>", 0), trim_offsets=False, add_prefix_space=False)
    return t


def bert(lowercase=True):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    t.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trained(t, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    t.add_special_tokens([AddedToken("[MASK]", lstrip=True)])
    t.decoder = decoders.WordPiece(cleanup=lowercase)
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return t


def unigram(fallback=False):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.NFKC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    trained(t, special_tokens=["<pad>", "</s>", "<unk>"] + BYTES * fallback, unk_token="<unk>", size=400 + 256 * fallback)
    t.decoder = decoders.Metaspace()
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    if not fallback:
        return t
    j = json.loads(t.to_str())
    j["model"]["byte_fallback"] = True
    j["added_tokens"] = [a for a in j["added_tokens"] if a["content"] not in BYTES]
    t = Tokenizer.from_str(json.dumps(j))
    t.decoder = FALLBACK
    return t


def unicode():
    """Qwen's stages; a token for each byte, and a mark where a piece begins."""
    t = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(sorted(ALPHABET))}, merges=[]))
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3.replace("{1,3}", "")), "isolated"),
                                               pre_tokenizers.Digits(), pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    return t


def words():
    t = Tokenizer(models.WordLevel({"<unk>": 0, "the": 1, "king": 2, "!": 3, "...": 4, "é": 5, "a_1": 6, "日本": 7}, unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    return t


def runs():
    t = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(sorted(ALPHABET))}, merges=[]))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.UnicodeScripts(), pre_tokenizers.CharDelimiterSplit("-"), pre_tokenizers.FixedLength(5),
                                               pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    return t


def charsmap(rules):
    """SentencePiece's precompiled_charsmap: a double array in darts-clone's layout, and texts."""
    texts, trie = b"", {}
    for key, value in rules.items():
        node = trie
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[-1] = len(texts)
        texts += value.encode() + b"\0"
    units, bases = {0: 0}, set()

    def place(node, at):
        labels = [0 if k < 0 else k for k in node]
        base = next(b for b in range(1, 1 << 20) if b not in bases and not any(b ^ k in units for k in labels))
        bases.add(base)
        units[at] = units[at] | (at ^ base) << 10 | (-1 in node) << 8
        for k in node:
            units[base ^ max(k, 0)] = 1 << 31 | node[k] if k < 0 else k
        for k in node:
            if k >= 0:
                place(node[k], base ^ k)

    place(trie, 0)
    array = b"".join(struct.pack("<I", units.get(i, 0)) for i in range(max(units) // 256 * 256 + 256))
    return base64.b64encode(struct.pack("<I", len(array)) + array + texts).decode()


def precompiled():
    t = unigram()
    j = json.loads(t.to_str())
    j["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": charsmap(
        {"ﬁ": "fi", "ﬀ": "ff", "①": "1", "½": "1/2", "\u00a0": " ", "\u3000": " ", "\x01": "", "\u200b": " ", "e\u0301": "é",
         "a": "b", "Å": "Å", "🏽": "!", "\ufeff": ""})}
    return Tokenizer.from_str(json.dumps(j))


KINDS = {
    "precompiled": precompiled,
    "bert": bert, "bert-cased": lambda: bert(False), "unigram": unigram, "unigram-bytes": lambda: unigram(True),
    "digits": digits, "strips": strips, "normalized": normalized, "bare": bare, "patterns": patterns, "scripts": scripts, "llama3": llama3,
    "nfc": lambda: form(normalizers.NFC()), "nfkc": lambda: form(normalizers.NFKC()), "changes": changes,
    "roberta": lambda: framed(processors.RobertaProcessing), "framed": lambda: framed(processors.BertProcessing),
    "llama2": llama2, "metaspace": lambda: metaspace("always"), "metaspace-first": lambda: metaspace("first", False),
    "gemma": gemma, "suffix": suffix, "unicode": unicode, "words": words, "runs": runs,
}


# What a kind is there to show.
CASES = {
    "digits": ["ab12cd", " 1 2", "a1", "٣x½"],
    "strips": ["a\u00a0<l>\u3000b", "x\u2003<r>\u2003y\u0085", "a \t<b>\u2028 <b> c", "é<w>", "<w>é", "日<w>本", "–<w>–", "²<w>²", "\u200d<w>",
               "ⓐ<w>", "a<w> <w>", "thou art", "thou artist", "thou", "thous", "éthou", "Ġx 日Ġ", "<s>\u3000a"],
    "normalized": ["xyz XYZ Xyz", "abc ABC", "äö ÄÖ Äö", "ABCXYZ", "  XYZ"],
    "bare": ["日x", "<s> a b", "\u0e01"],
    "patterns": ["a\nb\n\nq b", "deadbeef x_x", "it's\v\vx", "(a(\nb", "12345678!", "ab! aab!", "³tt ½t", "tht itt aat"],
    "scripts": ["漢、々ー字!a", "α\u0342β\u1dc0", "aéя"],
    "llama3": ["the the<|eot_id|>", "it's IT'S 12345", "a\r\n\n b   c"],
    "metaspace-first": ["<s>a b", " a <s> b"],
    "changes": ["  Ｆｕｌｌ  ÉTÉ '", "İstanbul", "\u00a0x\u0085"],
    "bert": ["Don't stop, [MASK]it's me . x", "a" * 21, "naïve 中文x", "a\u0000b\ufffdc\u200bd"],
    # letters, marks, digits and signs of Unicode 15, 15.1, 16, 17 and 18; marks that Unicode 9 lacks
    "unicode": ["a\U0001e030b \U0001e4d0\U0001e4f3", "a\U0002ebf0\U0002ee5db", "\u1c89\u1c8a \ua7cb\ua7da \U00010d50\U00010d4a", "x\u088f\u0c5cy",
                "a\U000323b0b \U00016ea0\U00016ebb", "a\u0558b\u05c8", "a\u0301\u0898\u0327b", "a\u08d3\u0334", "\u1ac1\u0316\u1ac0",
                "\U00011935\U00011930", "\U000105d2\u0307", "1\U0001ccf0\U00010d402", "a\u1b4eb\u0cf3c", "\u0295\u1715\u1734", "\U0001faf8\U0001fae9"],
    "words": ["the king!  the...king ! é a_1 日本", "", "  ", "the\u200dking"],
    "runs": ["  a αβ-γ, 日本のーテ1 abcdefgh", " ", "a\u0378α", "ab--cd-", "a\u0953\u061cα", "-", "日-本"],
    "nfkc": ["\u32ff㍻①", "\ua7f2ｶﾞ"],
    "precompiled": ["ﬁﬀ①½e\u0301a🏽\ufeff", "a\u0301b"],
}


def texts(t, n, seed):
    """Random texts, with the added tokens of T among them."""
    rng = random.Random(seed)
    pools = POOLS + [[a.content for a in t.get_added_tokens_decoder().values()] + [" "]]
    return ["".join(rng.choice(rng.choice(pools)) if rng.random() < 0.8 else (lambda p: p if isinstance(p, str) else p[0])(rng.choice(pools))
                    for _ in range(rng.randint(0, 12))) for _ in range(n)]


def lists(t, n, seed):
    """Random ids, some of which T does not have."""
    rng = random.Random(seed)
    most = t.get_vocab_size() + 3
    return [[rng.randrange(most) if rng.random() < 0.7 else rng.randrange(min(300, most)) for _ in range(rng.randint(0, 12))]
            for _ in range(n)]


def quote(text):
    if isinstance(text, list):
        return json.dumps(text)
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def answer(t, text):
    ids = text if isinstance(text, list) else t.encode(text).ids
    return "".join(f" {i}" for i in ids) + "".join(
        "\t" + quote(t.decode(ids, skip_special_tokens=skip)) for skip in (True, False)) + "\n"


def compare(name, t, path, n, program):
    cases = texts(t, n, 2) + lists(t, n, 3)
    lines = "".join(quote(c) + "\n" for c in cases)
    got = subprocess.run([program, "-d", path], input=lines.encode(), stdout=subprocess.PIPE, check=False).stdout.decode()
    want = [answer(t, c) for c in cases]
    got = got.split("\n")
    bad = [i for i in range(2 * n) if i >= len(got) or got[i] + "\n" != want[i]]
    print(f"{name}: {2 * n - len(bad)} of {2 * n} texts and lists of ids agree")
    for i in bad[:int(os.environ.get("SHOW", "1"))]:
        print(f"  {quote(cases[i])}\n  want {want[i]}  got  {got[i] if i < len(got) else None}")
    return not bad


def plain(name, j):
    """As older files are, which do not name their model."""
    if name == "precompiled":
        del j["model"]["type"]
    return j


def main():
    if sys.argv[1:2] == ["--random"]:
        n, program = int(sys.argv[2]), sys.argv[3]
        files = sys.argv[4:] or [f"{DIR}/{k}.json" for k in KINDS]
        sys.exit(not all([compare(os.path.basename(f), Tokenizer.from_file(f), f, n, program) for f in files]))
    os.makedirs(DIR, exist_ok=True)
    for name in sys.argv[1:] or KINDS:
        if not os.path.exists(f"{DIR}/{name}.json"):
            t = KINDS[name]()
            with open(f"{DIR}/{name}.json", "w") as f:
                f.write(json.dumps(plain(name, json.loads(t.to_str())), ensure_ascii=False, separators=(",", ":")) + "\n")
        t = Tokenizer.from_file(f"{DIR}/{name}.json")
        cases = CASES.get(name, []) + texts(t, 50, 1) + lists(t, 20, 4)
        with open(f"{DIR}/{name}.inp", "w") as f:
            f.writelines(quote(c) + "\n" for c in cases)
        with open(f"{DIR}/{name}.out", "w") as f:
            f.writelines(answer(t, c) for c in cases)


main()

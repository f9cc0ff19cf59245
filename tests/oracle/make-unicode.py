#!/usr/bin/env python3
"""make-unicode.py - write lib/text/unicode.c: properties of code points, each of the version of Unicode
that the stage of Python's `tokenizers` has

    make-unicode.py DIR > lib/text/unicode.c; clang-format -i lib/text/unicode.c

DIR/VERSION has the package unicodedata2 of that version (pip install --target DIR/VERSION unicodedata2==VERSION),
16.0.0 and the oldest and the newest that there are; Python's own unicodedata is one more.  fontTools has the scripts.

`tokenizers` 0.23 has four versions.  Its normal forms are of Unicode 9, BERT's stages of Unicode 8, lower
case, numbers and the \\w of added tokens of Unicode 17 (Rust 1.9x), its regular expressions of Unicode 16 (Oniguruma
6.9.10).  The first three are asked of the library here, of every code point.  For regular expressions it is checked
that the categories are those of unicodedata2 16.0.0; what is written is the code points whose category is another one
in another version, which the PCRE2 of a machine may have, each with one that stands for it: the nearest that has
its category in all versions, as many bytes in UTF-8, and is a Han character if it is one.
"""
import bisect
import os
import pickle
import subprocess
import sys

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
GC = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn".split()
DUMP = """import pickle, sys
try: import unicodedata2 as u
except ImportError: import unicodedata as u
pickle.dump({c: (u.category(chr(c)), u.combining(chr(c)), u.normalize('NFKD', chr(c)), u.name(chr(c), '').startswith('CJK UNIFIED'))
             for c in range(0x110000) if not 0xd800 <= c < 0xe000}, sys.stdout.buffer)"""


def unicodedata(path):
    env = dict(os.environ, PYTHONPATH=path or "")
    return pickle.loads(subprocess.run([sys.executable, "-c", DUMP], env=env, capture_output=True, check=True).stdout)


def runs(chosen):
    out = []
    for c in sorted(chosen):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def changed(n):
    return {c: s for c in ALL if (s := n.normalize_str(chr(c))) != chr(c)}


def split(p):
    return {c for c in ALL if len(p.pre_tokenize_str("a" + chr(c) + "b")) > 1}


def bert(**what):
    return normalizers.BertNormalizer(**(dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False) | what))


def sets():
    t = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    t.add_tokens([AddedToken("q", single_word=True)])
    return {
        "number": ("char::is_numeric", split(pre_tokenizers.Digits(True))),
        "word": ("\\w", {c for c in ALL if 1 not in t.encode(chr(c) + "q").ids}),
        "mark": ("StripAccents", set(changed(normalizers.StripAccents()))),
        "nonspacing": ("BertNormalizer, strip_accents", {c for c, s in changed(bert(strip_accents=True)).items() if not s}),
        "punctuation": ("Punctuation, BertPreTokenizer", split(pre_tokenizers.Punctuation())),
        "other": ("BertNormalizer, clean_text", {c for c, s in changed(bert(clean_text=True)).items() if not s}),
    }


def later_forms(newest):
    """What the normal forms do not know: combining classes, decompositions, and the parts of these."""
    nfd, nfkd = normalizers.NFD(), normalizers.NFKD()
    after = {c for c in ALL if nfd.normalize_str("a" + chr(c) + "\u0334") != "a" + nfd.normalize_str(chr(c)) + "\u0334"}
    before = {c for c in ALL if newest[c][1] and nfd.normalize_str("a\u0345" + chr(c)) != "a\u0345" + chr(c)}
    out = {c for c in ALL if newest[c][1]} - after - before
    # U+0345 itself, the only one of its class
    out = {c for c in out if c != 0x345}
    for c in ALL:
        if nfkd.normalize_str(chr(c)) != newest[c][2]:
            out.add(c)
            out |= {ord(x) for x in newest[c][2] if nine_lacks(ord(x))}
    return out


def nine_lacks(c):
    """Is C in a block of scripts that have composed characters since Unicode 9?"""
    return 0x10000 <= c < 0x20000 and any(a <= c <= b for a, b in ((0x10500, 0x105FF), (0x11380, 0x113FF), (0x11900, 0x1195F),
                                                                    (0x16100, 0x1613F), (0x16D40, 0x16D7F)))


def lower():
    n = normalizers.Lowercase()
    pairs = [(c, ord(s)) for c in ALL if len(s := n.normalize_str(chr(c))) == 1 and ord(s) != c]
    out = []
    for c, to in pairs:
        last = out[-1] if out else None
        if last and last[3] == to - c and (c - last[1] == last[2] or (last[0] == last[1] and c - last[1] <= 2)):
            last[2] = c - last[1]
            last[1] = c
        else:
            out.append([c, c, 1, to - c])
    return out


def scripts():
    """The scripts of UnicodeScripts as runs with numbers; what has none joins any other.  fontTools has the newest
    version's; the library, which has an older one's, is asked whether a code point joins the first one of its script."""
    from fontTools.unicodedata import script

    p = pre_tokenizers.UnicodeScripts()

    def joins(a, b):
        return len(p.pre_tokenize_str(chr(a) + chr(b))) == 1

    name = {c: "Hani" if c == 0x30FC or script(chr(c)) in ("Hira", "Kana") else script(chr(c)) for c in ALL}
    chosen = [c for c in ALL if not (joins(ord("a"), c) and joins(0x3B1, c))]
    first = {}
    for c in chosen:
        first.setdefault(name[c], c)
    number = {s: i + 1 for i, s in enumerate(first)}
    of = {c: number[name[c] if joins(first[name[c]], c) else next(s for s in first if joins(first[s], c))] for c in chosen}
    out = []
    for c in chosen:
        if out and out[-1][1] == c - 1 and out[-1][2] == of[c]:
            out[-1][1] = c
        else:
            out.append([c, c, of[c]])
    return out


def print_scripts():
    print("\n/* UnicodeScripts */")
    print(f"const struct unicode_script unicode_scripts[] = {{ {', '.join(f'{{ {a:#x}, {b:#x}, {s} }}' for a, b, s in scripts())} }};")
    print("const size_t unicode_nscripts = sizeof(unicode_scripts) / sizeof(*unicode_scripts);")


def oniguruma():
    gc = {}
    for g in GC:
        p = pre_tokenizers.Split(Regex(r"\p{%s}+" % g), "removed")
        for i in range(0, len(ALL), 4096):
            text = "".join(map(chr, ALL[i:i + 4096]))
            rest = set("".join(s for s, _ in p.pre_tokenize_str(text)))
            gc.update({ord(c): g for c in text if c not in rest})
    return gc


def size(c):
    return len(chr(c).encode())


def stand_ins(versions, right):
    stable = {}
    differ = []
    for c in ALL:
        if all(v[c][0] == right[c][0] for v in versions):
            stable.setdefault((right[c][0], size(c), right[c][3]), []).append(c)
        else:
            differ.append(c)
    out = []
    for c in differ:
        near = stable[right[c][0], size(c), right[c][3]]
        i = bisect.bisect(near, c)
        to = min(near[max(i - 1, 0):i + 1], key=lambda x: abs(x - c))
        if out and out[-1][1] == c - 1 and out[-1][2] == to:
            out[-1][1] = c
        else:
            out.append([c, c, to])
    # of a run in the middle of nothing, one that stands for it all
    joined = []
    for first, last, to in out:
        kind = [(right[c][0], right[c][3]) for c in (to, joined[-1][2] if joined else 0)]
        if joined and joined[-1][1] == first - 1 and kind[0] == kind[1]:
            joined[-1][1] = last
        else:
            joined.append([first, last, to])
    return joined


def main():
    versions = {v: unicodedata(os.path.join(sys.argv[1], v)) for v in os.listdir(sys.argv[1])}
    own = unicodedata(None)
    newest = versions[max(versions, key=lambda v: [int(x) for x in v.split(".")])]
    right = versions["16.0.0"]
    gc = oniguruma()
    assert all(gc[c] == right[c][0] for c in ALL), "Oniguruma has another version"
    print("/* unicode - properties of code points, made by tests/oracle/make-unicode.py */")
    print('#include "lib/text/unicode.h"\n')
    for name, (of, chosen) in sets().items():
        r = runs(chosen)
        print(f"/* {of} */")
        print(f"static const struct unicode_range {name}[] = {{ {', '.join(f'{{ {a:#x}, {b:#x} }}' for a, b in r)} }};")
        print(f"const struct unicode_set unicode_{name} = {{ {name}, sizeof({name}) / sizeof(*{name}) }};\n")
    r = runs(later_forms(newest))
    print("/* unknown to the normal forms */")
    print(f"static const struct unicode_range later[] = {{ {', '.join(f'{{ {a:#x}, {b:#x} }}' for a, b in r)} }};")
    print("const struct unicode_set unicode_later_form = { later, sizeof(later) / sizeof(*later) };\n")
    r = lower()
    print("/* Lowercase */")
    print(f"const struct unicode_case unicode_lower[] = {{ {', '.join(f'{{ {a:#x}, {b:#x}, {s}, {d} }}' for a, b, s, d in r)} }};")
    print("const size_t unicode_nlower = sizeof(unicode_lower) / sizeof(*unicode_lower);\n")
    r = stand_ins([own, *versions.values()], right)
    print("/* categories of regular expressions */")
    print(f"const struct unicode_stand_in unicode_stand_ins[] = {{ {', '.join(f'{{ {a:#x}, {b:#x}, {t:#x} }}' for a, b, t in r)} }};")
    print("const size_t unicode_nstand_ins = sizeof(unicode_stand_ins) / sizeof(*unicode_stand_ins);")
    print_scripts()


if __name__ == "__main__":
    main()

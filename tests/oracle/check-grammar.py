#!/usr/bin/env python3
"""check-grammar.py - texts that grammars make, beside jsonschema, re and regex

    check-grammar.py TRY-GRAMMAR TOKENIZER [SCHEMAS [TEXTS [SEED]]]

Random schemas, and texts that random tokens of their masks make (tests/try-grammar):
each that ends by itself must be JSON that jsonschema validates.  The same of regular
expressions with re; and their masks after each beginning of such a text must be
what regex says of partial matches, token for token.  What is refused must name a keyword.
"""
import json
import random
import re
import subprocess
import sys

import jsonschema

PROGRAM, TOKENIZER = sys.argv[1:3]
SCHEMAS = int(sys.argv[3]) if len(sys.argv) > 3 else 200
TEXTS = int(sys.argv[4]) if len(sys.argv) > 4 else 10
SEED = int(sys.argv[5]) if len(sys.argv) > 5 else 1
rng = random.Random(SEED)

REGEXES = ["abc", "a*", "[a-z]{1,8}", r"\d{3}-\d{4}", "(foo|bar|foobar)+", "x?y?z?",
           "[^a-z]{2}", ".{3,5}", r"\w+@\w+\.(com|org)", "(ab){2,3}c|d{4}", "[\u00e0-\u00ff]+",
           r"[^\x00-\x7f]{1,3}", r"\s?[A-Z][a-z]* \S", "(a|ab)(c|bcd)(d*)", r"[\-\]x]+",
           "(a(b(c|d)?)*e){1,2}", r"\u00e9\x41", "(yes|no|maybe)", "a{0}b", "[0-9a-fA-F]{8}",
           r"(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(\.(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)){3}"]
PATTERNS = ["^a+$", "b", "^x|y$", r"^\d{2,4}$", "^[^\"]*$", r"\\", "^(\\w| )+$", "^.{2,5}$", "[\\x00-\\x1f]",
            "^[^a-z]{1,3}$", "^(left|right)$", "\\D\\W\\S\\s"]
NAMES = ["a", "b", "ab", "name", "with space", "quo\"te", "\u00e9t\u00e9", "back\\slash", "x"]


def scalar():
    return rng.choice([None, True, False, 0, -3, 7, 2.5, 1e3, "", "a", "\u00e9\"\n\\", "long text", [], {}, [1, "x"],
                       {"k": [None]}])


def bounds(low, high, whole):
    out = {}
    a, b = sorted(rng.uniform(low, high) for _ in range(2))
    if whole:
        a, b = int(a), int(b) + 1
    else:
        a, b = round(a, rng.randint(0, 4)), round(b, rng.randint(0, 4)) + 1
    if rng.random() < .6:
        out[rng.choice(["minimum", "exclusiveMinimum"])] = a
    if rng.random() < .6:
        out[rng.choice(["maximum", "exclusiveMaximum"])] = b + 1
    return out


def schema(depth, refs):
    kind = rng.randrange(14 if depth else 7)
    if kind == 0:
        return {"type": rng.choice(["null", "boolean", "string", "integer", "number", ["string", "null"]])}
    if kind == 1:
        return {"type": "integer", **bounds(-2000, 2000, True)}
    if kind == 2:
        return {"type": "number", **bounds(-20, 20, False)}
    if kind == 3:
        out = {"type": "string"}
        if rng.random() < .5:
            out["minLength"] = rng.randint(0, 4)
        if rng.random() < .7:
            out["maxLength"] = rng.randint(4, 30)
        return out
    if kind == 4:
        return {"enum": [scalar() for _ in range(rng.randint(1, 4))]}
    if kind == 5:
        return rng.choice([{"const": scalar()}, {"type": "string", "pattern": rng.choice(PATTERNS)},
                           {"type": "string", "format": rng.choice(["date", "time", "date-time", "uuid", "ipv4",
                                                                     "ipv6", "email", "hostname", "duration",
                                                                     "uri"])}])
    if kind == 6:
        return rng.choice([True, {}, {"type": "object"}, {"type": "array"}] +
                          ([{"$ref": "#/$defs/" + rng.choice(refs)}] if refs else []))
    if kind in (7, 8, 9):
        names = rng.sample(NAMES, rng.randint(0, 4))
        out = {"type": "object", "properties": {n: schema(depth - 1, refs) for n in names}}
        if names and rng.random() < .8:
            out["required"] = rng.sample(names, rng.randint(0, len(names)))
        if rng.random() < .4:
            out["additionalProperties"] = rng.choice([False, True, schema(depth - 1, refs)])
        if rng.random() < .1:
            out["minProperties"] = 1
        return out
    if kind == 10:
        out = {"type": "array", "items": schema(depth - 1, refs)}
        if rng.random() < .5:
            out["minItems"] = rng.randint(0, 2)
        if rng.random() < .7:
            out["maxItems"] = rng.randint(2, 4)
        return out
    if kind == 11:
        out = {"type": "array", "prefixItems": [schema(depth - 1, refs) for _ in range(rng.randint(1, 3))]}
        if rng.random() < .5:
            out["items"] = rng.choice([False, schema(depth - 1, refs)])
        if rng.random() < .5:
            out["minItems"] = rng.randint(0, 3)
        if rng.random() < .5:
            out["maxItems"] = rng.randint(3, 5)
        return out
    if kind == 12:
        return {"anyOf": [schema(depth - 1, refs) for _ in range(rng.randint(1, 3))]}
    return {"allOf": [{"type": "object", "properties": {"a": schema(depth - 1, refs)}, "required": ["a"]},
                      {"properties": {"b": schema(depth - 1, refs), "a": True}}]}


def whole_schema():
    refs = rng.sample(["r", "s"], rng.randint(0, 2))
    out = schema(3, refs)
    if refs:
        out = dict(out) if isinstance(out, dict) else {}
        out["$defs"] = {r: schema(2, refs) for r in refs}
    return out


def run(mode, lines, *args):
    text = "".join(json.dumps(x) + "\n" for x in lines)
    done = subprocess.run([PROGRAM, mode, TOKENIZER, *map(str, args)], input=text, capture_output=True, text=True,
                          check=True)
    return [json.loads(x) for x in done.stdout.split("\n") if x]


def check_schemas():
    refused = stuck = cut = good = 0
    meant = {}
    for i in range(SCHEMAS):
        s = whole_schema()
        for out in run("make", [{"schema": s}], SEED * 100000 + i, TEXTS, 400):
            if "error" in out:
                refused += 1
                word = out["error"].split(": ", 1)[-1]
                meant[word] = meant.get(word, 0) + 1
            elif "stuck" in out or "failed" in out:
                stuck += 1
                print("stuck:", json.dumps(s), out)
            elif not out["whole"]:
                cut += 1
            else:
                try:
                    jsonschema.Draft202012Validator(s).validate(json.loads(out["text"]))
                    good += 1
                except Exception as e:  # pylint: disable=broad-except
                    sys.exit(f"not valid: {out['text']!r}\nof {json.dumps(s)}\n{e}")
    print(f"schemas: {SCHEMAS}, of them refused {refused}; texts: {good} valid, {cut} cut, {stuck} stuck")
    for word, n in sorted(meant.items()):
        print(f"    {n} x {word}")
    return stuck


def check_regexes():
    good = cut = 0
    for r in REGEXES:
        for out in run("make", [{"regex": r}], SEED, 50, 60):
            if "error" in out or "stuck" in out:
                sys.exit(f"{r}: {out}")
            cut += not out["whole"]
            if out["whole"]:
                if not re.fullmatch(r, out["text"]):
                    sys.exit(f"{r} does not match {out['text']!r}")
                good += 1
    print(f"regular expressions: {len(REGEXES)}; texts: {good} match, {cut} cut")


def byte_alphabet():
    """gpt2's characters that stand for bytes"""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(other)}


def check_masks():
    """A token is allowed where regex says that the text and it may begin a match; byte-level vocabularies"""
    try:
        import regex
    except ImportError:
        print("masks: regex is missing")
        return
    file = json.load(open(TOKENIZER, encoding="utf-8"))
    alphabet = byte_alphabet()
    special = {t["id"] for t in file["added_tokens"]}
    tokens = {}
    for token, i in file["model"]["vocab"].items():
        try:
            if i not in special:
                tokens[i] = bytes(alphabet[c] for c in token).decode()
        except UnicodeDecodeError:
            pass  # a part of a character, of which regex has no notion
    compared = 0
    for r in REGEXES:
        ascii_only = re.search(r"\\[dws]", r, re.I)
        form = regex.compile(("(?a)" if ascii_only else "") + r)
        for _ in range(3):
            ids, text = [], ""
            while len(ids) < 8:
                own = run("masks", [{"regex": r, "ids": ids}])[0]
                theirs = {i for i, t in tokens.items() if form.fullmatch(text + t, partial=True)}
                if r.startswith("."):  # which is more here
                    theirs = {i for i in theirs if not set(tokens[i]) & set("\r\u2028\u2029")}
                if re.search(r"\\[DWS]", r):
                    theirs = {i for i in theirs if tokens[i].isascii()}
                if set(own["allowed"]) & set(tokens) != theirs or own["may_end"] != bool(form.fullmatch(text)):
                    odd = sorted(set(own["allowed"]) & set(tokens) ^ theirs)
                    sys.exit(f"masks of {r} after {text!r}: {[tokens[i] for i in odd[:10]]}, {own['may_end']}")
                compared += 1
                if not theirs:
                    break
                ids.append(rng.choice(sorted(theirs)))
                text += tokens[ids[-1]]
    print(f"masks: {compared} are what regex says")


if __name__ == "__main__":
    bad = check_schemas()
    check_regexes()
    check_masks()
    sys.exit(1 if bad else 0)

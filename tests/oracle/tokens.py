#!/usr/bin/env python3
"""tokens.py TOKENIZER.json FILE.jsonl - tp-run tokens beside Python's tokenizers

Both make token ids of the texts in FILE on the same cores and write them; numpy reads what tp-run has
written by its index, and compares each document.  Prints seconds of the clock and of the processors."""
import json
import os
import resource
import struct
import subprocess
import sys
import time

import numpy as np
from tokenizers import Tokenizer

tokenizer, corpus = sys.argv[1:3]
prefix = f"tokens-{os.getpid()}"


def used(who):
    r = resource.getrusage(who)
    return r.ru_utime + r.ru_stime


begin, before = time.time(), used(resource.RUSAGE_SELF)
t = Tokenizer.from_file(tokenizer)
wanted, batch = [], []
with open(prefix + ".raw", "wb") as out:
    for line in open(corpus, encoding="utf-8"):
        batch.append(json.loads(line)["text"])
        if len(batch) == 4096:
            wanted += [np.array(e.ids + [0], np.int32) for e in t.encode_batch_fast(batch)]
            batch = []
    wanted += [np.array(e.ids + [0], np.int32) for e in t.encode_batch_fast(batch)]
    out.writelines(a.astype(np.uint16).tobytes() for a in wanted)
print(f"tokenizers: {time.time() - begin:.2f} s, {used(resource.RUSAGE_SELF) - before:.2f} s of processors")

begin, before = time.time(), used(resource.RUSAGE_CHILDREN)
subprocess.run(["tp-run", "tokens", "--end-id", "0", "--tokenizer", tokenizer, "-o", prefix, corpus], check=True)
print(f"tp-run: {time.time() - begin:.2f} s, {used(resource.RUSAGE_CHILDREN) - before:.2f} s of processors")

index = open(prefix + ".idx", "rb").read()
version, code, sequences, bounds = struct.unpack("<QBQQ", index[9:34])
assert index[:9] == b"MMIDIDX\0\0" and version == 1 and bounds == sequences + 1
kind = {4: np.int32, 8: np.uint16}[code]
lengths = np.frombuffer(index, np.int32, sequences, 34)
at = np.frombuffer(index, np.int64, sequences, 34 + 4 * sequences)
documents = np.frombuffer(index, np.int64, bounds, 34 + 12 * sequences)
assert (documents == np.arange(bounds)).all() and len(wanted) == sequences
ids = np.memmap(prefix + ".bin", kind, "r")
differ = sum(
    not np.array_equal(np.frombuffer(ids, kind, n, offset), w) for n, offset, w in zip(lengths, at, wanted)
)
print(f"{sequences} documents, {len(ids)} tokens, {differ} documents differ")
for end in ".raw", ".bin", ".idx":
    os.unlink(prefix + end)
sys.exit(differ > 0)

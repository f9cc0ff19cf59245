"""figures.py - the figures of README: this toolkit beside what people use

figures.py merge|speed|memory BIN MODEL [PEER...]

BIN is the directory of the built programs, MODEL one of make-model.  Needs transformers, torch or llama-cpp-python and
gguf, as far as they are asked for.  A quiet machine is wanted; each figure is the best of REPEAT.

merge   seconds and peak memory of `tp-shard merge` on two rank files, and of transformers' from_pretrained and
        save_pretrained of the same weights
speed   tokens a second of a prompt of 1024 and of the tokens after one, of the PEERs: tp-run, torch, llama
memory  what mem-estimate predicts of tp-run, and what the system measures
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

import peers

REPEAT = int(os.environ.get("REPEAT", "3"))
TOKENS = 32
SAVE = """
import sys, torch
from transformers import AutoModelForCausalLM
AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16).save_pretrained(sys.argv[2], max_shard_size="10GB")
"""


def run(*command):
    """Seconds and the peak of resident memory in bytes of the command and all of its children."""
    start = time.perf_counter()
    pid = os.spawnvp(os.P_NOWAIT, "sh", ["sh", "-c", 'exec "$@" > /dev/null', "sh", *command])
    _, status, usage = os.wait4(pid, 0)
    if status:
        sys.exit(f"{command[0]} failed")
    return time.perf_counter() - start, usage.ru_maxrss * 1024


def best(make, remove=None):
    results = []
    for _ in range(REPEAT):
        if remove:
            shutil.rmtree(remove, ignore_errors=True)
        results.append(make())
    return min(r[0] for r in results), max(r[1] for r in results)


def say(what, seconds, peak):
    print(f"{what:40} {seconds:6.1f} s  {peak / 1e6:6.0f} MB", flush=True)


def merge(bin, model):
    with tempfile.TemporaryDirectory(dir=os.path.dirname(model)) as d:
        run(f"{bin}/tp-shard", "split", "-q", "--tp", "2", model, f"{d}/cut")
        whole = f"{d}/whole"
        say("tp-shard merge, synced", *best(lambda: run(f"{bin}/tp-shard", "merge", "-q", f"{d}/cut", whole), whole))
        say("from_pretrained and save_pretrained", *best(lambda: run(sys.executable, "-c", SAVE, model, whole), whole))


def ours(bin, model, options):
    """Tokens a second of a prompt, by what it takes longer than one of a single token, and of the tokens after it."""
    generate = [f"{bin}/tp-run", "generate", "--backend", "cpu", "--json", *options, model, "--max-tokens"]
    long = ",".join(str(i + 1) for i in range(peers.PROMPT))
    took = [min(run(*generate, "1", "--ids", ids)[0] for _ in range(REPEAT)) for ids in (long, "1")]
    text = [json.loads(subprocess.run([*generate, str(TOKENS), "--ids", "1"], check=True, capture_output=True).stdout) for _ in range(REPEAT)]
    return (peers.PROMPT - 1) / (took[0] - took[1]), max(t["tokens_per_second"] for t in text)


def speed(bin, model, names):
    threads = len(os.sched_getaffinity(0))
    for name in names:
        if name == "tp-run":
            for options in [], ["--compute", "bf16"]:
                print(name, *options, "%.0f %.1f" % ours(bin, model, options), flush=True)
            continue
        peer = (peers.open_torch if name == "torch" else peers.open_llama)(model, "bf16", threads)
        peer(4)
        rates = [peer(TOKENS) for _ in range(REPEAT)]
        print(name, "%.0f %.1f" % tuple(map(max, zip(*rates))), flush=True)


def predicted(bin, *words):
    out = subprocess.run([f"{bin}/mem-estimate", *words, "--json", "--runtime", "0", "--fragmentation", "0"], check=True, capture_output=True, text=True)
    return json.loads(out.stdout.splitlines()[0])["peak"]


def memory(bin, model):
    ids = [1 + i % 1000 for i in range(1024)]
    with tempfile.TemporaryDirectory() as d:
        with open(f"{d}/ids.jsonl", "w") as f:
            for _ in range(4):
                print(json.dumps({"ids": ids[:512]}), file=f)
        for words, command in (
            (["infer", "--seq", "1040"], ["generate", "--ids", ",".join(map(str, ids)), "--max-tokens", "16"]),
            (["train", "--micro-batch", "1", "--seq", "512"],
             ["train", "--data", f"{d}/ids.jsonl", "--pack", "none", "--seq", "512", "--global-batch", "1", "--steps", "2", "--save-every", "0", "-o", f"{d}/run"]),
        ):
            wanted = predicted(bin, *words, "--framework", "tp-run", model)
            had = run(f"{bin}/tp-run", command[0], "-q", "--backend", "cpu", *command[1:], model)[1]
            print(f"{command[0]:12} predicted {wanted / 1e6:.0f} MB, resident at most {had / 1e6:.0f} MB", flush=True)



if __name__ == "__main__":
    what, bin, model = sys.argv[1:4]
    if what == "merge":
        merge(bin, os.path.abspath(model))
    elif what == "memory":
        memory(bin, model)
    else:
        speed(bin, model, sys.argv[4:])

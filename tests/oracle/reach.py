#!/usr/bin/env python3
"""reach.py - which tests reach what cheaper ones do not, in a tree that is built with --coverage (make reach)

usage: reach.py TREE RECORD TEST...

Runs each TEST of the built TREE by itself, with SHORT=1, reads which arcs of lib/ and cmd/ it took from the .gcda files
(gcc 12's format: gcov-io.h), and deals the tests greedily: next is the one with the most arcs that none before it
took, for each processor second.  RECORD gets a line for each: seconds, arcs new with it, the share of all arcs so far,
its name.  The last lines are what `make check-asan` may leave to `make check-asan-all` (asan_later in tests/local.mk).
"""

import os
import resource
import struct
import subprocess
import sys

FUNCTION, ARCS = 0x01000000, 0x01A10000


def counters(top):
    for folder, _, files in os.walk(top):
        for name in files:
            if name.endswith(".gcda"):
                yield os.path.join(folder, name)


def taken(path):
    """The arcs of one object with a count: (object, function, number)."""
    with open(path, "rb") as file:
        data = file.read()
    at, function = 16, None  # magic, version, stamp, checksum
    while at + 8 <= len(data):
        tag, size = struct.unpack_from("<Ii", data, at)  # of zeros alone: minus their size
        at += 8
        if tag == FUNCTION and size >= 12:
            function = struct.unpack_from("<I", data, at)[0]
        elif tag == ARCS and size > 0:
            for n, count in enumerate(struct.unpack_from(f"<{size // 8}q", data, at)):
                if count:
                    yield path, function, n
        at += max(size, 0)


def spent():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(tree, test):
    for path in list(counters(tree)):
        os.unlink(path)
    tree = os.path.abspath(tree)
    env = dict(
        os.environ,
        top_srcdir=tree,
        top_builddir=tree,
        srcdir=tree,
        PATH=f"{tree}/bin:{os.environ['PATH']}",
        LC_ALL="C.UTF-8",
        CUDA_VISIBLE_DEVICES="",
        SHORT="1",
    )
    before = spent()
    command = [f"{tree}/{test}"]
    if test.endswith(".t"):
        command.insert(0, "bash")
    subprocess.run(command, env=env, cwd=tree, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = spent() - before
    own = f"{tree}/tests/"
    return seconds, {
        arc
        for path in counters(tree)
        if not path.startswith(own) or path.startswith(own + "emu/")
        for arc in taken(path)
    }


def main():
    tree, record, *tests = sys.argv[1:]
    left = {test: measure(tree, test) for test in tests}
    everything = set().union(*(arcs for _, arcs in left.values()))
    done = set()
    with open(record, "w") as out:
        print("# seconds, new arcs, share of all, test (tests/oracle/reach.py)", file=out)
        while left:
            # a start costs something, too
            test = max(left, key=lambda t: len(left[t][1] - done) / (left[t][0] + 0.3))
            seconds, arcs = left.pop(test)
            new = len(arcs - done)
            done |= arcs
            print(f"{seconds:6.1f} {new:6d} {len(done) / len(everything):.4f} {test}", file=out)


main()

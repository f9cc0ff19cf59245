#!/usr/bin/env python3
"""pruned.py - 200 trials, eight at once, of a script that asks should-prune: none has failed, and Optuna says so

Needs optuna, and hpo-sweep in PATH.
"""
import collections
import os
import pathlib
import subprocess
import sys
import tempfile

import optuna

SCRIPT = """#!/bin/sh
for step in 1 2 3; do
    value=$(awk "BEGIN { print $1 * $1 + 1 / $step }")
    hpo-sweep report "$HPO_TRIAL_NUMBER" $step "$value"
    if hpo-sweep should-prune "$HPO_TRIAL_NUMBER" > "$HPO_TRIAL_DIR/answer"; then exit 0; fi
done
echo "$value"
"""


def main():
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        pathlib.Path("asks").write_text(SCRIPT)
        pathlib.Path("s.yaml").write_text("x: uniform(-5, 5)\n")
        subprocess.run(["hpo-sweep", "run", "s.yaml", "--sampler", "random", "--seed", "1", "--pruner", "median",
                        "--trials", "200", "-j", "8", "--", "sh", "asks", "{x}"], check=True)
        study = optuna.load_study(study_name="s", storage="sqlite:///s.db")
        states = collections.Counter(t.state.name for t in study.trials)
        ok = set(states) == {"COMPLETE", "PRUNED"} and sum(states.values()) == 200 and states["PRUNED"] > 50 and all(
            t.value == t.intermediate_values[max(t.intermediate_values)] for t in study.trials)
        print(dict(states), "ok" if ok else "NOT OK")
        sys.exit(not ok)


if __name__ == "__main__":
    main()

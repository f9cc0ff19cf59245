#!/usr/bin/env python3
"""Open studies of hpo-sweep in optuna-dashboard, and end with status 1 where it shows something else.

usage: dashboard.py HPO-SWEEP

The server listens on the loopback address alone.  Needs optuna-dashboard; prove-optuna runs it.
"""
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from importlib.metadata import version

PROGRAM = os.path.abspath(sys.argv[1])
SERVER = os.path.join(os.path.dirname(sys.executable), "optuna-dashboard")


def sweep(*words):
    return subprocess.run([PROGRAM, *words], check=True, capture_output=True, text=True).stdout


def same(what, got, want):
    if got != want:
        sys.exit(f"not ok - {what}\n# got      {got}\n# expected {want}")
    print(f"ok - {what}")


def run_two(storage, trials):
    sweep("run", "s.yaml", "--storage", storage, "--study", "two", "--trials", str(trials),
          "--direction", "minimize", "--direction", "maximize", "--metric", "loss", "--metric", "acc",
          "--", "echo", "{x}", "{n}")


def make_studies(storage):
    with open("s.yaml", "w") as f:
        f.write("x: uniform(0, 1)\nn: lograndint(1, 65)\nc: choice([a, null, 3])\n")
    sweep("run", "s.yaml", "--storage", storage, "--study", "one", "--trials", "8", "--metric",
          "loss", "--shell", "--", 'echo "0 0.5" >> "$HPO_REPORT"; echo "7 $HPO_x" >> "$HPO_REPORT"; '
          'echo "$HPO_x"')
    ask = ("ask", "s.yaml", "--storage", storage, "--study", "one")
    on = ("-S", storage, "--study", "one")
    for value in ("inf", "-inf"):
        number = json.loads(sweep(*ask, "--json"))["trial"]
        sweep("report", *on, str(number), "2", "--", value)
        sweep("tell", *on, str(number), "--", value)
    sweep(*ask)
    sweep("report", *on, str(number + 1), "0", "0.25")
    sweep("report", *on, str(number + 1), "1", "nan")
    sweep("tell", *on, "--state", "pruned", str(number + 1))
    sweep(*ask)
    sweep("tell", *on, "--state", "failed", str(number + 2))
    sweep(*ask)
    sweep("enqueue", "s.yaml", "--storage", storage, "--study", "one", "x=0.5")
    run_two(storage, 30)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return json.load(answer)


def wait_for(port):
    for _ in range(300):
        try:
            return get(port, "/api/studies")["study_summaries"]
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    sys.exit("not ok - the server does not answer")


def rows(storage, study):
    return [json.loads(line) for line in sweep("show", "--json", "-S", storage, "--study", study)
            .splitlines()]


def number_of(value):
    return float(value)  # the dashboard has "inf", JSON here "Infinity"


def compare(what, got, want):
    same(f"{what}: numbers", [t["number"] for t in got], [t["trial"] for t in want])
    same(f"{what}: states", [t["state"].upper() for t in got], [t["state"] for t in want])
    same(f"{what}: values", [[number_of(v) for v in t.get("values", [])] for t in got],
         [[number_of(v) for v in t["values"]] for t in want])
    same(f"{what}: parameters",
         [{p["name"]: p["param_external_value"] for p in t["params"]} for t in got],
         [{k: str(v) for k, v in t["params"].items()} for t in want])
    same(f"{what}: times", [(t.get("datetime_start", "").replace("T", " ")[:26],
                             t.get("datetime_complete", "").replace("T", " ")[:26]) for t in got],
         [(t["start"] or "", t["complete"] or "") for t in want])


def check(storage, port):
    summaries = wait_for(port)
    same("names", [s["study_name"] for s in summaries], ["one", "two"])
    same("directions", [s["directions"] for s in summaries], [["minimize"], ["minimize", "maximize"]])
    for s in summaries:
        study = get(port, f"/api/studies/{s['study_id']}")
        name = study["name"]
        compare(name, study["trials"], rows(storage, name))
        if name == "one":
            same("objective", study["objective_names"], ["loss"])
            reports = [[(r["step"], str(r["value"])) for r in t["intermediate_values"]]
                       for t in study["trials"]]
            same("reports", reports[:8], [[(0, "0.5"), (7, str(t["params"]["x"]))]
                                          for t in rows(storage, name)[:8]])
            same("reports that are no numbers", reports[8:11],
                 [[(2, "inf")], [(2, "-inf")], [(0, "0.25"), (1, "nan")]])
            same("what waits", study["trials"][13]["fixed_params"],
                 [{"name": "x", "param_external_value": "0.5"}])
            same("best", [t["number"] for t in study["best_trials"]], [9])
            same("the search space", sorted(p["name"] for p in study["union_search_space"]),
                 ["c", "n", "x"])
        else:
            same("objectives", study["objective_names"], ["loss", "acc"])
            front = sweep("pareto", "--json", "-S", storage, "--study", "two").splitlines()
            same("the Pareto front", sorted(t["number"] for t in study["best_trials"]),
                 sorted(json.loads(line)["trial"] for line in front))
    run_two(storage, 40)
    for _ in range(60):  # the server looks again after ten seconds
        study = get(port, f"/api/studies/{summaries[1]['study_id']}")
        if len(study["trials"]) == 40:
            break
        time.sleep(0.5)
    compare("run on while it is open", study["trials"], rows(storage, "two"))


os.environ["TZ"] = "UTC"
for storage, url in (("s.db", "sqlite:///s.db"), ("journal:s.jsonl", "s.jsonl")):
    with tempfile.TemporaryDirectory() as tmp:
        os.chdir(tmp)
        print(f"# {storage}, optuna {version('optuna')}, optuna-dashboard {version('optuna-dashboard')}")
        make_studies(storage)
        port = free_port()
        server = subprocess.Popen([SERVER, "--quiet", "--host", "127.0.0.1", "--port", str(port), url])
        try:
            check(storage, port)
        finally:
            server.terminate()
            server.wait()
            os.chdir("/")

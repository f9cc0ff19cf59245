#!/usr/bin/env python3
"""make-events.py - a file of TensorBoard's, and tp-run train's files in the readers of others

    make-events.py [-o DIR]      writes events.hex: the events of tests/unit-train.c by tensorboard's own writer
    make-events.py --read        trains a model of tests/data twice in a directory, with --metrics and --tensorboard, and
                                 compares what tensorboard and prometheus_client read with log.jsonl; needs tp-run in PATH
"""
import argparse
import io
import json
import os
import subprocess
import sys
import tempfile

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

here = os.path.dirname(os.path.abspath(__file__))
data = os.path.join(here, "..", "data")


def write(out):
    class Kept(io.BytesIO):
        def close(self):
            pass
    file = Kept()
    writer = RecordWriter(file)
    scalar = Summary(value=[Summary.Value(tag="train/loss", simple_value=2.5)])
    for event in (Event(wall_time=1e9 + 0.25, file_version="brain.Event:2"),
                  Event(wall_time=1e9 + 0.5, step=300, session_log=SessionLog(status=SessionLog.START)),
                  Event(wall_time=1e9 + 0.75, step=300, summary=scalar)):
        writer.write(event.SerializeToString())
    writer.flush()
    with open(os.path.join(out, "events.hex"), "w") as f:
        f.write(file.getvalue().hex() + "\n")


def read():
    from prometheus_client.parser import text_string_to_metric_families
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    with tempfile.TemporaryDirectory() as tmp:
        ids = os.path.join(tmp, "ids.jsonl")
        with open(ids, "w") as f:
            for i in range(26):
                f.write(json.dumps({"ids": [3 + (i * 31 + k * k * 7 + k * 11) % 95 for k in range(9 + i * 7 % 23)]}) + "\n")
        run = os.path.join(tmp, 'a "run"')
        common = ["tp-run", "train", "-q", "--threads", "1", "--metrics", os.path.join(tmp, "prom"), "--tensorboard",
                  os.path.join(tmp, "tb"), "-o", run]
        start = common + ["--data", ids, "--seq", "24", "--eval-fraction", "0.2", "--eval-every", "3", "--save-every", "4"]
        subprocess.run(start + ["--steps", "6", "--lr-schedule", "constant", os.path.join(data, "models", "llama-gqa")], check=True)
        subprocess.run(["rm", "-r", os.path.join(run, "step-000006")], check=True)
        subprocess.run(common + ["--resume", "--steps", "9"], check=True)
        with open(os.path.join(run, "log.jsonl")) as f:
            log = [json.loads(line) for line in f]
        steps = [line for line in log if line["type"] == "step"]
        evals = [line for line in log if line["type"] == "eval"]
        events = EventAccumulator(os.path.join(tmp, "tb"))
        events.Reload()
        for tag, key in (("train/loss", "loss"), ("train/grad_norm", "grad_norm"), ("train/learning_rate", "learning_rate"),
                         ("train/epoch", "epoch")):
            got = [(e.step, e.value) for e in events.Scalars(tag)]
            want = [(line["step"], line[key]) for line in steps]
            assert [s for s, _ in got] == [s for s, _ in want], (tag, got)
            assert all(abs(a - b) <= 1e-6 * abs(b) for (_, a), (_, b) in zip(got, want)), tag
        assert [e.step for e in events.Scalars("eval/loss")] == [line["step"] for line in evals]
        with open(os.path.join(tmp, "prom")) as f:
            families = {m.name: m for m in text_string_to_metric_families(f.read())}
        value = {name: m.samples[0].value for name, m in families.items()}
        assert all(s.labels == {"run": run} for m in families.values() for s in m.samples)
        assert value["tp_run_train_step"] == 9 and value["tp_run_train_loss"] == steps[-1]["loss"]
        assert value["tp_run_train_eval_loss"] == evals[-1]["eval_loss"]
        assert value["tp_run_train_tokens"] == steps[-1]["tokens"] and families["tp_run_train_tokens"].type == "counter"
        print(f"{len(steps)} steps, {len(families)} metrics: as in log.jsonl")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", dest="out", metavar="DIR", default=data)
    parser.add_argument("--read", action="store_true")
    args = parser.parse_args()
    read() if args.read else write(args.out)


if __name__ == "__main__":
    sys.exit(main())

"""lm-eval.py TP_RUN MODEL - lm_eval's local-completions over tp-run serve, and its hf backend

MODEL is in Hugging Face's form with a tokenizer, such as tests/data/chat.  Needs the package lm_eval[api];
compares log-likelihoods, which of the choices are greedy and the accuracy of a task of its own, and ends with
status 1 where they differ by more than 1e-4."""
import json
import os
import random
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
import lm_eval
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from lm_eval.models.openai_completions import LocalCompletionsAPI
from lm_eval.tasks import TaskManager

tp_run, model = sys.argv[1], os.path.abspath(sys.argv[2])
TASK = """task: choices
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
test_split: test
output_type: multiple_choice
doc_to_text: question
doc_to_target: answer
doc_to_choice: "{{choices}}"
metric_list: [{metric: acc}]
"""


def words(r, n):
    return " ".join(r.choice("thou art my lord and king the crown of a good day hello to you".split()) for _ in range(n))


def evaluate(lm, dir):
    found = lm_eval.simple_evaluate(lm, tasks=["choices"], task_manager=TaskManager(include_path=dir, include_defaults=False),
                                    bootstrap_iters=0, log_samples=True)
    return found["results"]["choices"]["acc,none"], [s["filtered_resps"] for s in found["samples"]["choices"]]


with tempfile.TemporaryDirectory() as dir, subprocess.Popen(
        [tp_run, "serve", "--backend", "cpu", "--compute", "f32", "--listen", "127.0.0.1:0", "--served-name", "m", model],
        stdout=subprocess.PIPE, text=True) as server:
    try:
        r = random.Random(1)
        with open(dir + "/data.json", "w") as f:
            for i in range(40):
                f.write(json.dumps({"question": words(r, r.randint(1, 25)), "answer": i % 4,
                                    "choices": [words(r, r.randint(1, 6)) for _ in range(4)]}) + "\n")
        with open(dir + "/choices.yaml", "w") as f:
            f.write(TASK.replace("DATA", dir + "/data.json"))
        url = json.loads(server.stdout.readline())["url"]
        ours = LocalCompletionsAPI(base_url=url + "/v1/completions", model="m", tokenizer=model, max_length=256,
                                   tokenizer_backend="huggingface", num_concurrent=1, batch_size=4)
        theirs = HFLM(pretrained=model, dtype="float32", device="cpu", batch_size=1)
        asked = [Instance("loglikelihood", {}, (words(r, r.randint(1, 20)), " " + words(r, r.randint(1, 8))), i)
                 for i in range(20)]
        pairs = list(zip(ours.loglikelihood(asked), theirs.loglikelihood(asked)))
        apart = max(abs(a[0] - b[0]) for a, b in pairs)
        print("lm_eval", lm_eval.__version__, "loglikelihood: largest difference", apart)
        good = apart <= 1e-4 and all(a[1] == b[1] for a, b in pairs)
        (a, mine), (b, hf) = evaluate(ours, dir), evaluate(theirs, dir)
        apart = max(abs(x[0] - y[0]) for m, h in zip(mine, hf) for x, y in zip(m, h))
        print("multiple choice: accuracy", a, b, "largest difference of log-likelihoods", apart)
        good = good and a == b and apart <= 1e-4
        texts = [Instance("generate_until", {}, (words(r, 6), {"until": ["\n\n"], "max_gen_toks": 20, "do_sample": False}), i)
                 for i in range(6)]
        same = ours.generate_until(texts) == theirs.generate_until(texts)
        print("greedy generation is the same:", same)
        sys.exit(not (good and same))
    finally:
        server.kill()

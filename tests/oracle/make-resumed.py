#!/usr/bin/env python3
"""make-resumed.py DIR [KIND...] - trainings that another trainer began, and how it went on

Needs torch 2.13 (CPU, gloo) and transformers 5.24 (trainer), and deepspeed 0.19.8 (zero1 to zero3).  Each KIND is a training
of a small Llama over 6 steps: DIR/KIND is its checkpoint after 3, DIR/KIND.safetensors the weights after 6, and
DIR/KIND.json the losses and the rates of all of them.  DIR/data.jsonl has the samples, which are taken in turn.
DIR.tar.gz is for tests/data.
Weights are random: there is nothing to license."""
import gzip
import json
import os
import shutil
import sys
import tarfile

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

SIZES = dict(vocab_size=11, hidden_size=4, intermediate_size=6, num_hidden_layers=2, num_attention_heads=2,
             num_key_value_heads=1, max_position_embeddings=16, tie_word_embeddings=False, dtype="float32",
             bos_token_id=None, eos_token_id=None)
BATCH, STEPS, LENGTH = 4, 6, 9
SAMPLES = torch.randint(0, 11, (BATCH * STEPS, LENGTH), generator=torch.Generator().manual_seed(2))


def model():
    torch.manual_seed(1)
    return LlamaForCausalLM(LlamaConfig(**SIZES))


class InTurn(Trainer):
    def _get_train_sampler(self, dataset=None):
        return torch.utils.data.SequentialSampler(dataset if dataset is not None else self.train_dataset)


def trainer(out, kind):
    data = [{"input_ids": row, "labels": row} for row in SAMPLES]
    tmp = f"{out}/{kind}.tmp"
    args = TrainingArguments(tmp, max_steps=STEPS, save_steps=3, per_device_train_batch_size=BATCH, learning_rate=1e-2,
                             weight_decay=0.1, warmup_steps=2, use_cpu=True, logging_steps=1, seed=5, report_to=[],
                             disable_tqdm=True, lr_scheduler_type="cosine" if kind == "trainer-cosine" else "linear")
    t = InTurn(model(), args, train_dataset=data)
    t.train()
    shutil.rmtree(f"{out}/{kind}", ignore_errors=True)
    os.rename(f"{tmp}/checkpoint-3", f"{out}/{kind}")
    for name in ("rng_state.pth", "training_args.bin"):
        with open(f"{out}/{kind}/{name}", "w") as f:
            f.write("not to be opened")
    log = [x for x in t.state.log_history if "loss" in x]
    save_log(out, kind, [x["loss"] for x in log], [x["learning_rate"] for x in log])
    save_file({k: v.detach().clone() for k, v in t.model.state_dict().items()}, f"{out}/{kind}.safetensors")
    shutil.rmtree(tmp)


def save_log(out, kind, loss, rate):
    with open(f"{out}/{kind}.json", "w") as f:
        f.write(f'{{\n"loss": {json.dumps(loss)},\n"rate": {json.dumps(rate)}\n}}\n')


def plain(info):
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


def pack(out):
    name = out.rstrip("/")
    with open(f"{name}.tar.gz", "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as f, \
            tarfile.open(fileobj=f, mode="w") as tar:
        tar.add(name, arcname=os.path.basename(name), filter=plain)


KINDS = {"trainer": trainer, "trainer-cosine": trainer}


def main(out, *kinds):
    os.makedirs(out, exist_ok=True)
    with open(f"{out}/data.jsonl", "w") as f:
        for row in SAMPLES.tolist():
            f.write(json.dumps({"ids": row}) + "\n")
    for kind in kinds or KINDS:
        KINDS[kind](out, kind)
    pack(out)


if __name__ == "__main__":
    main(*sys.argv[1:])

#!/usr/bin/env python3
"""make-epochs.py - what Hugging Face's Trainer makes of epochs whose last batch is not full

    make-epochs.py [-o DIR]

epochs.tsv: lines `step loss grad_norm learning_rate epoch` of Trainer's log for the model llama-gqa of
make-models.py, stored in f32, trained on 26 documents for two epochs, four samples a step, in the order of the
file: seven steps an epoch.  The documents are those of tests/train-data.t.
"""
import argparse
import importlib.util
import os
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("gradients", os.path.join(here, "make-gradients.py"))
gradients = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gradients)

import torch
import transformers


def document(i):
    return [3 + (i * 31 + k * k * 7 + k * 11) % 95 for k in range(9 + i * 7 % 23)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", dest="out", metavar="DIR", default=gradients.data)
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = [{"input_ids": document(i), "labels": document(i)} for i in range(26)]
    with tempfile.TemporaryDirectory() as tmp:
        gradients.models.write_model(tmp, "llama-gqa")
        model = transformers.AutoModelForCausalLM.from_pretrained(tmp, dtype=torch.float32, attn_implementation="eager")
        how = transformers.TrainingArguments(
            tmp, num_train_epochs=2, per_device_train_batch_size=1, gradient_accumulation_steps=4, learning_rate=1e-2,
            weight_decay=0.1, warmup_steps=3, lr_scheduler_type="linear", max_grad_norm=1.0, optim="adamw_torch", save_strategy="no",
            logging_steps=1, report_to=[], use_cpu=True, disable_tqdm=True, train_sampling_strategy="sequential")
        trainer = transformers.Trainer(model, how, train_dataset=data)
        trainer.train()
    with open(os.path.join(args.out, "epochs.tsv"), "w") as f:
        for line in trainer.state.log_history:
            if "loss" in line:
                f.write("\t".join([str(line["step"]), *(f"{line[k]:.9g}" for k in ("loss", "grad_norm", "learning_rate", "epoch"))])
                        + "\n")


if __name__ == "__main__":
    main()

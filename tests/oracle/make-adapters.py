#!/usr/bin/env python3
"""make-adapters - tests/data/adapters: LoRA adapters that PEFT wrote, and what they answer

  make-adapters.py [[train=|dora=]NAME...]     needs torch, transformers, peft, safetensors

Each directory NAME has an adapter of tests/data/models/NAME, the ids of a text, and its logits in float64 (rounded to
float32), by PEFT.  Random B, which training would make; ranks, alphas and modules differ from one another.
llama-gqa/other is a second adapter of it; "summed" are the logits with both, of which it counts half.
llama-gqa/saved has norms of its own (modules_to_save), NAME/dora magnitudes, llama-gqa/table adapts the embedding.
tests/data/adapted has others, of encoders and classifiers.
trained.safetensors has its matrices after one step of SGD with rate 1 on TEXTS, that is less their gradients.
"""
import json
import os
import shutil
import sys

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
IDS = [1, 2, 3, 4, 5, 6, 7]
TEXTS = [[1, 2, 3, 4, 5, 6, 7, 8], [3, 1, 4, 1, 5, 9, 2, 6]]
ADAPTERS = {
    # names of modules, ranks and alphas of their own, a part of the layers
    "llama-gqa": dict(target_modules=["q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"], r=4, lora_alpha=8,
                      rank_pattern={"o_proj": 3}, alpha_pattern={"o_proj": 5, "layers.1.self_attn.q_proj": 2}),
    # transposed weights, a fused projection, rank-stabilized
    "gpt2-hub": dict(target_modules=["c_attn", "c_proj"], r=2, lora_alpha=8, use_rslora=True, fan_in_fan_out=True),
    # q, k and v interleaved by head; an expression for the modules
    # experts, all of a layer in two pairs of matrices; of the last three in one tensor, by rows or by columns
    **dict.fromkeys(["mixtral", "gpt-oss", "llama4", "granitemoe"],
                    dict(target_modules=["q_proj"], target_parameters=["experts.gate_up_proj", "experts.down_proj"], r=2,
                         lora_alpha=6, alpha_pattern={"down_proj": 4})),
    "neox": dict(target_modules=r".*\.(query_key_value|dense|dense_4h_to_h)", r=3, lora_alpha=4),
}
# of other modules, the head among them
OTHER = dict(target_modules=["k_proj", "v_proj", "up_proj", "lm_head"], r=2, lora_alpha=3)
MORE = {
    "saved": dict(target_modules=["q_proj"], r=1, lora_alpha=2, modules_to_save=["norm"]),
    "dora": dict(target_modules=["q_proj", "down_proj"], r=1, lora_alpha=2, use_dora=True),
    "table": dict(target_modules=["q_proj", "embed_tokens"], r=1, lora_alpha=2),
}


def make(name, options):
    torch.manual_seed(len(name))
    eager = dict(experts_implementation="eager") if "target_parameters" in options else {}
    where = os.path.join(DATA, "models", name)
    kind = getattr(transformers, AutoConfig.from_pretrained(where).architectures[0])
    model = kind.from_pretrained(where, dtype=torch.float32, **eager)
    peft = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **options))
    with torch.no_grad():
        for key, p in peft.named_parameters():
            if "lora_" in key:
                p.normal_(0, 0.2)
    write(peft, os.path.join(DATA, "adapters", name), name)
    if name == "mixtral":
        return
    train(name)
    if eager:
        return
    if name == "llama-gqa":
        make_other(name)
        for which in MORE:
            if which != "dora":
                make_more(name, which)
    make_more(name, "dora")


def make_other(name):
    """A second adapter, and both: that of NAME and half of it."""
    first = os.path.join(DATA, "adapters", name)
    model = AutoModelForCausalLM.from_pretrained(os.path.join(DATA, "models", name), dtype=torch.float32)
    torch.manual_seed(99)
    peft = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **OTHER))
    with torch.no_grad():
        for key, p in peft.named_parameters():
            if "lora_" in key:
                p.normal_(0, 0.2)
    write(peft, os.path.join(first, "other"), name)
    peft.load_adapter(first, "first")
    peft.base_model.set_adapter(["default", "first"])
    peft = peft.double().eval()
    for module in peft.modules():
        if isinstance(getattr(module, "scaling", None), dict) and "default" in module.scaling:
            module.scaling["default"] *= 0.5
    with torch.no_grad():
        logits = peft(torch.tensor([IDS])).logits[0]
    save_file({"logits": logits.float().contiguous()}, os.path.join(first, "other", "summed.safetensors"))


# NAME/dora of other models: a part of a fused projection and of a product whose inputs are sharded
DORA = {
    "llama-gqa": MORE["dora"],
    "gpt2-hub": dict(target_modules=["c_attn", "c_proj"], r=1, lora_alpha=2, use_dora=True, fan_in_fan_out=True),
    "neox": dict(target_modules=["query_key_value", "dense_4h_to_h"], r=1, lora_alpha=2, use_dora=True),
}


def make_more(name, which):
    model = AutoModelForCausalLM.from_pretrained(os.path.join(DATA, "models", name), dtype=torch.float32)
    torch.manual_seed(98)
    peft = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **(DORA[name] if which == "dora" else MORE[which])))
    with torch.no_grad():
        for key, p in peft.named_parameters():
            if "magnitude" in key:
                p.mul_(1 + 0.3 * torch.rand_like(p))
            elif "lora_" in key or "modules_to_save" in key:
                p.normal_(0.5, 0.2)
    write(peft, os.path.join(DATA, "adapters", name, which), name, which == "table")
    if which != "table":
        train(name + "/" + which)


def write(peft, out, name, embedding=False):
    peft.save_pretrained(out, save_embedding_layers=embedding)
    for extra in os.listdir(out):
        if not extra.startswith("adapter_") and extra not in ["other", *MORE]:
            os.remove(os.path.join(out, extra))
    path = os.path.join(out, "adapter_config.json")
    with open(path) as f:
        config = json.load(f)
    config["base_model_name_or_path"] = name
    if isinstance(config["target_modules"], list):
        config["target_modules"].sort()
    with open(path, "w") as f:
        json.dump(config, f, indent=2, sort_keys=True)
        f.write("\n")
    with torch.no_grad():
        logits = peft.double().eval()(torch.tensor([IDS])).logits[0]
    peft.float()
    save_file({"logits": logits.float().contiguous()}, os.path.join(out, "expected.safetensors"))


def train(name):
    out = os.path.join(DATA, "adapters", name)
    where = os.path.join(DATA, "models", name.split("/")[0])
    kind = getattr(transformers, AutoConfig.from_pretrained(where).architectures[0])
    eager = dict(experts_implementation="eager") if "target_parameters" in ADAPTERS.get(name, {}) else {}
    model = kind.from_pretrained(where, dtype=torch.float64, **eager)
    peft = PeftModel.from_pretrained(model, out, is_trainable=True).double().eval()
    loss = sum(functional.cross_entropy(peft(torch.tensor([t])).logits[0, :-1], torch.tensor(t[1:]), reduction="sum")
               for t in TEXTS) / sum(len(t) - 1 for t in TEXTS)
    loss.backward()
    print(name, float(loss))
    save_file({key.replace(".default", "").replace("vector.weight", "vector").replace(".modules_to_save", ""):
               (p - p.grad).float().contiguous() for key, p in peft.named_parameters()
               if p.requires_grad}, os.path.join(out, "trained.safetensors"))

# tests/data/adapted/NAME: adapters of other kinds of models, each with a second one, "other".  Those of classifiers have
# heads of their own.  "expected" are the logits of IDS (of a source and the beginning of its answer).
KINDS = {
    "t5": ("stacks/t5", AutoModelForSeq2SeqLM, dict(task_type="SEQ_2_SEQ_LM", target_modules=["q", "v", "wi"])),
    "qwen2-score": ("heads/qwen2-score", AutoModelForSequenceClassification,
                    dict(task_type="SEQ_CLS", target_modules=["q_proj", "v_proj"])),
    "bert-classify": ("models/bert-classify", AutoModelForSequenceClassification,
                      dict(task_type="SEQ_CLS", target_modules=["query", "value"])),
}


def make_kind(name):
    where, kind, options = KINDS[name]
    out = os.path.join(DATA, "adapted", name)
    shutil.rmtree(out, ignore_errors=True)
    for k, dir in enumerate([out, os.path.join(out, "other")]):
        torch.manual_seed(k)
        peft = get_peft_model(kind.from_pretrained(os.path.join(DATA, where), dtype=torch.float32),
                              LoraConfig(r=1 + k, lora_alpha=2, **options))
        with torch.no_grad():
            for key, p in peft.named_parameters():
                if p.requires_grad:
                    p.normal_(0, 0.3)
        peft.peft_config["default"].base_model_name_or_path = name
        peft.save_pretrained(dir, save_embedding_layers=False)
        os.remove(os.path.join(dir, "README.md"))
        more = dict(decoder_input_ids=torch.tensor([IDS[:3]])) if name == "t5" else {}
        with torch.no_grad():
            logits = peft.double().eval()(torch.tensor([IDS]), **more).logits
        save_file({"logits": (logits[0] if name == "t5" else logits).float().contiguous()},
                  os.path.join(dir, "expected.safetensors"))
        if name != "t5":
            break


for name in sys.argv[1:] or [*ADAPTERS, *KINDS]:
    if name in KINDS:
        make_kind(name)
        continue
    if name == "other" or name in MORE:
        make_other("llama-gqa") if name == "other" else make_more("llama-gqa", name)
        continue
    if name.startswith("dora="):
        make_more(name[5:], "dora")
        continue
    if name.startswith("train="):  # its matrices stay
        train(name[6:])
        continue
    shutil.rmtree(os.path.join(DATA, "adapters", name), ignore_errors=True)
    make(name, ADAPTERS[name])

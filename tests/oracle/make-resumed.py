#!/usr/bin/env python3
"""make-resumed.py DIR [KIND...] - trainings that another trainer began, and how it went on

Needs torch 2.13 (CPU, gloo) and transformers 5.24 (trainer), and deepspeed 0.19.8 (zero1 to zero3, universal3).  Each KIND is a training
of a small Llama over 6 steps: DIR/KIND is its checkpoint after 3, DIR/KIND.safetensors the weights after 6, and
DIR/KIND.json the losses and the rates of all of them.  DIR/data.jsonl has the samples, which are taken in turn.
DIR.tar.gz is for tests/data.
Weights are random: there is nothing to license."""
import gzip
import json
import os
import shutil
import subprocess
import sys
import tarfile

os.environ.update(DS_ACCELERATOR="cpu", DS_BUILD_OPS="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="29561")
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
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


def steps(m, optimizer, backward, step, rank, ranks):
    """Six steps, of which each rank takes its share of the samples; gradients are clipped to 1."""
    losses = []
    for i in range(STEPS):
        mine = SAMPLES[i * BATCH:(i + 1) * BATCH][rank * BATCH // ranks:(rank + 1) * BATCH // ranks]
        loss = m(input_ids=mine, labels=mine).loss
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / ranks)
        backward(loss)
        step(i)
    return losses


def fsdp(rank, out, kind):
    dist.init_process_group("gloo", rank=rank, world_size=2)
    m = model()
    mesh = init_device_mesh("cpu", (2,))
    for layer in m.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(m, mesh=mesh)
    if kind == "fsdp-groups":
        groups = [{"params": [p for p in m.parameters() if p.dim() > 1], "weight_decay": 0.2},
                  {"params": [p for p in m.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    else:
        groups = m.parameters()
    o = torch.optim.AdamW(groups, lr=1e-2, betas=(0.8, 0.99), eps=1e-7, weight_decay=0.1)

    def step(i):
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        o.step()
        o.zero_grad()
        if i == 2:
            options = StateDictOptions(flatten_optimizer_state_dict=kind == "fsdp-flat")
            state, optimizer = get_state_dict(m, o, options=options)
            if rank == 0:
                shutil.rmtree(f"{out}/{kind}", ignore_errors=True)
            dist.barrier()
            dcp.save({**state, "optimizer": optimizer}, checkpoint_id=f"{out}/{kind}")

    losses = steps(m, o, lambda x: x.backward(), step, rank, 2)
    full = get_model_state_dict(m, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        m.config.save_pretrained(f"{out}/{kind}")
        save_log(out, kind, losses, [1e-2] * STEPS)
        save_file({k: v.contiguous() for k, v in full.items()}, f"{out}/{kind}.safetensors")
    dist.barrier()
    dist.destroy_process_group()


def zero(rank, out, kind):
    import deepspeed
    from deepspeed.utils import safe_get_full_fp32_param
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo needs no compiler
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
    deepspeed.init_distributed(dist_backend="gloo")
    m = model()
    o = torch.optim.AdamW(m.parameters(), lr=1e-2, betas=(0.8, 0.99), eps=1e-7, weight_decay=0.1)
    e, o, _, _ = deepspeed.initialize(model=m, optimizer=o, config={
        "train_micro_batch_size_per_gpu": BATCH // 2, "gradient_clipping": 1.0,
        "zero_optimization": {"stage": int(kind[4]), "stage3_param_persistence_threshold": 0},
        "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False})

    def step(i):
        e.step()
        if i == 2:
            if rank == 0:
                shutil.rmtree(f"{out}/{kind}", ignore_errors=True)
            dist.barrier()
            e.save_checkpoint(f"{out}/{kind}")

    losses = steps(e, o, e.backward, step, rank, 2)
    full = {k: safe_get_full_fp32_param(p) for k, p in e.module.named_parameters()}
    if rank == 0:
        m.config.save_pretrained(f"{out}/{kind}")
        save_log(out, kind, losses, [1e-2] * STEPS)
        save_file({k: v.detach().clone().contiguous() for k, v in full.items()}, f"{out}/{kind}.safetensors")
        for name in os.listdir(f"{out}/{kind}"):
            if name.endswith(".py"):  # DeepSpeed's own
                os.remove(f"{out}/{kind}/{name}")
    dist.barrier()
    dist.destroy_process_group()


def odd(out, kind):
    """The optimizer of "trainer" as another one that has Adam's moments: NAdam, or FusedAdam without correction."""
    o = torch.load(f"{out}/trainer/optimizer.pt")
    for group in o["param_groups"]:
        group.update({"nadam": {"momentum_decay": 0.004}, "uncorrected": {"bias_correction": False}}[kind])
    os.makedirs(f"{out}/{kind}", exist_ok=True)
    torch.save(o, f"{out}/{kind}/optimizer.pt")


def universal(out, kind):
    """The checkpoint "zero3" in the universal form, by DeepSpeed's own tool."""
    shutil.rmtree(f"{out}/{kind}", ignore_errors=True)
    subprocess.run([sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder",
                    f"{out}/zero3/global_step3", "--output_folder", f"{out}/{kind}/global_step3",
                    "--num_extract_workers", "1", "--num_merge_workers", "1"], check=True)
    shutil.copy(f"{out}/zero3/config.json", f"{out}/{kind}")
    with open(f"{out}/{kind}/latest_universal", "w") as f:
        f.write("global_step3")


KINDS = {"trainer": trainer, "trainer-cosine": trainer, "fsdp": fsdp, "fsdp-flat": fsdp, "fsdp-groups": fsdp,
         "zero1": zero, "zero2": zero, "zero3": zero, "universal3": universal, "nadam": odd, "uncorrected": odd}


def main(out, *kinds):
    os.makedirs(out, exist_ok=True)
    with open(f"{out}/data.jsonl", "w") as f:
        for row in SAMPLES.tolist():
            f.write(json.dumps({"ids": row}) + "\n")
    for kind in kinds or KINDS:
        if KINDS[kind] in (trainer, odd, universal):
            KINDS[kind](out, kind)
        else:
            torch.multiprocessing.spawn(KINDS[kind], (out, kind), nprocs=2)
    pack(out)


if __name__ == "__main__":
    main(*sys.argv[1:])

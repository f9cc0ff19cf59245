#!/usr/bin/env python3
"""make-frameworks.py DIR [KIND...] - small checkpoints that training frameworks write, and their truth

Needs torch 2.13 (CPU, gloo), transformers and deepspeed 0.19.8, and for titan2 and titan3 torchtitan 0.2.2 and 0.3.0.  Each KIND becomes DIR/KIND, and the
full state that the framework itself gives becomes DIR/KIND.safetensors; DIR/config.json is the model.
DIR.tar.gz is for tests/data, except for the seeds of fuzz-forms, which become DIR-seeds/NAME.
Weights are random: there is nothing to license."""
import glob
import gzip
import json
import os
import shutil
import sys
import tarfile

os.environ.update(DS_ACCELERATOR="cpu", DS_BUILD_OPS="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="29541")
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch.distributed.checkpoint.state_dict import (StateDictOptions, get_model_state_dict,
                                                     get_optimizer_state_dict, get_state_dict)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = dict(vocab_size=19, hidden_size=8, intermediate_size=13, num_hidden_layers=1, num_attention_heads=2,
             num_key_value_heads=1, max_position_embeddings=16, tie_word_embeddings=False, dtype="float32")


def model(**changes):
    torch.manual_seed(1)
    return LlamaForCausalLM(LlamaConfig(**{**SIZES, **changes}))


def tiny():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LayerNorm(3))


def text(rank, step):
    return torch.randint(0, 19, (1, 6), generator=torch.Generator().manual_seed(10 * step + rank))


def train(m, optimizer, rank):
    for step in range(2):
        ids = text(rank, step)
        m(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def save_truth(out, kind, state):
    if dist.get_rank() == 0:
        save_file({k: v.detach().clone().contiguous() for k, v in state.items()}, f"{out}/{kind}.safetensors")


def full(m):
    return get_model_state_dict(m, options=StateDictOptions(full_state_dict=True, cpu_offload=True))


def sharded(mesh, m, inner=None):
    for layer in m.model.layers:
        if inner is not None:
            parallelize_module(layer, inner, {f"self_attn.{k}_proj": ColwiseParallel() for k in "qkv"} | {
                "self_attn.o_proj": RowwiseParallel(), "mlp.gate_proj": ColwiseParallel(),
                "mlp.up_proj": ColwiseParallel(), "mlp.down_proj": RowwiseParallel()})
        fully_shard(layer, mesh=mesh)
    fully_shard(m, mesh=mesh)
    return m


def save_ranks(directory, state):
    os.makedirs(directory, exist_ok=True)
    rank, n = dist.get_rank(), dist.get_world_size()
    torch.save(state, f"{directory}/model_world_size_{n}_rank_{rank}.pt")


def fsdp(out, kind):
    """FSDP2 on 3 ranks, uneven rows: as torchtitan nests it (with the optimizer), as accelerate does, rank files"""
    mesh = init_device_mesh("cpu", (3,))
    m = sharded(mesh, model())
    optimizer = torch.optim.AdamW(m.parameters(), lr=1e-2)
    train(m, optimizer, dist.get_rank())
    state, moments = get_state_dict(m, optimizer)
    dcp.save({**state, "optimizer": moments}, checkpoint_id=f"{out}/dcp")
    dcp.save({"model": state}, checkpoint_id=f"{out}/accelerate/pytorch_model_fsdp_0")
    save_ranks(f"{out}/ranks", m.state_dict())
    save_truth(out, kind, full(m))
    whole = get_optimizer_state_dict(m, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    save_truth(out, f"{kind}-moments", full(m) | {
        f"{k}.{role}": v[role] for k, v in whole.get("state", {}).items() for role in ("exp_avg", "exp_avg_sq")})


def experts(out, kind):
    """a mixture of experts, whose state dict stacks them: transformers' own files do not"""
    from transformers import MixtralConfig, MixtralForCausalLM

    torch.manual_seed(1)
    m = MixtralForCausalLM(MixtralConfig(**{**SIZES, "intermediate_size": 5}, num_local_experts=3, head_dim=4))
    sharded(init_device_mesh("cpu", (2,)), m)
    dcp.save({"model": m.state_dict()}, checkpoint_id=f"{out}/{kind}")
    state, moe = full(m), "model.layers.0.block_sparse_moe"
    if dist.get_rank() == 0:
        m.config.save_pretrained(f"{out}/{kind}.hf")
        gate_up, down = (state.pop(f"model.layers.0.mlp.experts.{k}_proj") for k in ("gate_up", "down"))
        for e in range(3):
            state[f"{moe}.experts.{e}.w1.weight"], state[f"{moe}.experts.{e}.w3.weight"] = gate_up[e].chunk(2)
            state[f"{moe}.experts.{e}.w2.weight"] = down[e]
    save_truth(out, kind, state)


def mesh(out, kind):
    """FSDP2 over tensor parallel, mesh 2 x 2: placements that stride"""
    both = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    m = sharded(both["dp"], model(intermediate_size=12, vocab_size=18), both["tp"])
    save_ranks(f"{out}/{kind}", m.state_dict())
    save_truth(out, kind, full(m))


def hsdp(out, kind):
    """HSDP on 2 x 2: every shard twice"""
    m = sharded(init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")), model())
    save_ranks(f"{out}/{kind}", m.state_dict())
    dcp.save({"app": {"model": m.state_dict()}, "step": 3, "nested": {"list": [torch.arange(3), {"x": 1}]},
              "empty": torch.empty(0, 4)}, checkpoint_id=f"{out}/{kind}-dcp")
    save_truth(out, kind, full(m))


def fsdp1(out, kind):
    """FSDP1 without a mesh on 2 ranks: ShardedTensor"""
    m = FullyShardedDataParallel(model(), device_id=torch.device("cpu"), use_orig_params=True)
    with FullyShardedDataParallel.summon_full_params(m, writeback=False):
        truth = {k.replace("_fsdp_wrapped_module.", ""): v.detach().clone() for k, v in m.named_parameters()}
    with FullyShardedDataParallel.state_dict_type(m, StateDictType.SHARDED_STATE_DICT):
        save_ranks(f"{out}/{kind}", m.state_dict())
    save_truth(out, kind, truth)


def zero(out, kind):
    """DeepSpeed; the kind names the stage and what is special"""
    import deepspeed
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    stage = int(kind[4])
    odd = {"hidden_size": 12} if "align" in kind else {}  # no multiple of the alignment
    m = tiny() if "seed" in kind else model(tie_word_embeddings="tied" in kind, **odd)
    if "frozen" in kind:
        for name, p in m.named_parameters():
            p.requires_grad_("embed" not in name and "q_proj" not in name and "bias" not in name)
        m.register_buffer("counter", torch.arange(5))
    config = {"train_micro_batch_size_per_gpu": 1, "zero_allow_untested_optimizer": True,
              "zero_force_ds_cpu_optimizer": False,
              "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0}}
    if "sub" in kind:
        config["zero_optimization"]["sub_group_size"] = 200
    if "align" in kind:
        config["zero_optimization"]["parameter_alignment"] = True
    if "opt" in kind:
        config["data_types"] = {"grad_accum_dtype": "fp32"}
    if "half" in kind:  # DeepSpeed refuses fp16 on a CPU, whose PyTorch has it
        from deepspeed.accelerator import get_accelerator

        get_accelerator().is_fp16_supported = lambda: True
        config["fp16"] = {"enabled": True, "initial_scale_power": 8}
    elif "f32" not in kind:
        config["bf16"] = {"enabled": True}
    trained = [p for p in m.parameters() if p.requires_grad]
    groups = [{"params": [p for p in trained if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0}]
    engine, _, _, _ = deepspeed.initialize(model=m, optimizer=torch.optim.AdamW(groups, lr=1e-2), config=config)
    for step in range(2):
        ids = text(dist.get_rank(), step)
        if "seed" in kind:
            loss = engine(torch.ones(2, 4, dtype=next(engine.module.parameters()).dtype)).float().pow(2).mean()
        else:
            loss = engine(input_ids=ids, labels=ids).loss
        engine.backward(loss)
        engine.step()
    engine.save_checkpoint(f"{out}/{kind}", tag="global_step2")
    dist.barrier()
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

    if stage == 3:
        state = {}
        for name, p in engine.module.named_parameters():
            if p.requires_grad:
                state[name] = safe_get_full_fp32_param(p)
                for role in ("exp_avg", "exp_avg_sq"):
                    state[f"{name}.{role}"] = safe_get_full_optimizer_state(p, role)
        if "frozen" not in kind and "tied" not in kind:
            save_truth(out, f"{kind}-moments", state)
    if "opt" in kind:  # DeepSpeed's zero_to_fp32 refuses it: no zero_stage
        save_truth(out, kind, {k: safe_get_full_fp32_param(p) for k, p in engine.module.named_parameters()})
    elif stage:
        save_truth(out, kind, get_fp32_state_dict_from_zero_checkpoint(f"{out}/{kind}"))
    else:  # the 16-bit weights; the masters beside them round to these
        save_truth(out, kind, engine.module.state_dict())
    if kind in ("zero1", "zero1-seed") and dist.get_rank() == 0:
        import argparse

        from deepspeed.checkpoint import ds_to_universal

        ds_to_universal.main(argparse.Namespace(
            input_folder=f"{out}/{kind}/global_step2", output_folder=f"{out}/{kind.replace('zero1', 'universal')}/u", num_extract_workers=1,
            num_merge_workers=1, keep_temp_folder=False, strict=True, inject_missing_state=True))
    dist.barrier()


def pipe(out, kind):
    """DeepSpeed's pipeline of 2 stages with a tied layer: the f32 masters, gathered through the parameters"""
    import deepspeed
    from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
    from deepspeed.utils import safe_get_full_fp32_param

    def tied():
        return TiedLayerSpec("embed", torch.nn.Linear, 6, 6, bias=False)

    deepspeed.init_distributed(dist_backend="gloo")
    torch.manual_seed(3)
    m = PipelineModule([tied(), LayerSpec(torch.nn.Linear, 6, 5), LayerSpec(torch.nn.LayerNorm, 5), lambda x: 2 * x,
                        LayerSpec(torch.nn.Linear, 5, 6), tied()],
                       num_stages=2, loss_fn=lambda y, want: (y - want).pow(2).mean(), partition_method="uniform")
    config = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2, "bf16": {"enabled": True},
              "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True,
              "zero_force_ds_cpu_optimizer": False}
    engine, _, _, _ = deepspeed.initialize(model=m, model_parameters=list(m.parameters()), config=config,
                                           optimizer=torch.optim.AdamW(m.parameters(), lr=1e-2))
    batch = (torch.ones(1, 6).bfloat16(), torch.zeros(1, 6).bfloat16())
    engine.train_batch(iter([batch] * 4))
    engine.save_checkpoint(f"{out}/{kind}", tag="global_step1")
    dist.barrier()
    mine = {k: safe_get_full_fp32_param(p) for k, p in engine.module.named_parameters()}
    both = [None] * 2
    dist.all_gather_object(both, {k: v.clone() for k, v in mine.items()})
    save_truth(out, kind, {**both[1], **both[0]})


def optim(out, kind):
    """rank files of FSDP2 with the optimizer's beside them; the kind says how the optimizer knows the parameters"""
    m = sharded(init_device_mesh("cpu", (2,)), model(tie_word_embeddings="tied" in kind))
    trained = dict(m.named_parameters())
    # by name: the head first, which no shape tells from the table
    trained = sorted(trained.items()) if "names" in kind else list(trained.values())
    optimizer = torch.optim.AdamW(trained, lr=1e-2)
    train(m, optimizer, dist.get_rank())
    save_ranks(f"{out}/{kind}", m.state_dict())
    rank, n = dist.get_rank(), dist.get_world_size()
    torch.save(optimizer.state_dict(), f"{out}/{kind}/optim_world_size_{n}_rank_{rank}.pt")
    if kind != "optim-names":
        whole = get_optimizer_state_dict(m, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        save_truth(out, kind, full(m) | {
            f"{k}.{role}": v[role] for k, v in whole.get("state", {}).items() for role in ("exp_avg", "exp_avg_sq")})


def half(out, kind):
    """fp16 weights: by torch.distributed.checkpoint and in rank files"""
    m = sharded(init_device_mesh("cpu", (2,)), model().half())
    state = get_model_state_dict(m)
    dcp.save({"model": state}, checkpoint_id=f"{out}/{kind}-dcp")
    save_ranks(f"{out}/{kind}", m.state_dict())
    save_truth(out, kind, full(m))


def hub(out, kind):
    """torch.distributed.checkpoint in safetensors files, each of a part of the tensors of each rank"""
    from torch.distributed.checkpoint import HuggingFaceStorageWriter

    m = sharded(init_device_mesh("cpu", (3,)), model())
    state = get_model_state_dict(m)
    files = {k: 1 + (i % 2) for i, k in enumerate(state)}
    os.makedirs(f"{out}/{kind}", exist_ok=True)
    dcp.save(state, storage_writer=HuggingFaceStorageWriter(f"{out}/{kind}", fqn_to_index_mapping=files, save_distributed=True))
    save_truth(out, kind, full(m))


def titan(out, kind):
    """a Llama of torchtitan 0.2.2 or 0.3.0, whichever is installed, as its checkpointer lays it out, with the optimizer"""
    from importlib.metadata import version
    from unittest import mock

    for unused in ("torch.utils.tensorboard", "datasets", "datasets.distributed", "PIL"):
        sys.modules[unused] = mock.MagicMock()
    torch.manual_seed(2)
    if version("torchtitan").startswith("0.2"):
        from torchtitan.models.llama3.model.args import TransformerModelArgs
        from torchtitan.models.llama3.model.model import Transformer
        from torchtitan.models.llama3.model.state_dict_adapter import Llama3StateDictAdapter

        c = TransformerModelArgs(dim=8, n_layers=1, n_heads=2, n_kv_heads=1, vocab_size=19, multiple_of=4, max_seq_len=16)
        m = Transformer(c)
    else:
        from torchtitan.models import llama3
        from torchtitan.models.llama3.state_dict_adapter import Llama3StateDictAdapter

        norm = llama3.RMSNorm.Config(normalized_shape=8, param_init=llama3._NORM_INIT)
        c = llama3.Llama3Model.Config(
            dim=8, vocab_size=19, norm=norm,
            tok_embeddings=llama3.Embedding.Config(num_embeddings=19, embedding_dim=8, param_init=llama3._EMBEDDING_INIT),
            lm_head=llama3.Linear.Config(in_features=8, out_features=19, param_init=llama3._output_linear_init(8)),
            layers=llama3._build_llama3_layers(
                n_layers=1, dim=8, n_heads=2, n_kv_heads=1, hidden_dim=24, attn_backend="varlen", fuse_qkv=False,
                rope=llama3.ComplexRoPE.Config(dim=4, max_seq_len=16, theta=10000.0)))
        m = c.build()
        for p in m.parameters():
            torch.nn.init.normal_(p)
    for layer in m.layers.values():
        fully_shard(layer, mesh=(both := init_device_mesh("cpu", (2,))))
    fully_shard(m, mesh=both)
    optimizer = torch.optim.AdamW(m.parameters(), lr=1e-2)
    for p in m.parameters():
        p.grad = p.detach() * 0.1
    optimizer.step()
    state = get_model_state_dict(m)
    moments = get_optimizer_state_dict(m, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))
    dcp.save({**state, "optimizer": moments}, checkpoint_id=f"{out}/{kind}")
    adapter = Llama3StateDictAdapter(c, None)
    truth = adapter.to_hf({k: v.full_tensor() for k, v in state.items() if not k.endswith("freqs_cis")})
    whole = {k.removeprefix("state."): v.full_tensor() for k, v in moments.items() if k.endswith(("exp_avg", "exp_avg_sq"))}
    for role in ("exp_avg", "exp_avg_sq"):
        part = {k.removesuffix("." + role): v for k, v in whole.items() if k.endswith("." + role)}
        truth |= {f"{k}.{role}": v for k, v in adapter.to_hf(part).items()}
    save_truth(out, kind, truth)


def layers(out, kind):
    """DeepSpeed's pipeline of a model with the names and numbers of layers of GPT-NeoX, or of Megatron-DeepSpeed (BLOOM)"""
    import deepspeed
    from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
    from transformers import BloomConfig, BloomForCausalLM, GPTNeoXConfig, GPTNeoXForCausalLM

    width, heads, vocab = 8, 2, 19
    bloom = kind == "bloom-layers"

    class Norm(torch.nn.LayerNorm):
        pass

    class Embedding(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.word_embeddings = torch.nn.Embedding(vocab, width)
            if bloom:  # as BigScience's VocabParallelEmbedding has it
                self.word_embeddings.norm = Norm(width)

        @property
        def word_embeddings_weight(self):
            return self.word_embeddings.weight

    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.query_key_value, self.dense = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)

    class MLP(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.dense_h_to_4h, self.dense_4h_to_h = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.input_layernorm, self.post_attention_layernorm = Norm(width), Norm(width)
            setattr(self, "self_attention" if bloom else "attention", Attention())
            self.mlp = MLP()

        def forward(self, x):
            return sum((p.sum() for p in self.parameters()), x)

    class NormPipe(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = Norm(width)

        def forward(self, x):
            return x + self.norm.weight.sum() + self.norm.bias.sum()

    class Head(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.final_linear = torch.nn.Linear(width, vocab, bias=False)

        def forward(self, x):
            return x + self.final_linear.weight.sum()

    def add(self, x):
        return sum((p.sum() for p in self.parameters()), x)

    Embedding.forward = add
    Norm.forward = add
    nothing = lambda x: x  # noqa: E731 - the lambdas between, which leave gaps
    deepspeed.init_distributed(dist_backend="gloo")
    torch.manual_seed(4)
    if bloom:
        tied = TiedLayerSpec("embed", Embedding, tied_weight_attr="word_embeddings_weight")
        specs = [nothing, tied, nothing, LayerSpec(Block), LayerSpec(Block), nothing, LayerSpec(Norm, width), tied]
    else:
        specs = [LayerSpec(Embedding), nothing, LayerSpec(Block), LayerSpec(Block), nothing, LayerSpec(NormPipe), LayerSpec(Head)]
    m = PipelineModule(specs, num_stages=2, loss_fn=lambda y, want: (y - want).pow(2).mean(), partition_method="uniform")
    for name, p in m.named_parameters():
        torch.nn.init.normal_(p)
    config = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2, "bf16": {"enabled": True},
              "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True,
              "zero_force_ds_cpu_optimizer": False}
    engine, _, _, _ = deepspeed.initialize(model=m, model_parameters=list(m.parameters()), config=config,
                                           optimizer=torch.optim.AdamW(m.parameters(), lr=1e-2))
    batch = (torch.ones(1, 6).bfloat16(), torch.zeros(1, 6).bfloat16())
    engine.train_batch(iter([batch] * 4))
    engine.save_checkpoint(f"{out}/{kind}", tag="global_step1")
    dist.barrier()
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

    mine = {}
    for k, p in engine.module.named_parameters():
        for role in ("", "exp_avg", "exp_avg_sq"):
            v = safe_get_full_optimizer_state(p, role) if role else safe_get_full_fp32_param(p)
            mine[k + ("." + role if role else "")] = v.clone()
    both = [None] * 2
    dist.all_gather_object(both, mine)
    if bloom:
        c = BloomConfig(vocab_size=vocab, hidden_size=width, n_layer=2, n_head=heads, tie_word_embeddings=True)
        top = {"tied_modules.embed.word_embeddings.weight": "transformer.word_embeddings.weight",
               "tied_modules.embed.word_embeddings.norm.": "transformer.word_embeddings_layernorm.", "6.": "transformer.ln_f."}
        block, hf = "transformer.h.{}.", BloomForCausalLM
    else:
        c = GPTNeoXConfig(vocab_size=vocab, hidden_size=width, num_hidden_layers=2, num_attention_heads=heads, intermediate_size=4 * width,
                          max_position_embeddings=16, tie_word_embeddings=False)
        top = {"0.word_embeddings.weight": "gpt_neox.embed_in.weight", "5.norm.": "gpt_neox.final_layer_norm.",
               "6.final_linear.weight": "embed_out.weight"}
        block, hf = "gpt_neox.layers.{}.", GPTNeoXForCausalLM
    truth, first = {}, 3 if bloom else 2
    for k, v in {**both[1], **both[0]}.items():
        for start, to in list(top.items()) + [(f"{first + i}.", block.format(i)) for i in range(2)]:
            if k.startswith(start):
                truth[to + k[len(start):]] = v
    known = set(hf(c).state_dict()) - {"lm_head.weight"} | (set() if bloom else {"embed_out.weight"})
    assert {k for k in truth if "exp_avg" not in k} == known
    save_truth(out, kind, truth)
    if dist.get_rank() == 0:
        c.architectures = [hf.__name__]
        c.save_pretrained(f"{out}/{kind}.hf")


def seeds(out, kind):
    """two tensors on two ranks, for the fuzz targets"""
    from torch.distributed.checkpoint import HuggingFaceStorageWriter

    both = init_device_mesh("cpu", (2,))
    m = tiny()
    fully_shard(m, mesh=both)
    optimizer = torch.optim.AdamW(m.parameters(), lr=1e-2)
    for p in m.parameters():
        p.grad = p.detach() * 0.1
    optimizer.step()
    save_ranks(f"{out}/ranks-seed", m.state_dict())
    torch.save(optimizer.state_dict(), f"{out}/ranks-seed/optim_world_size_2_rank_{dist.get_rank()}.pt")
    dcp.save(get_model_state_dict(m), storage_writer=HuggingFaceStorageWriter(f"{out}/hub-seed", save_distributed=True))
    dcp.save({"model": m.state_dict(), "step": 3}, checkpoint_id=f"{out}/dcp-seed")


KINDS = {"fsdp": (3, fsdp), "experts": (2, experts), "mesh": (4, mesh), "hsdp": (4, hsdp), "fsdp1": (2, fsdp1), "zero0": (2, zero),
         "zero1": (2, zero), "zero1-f32": (3, zero), "zero1-opt": (3, zero), "zero2-align": (2, zero),
         "zero2-frozen": (2, zero), "zero2-tied": (3, zero), "zero3": (3, zero), "zero3-sub": (2, zero),
         "zero3-frozen": (3, zero), "zero3-tied": (2, zero),
         "pipe": (2, pipe), "neox-layers": (2, layers), "bloom-layers": (2, layers), "optim": (2, optim),
         "optim-names": (2, optim), "optim-tied": (2, optim), "half": (2, half), "hub": (3, hub), "zero0-half": (2, zero),
         "zero2-half": (2, zero), "zero3-half": (2, zero), "titan2": (2, titan), "titan3": (2, titan), "seeds": (2, seeds), "zero1-seed": (2, zero), "zero3-frozen-seed": (2, zero)}


def run(rank, out, kind):
    ranks, make = KINDS[kind]
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks))
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    make(out, kind)
    dist.destroy_process_group()


def pack(out):
    """all but the seeds, the same bytes from the same files"""
    def plain(info):
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        info.mode = 0o755 if info.isdir() else 0o644
        return None if "seed" in info.name else info

    with gzip.GzipFile(f"{out}.tar.gz", "wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(out, "frameworks", filter=plain)


def pack_seed(directory, seed):
    """files one after another, each after a line of its name and size, as fuzz-forms reads them"""
    with open(seed, "wb") as f:
        for path in sorted(glob.glob(f"{directory}/**", recursive=True, include_hidden=True)):
            name = os.path.relpath(path, directory)
            if os.path.isfile(path) and not any(w in name for w in ("exp_avg", "step.pt", "optimizer_state")):
                content = open(path, "rb").read()
                f.write(f"{name} {len(content)}\n".encode() + content)


if __name__ == "__main__":
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    for kind in sys.argv[2:] or KINDS:
        shutil.rmtree(f"{out}/{kind}", ignore_errors=True)
        torch.multiprocessing.spawn(run, (out, kind), nprocs=KINDS[kind][0])
    for program in glob.glob(f"{out}/**/*.py", recursive=True):  # DeepSpeed's own
        os.remove(program)
    LlamaConfig(**SIZES, architectures=["LlamaForCausalLM"]).save_pretrained(out)
    with open(f"{out}/titan.json", "w") as f:  # of the models of titan
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8, "intermediate_size": 24,
                   "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 19}, f)
    pack(out)
    os.makedirs(f"{out}-seeds", exist_ok=True)
    for seed in sorted(glob.glob(f"{out}/*-seed")) + [f"{out}/pipe"]:
        if os.path.isdir(seed):
            name = os.path.basename(seed).removesuffix("-seed")
            pack_seed(f"{seed}/u" if os.path.isdir(f"{seed}/u") else seed, f"{out}-seeds/{name}")

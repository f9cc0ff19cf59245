#!/usr/bin/env python3
"""make-megatron.py OUT [KIND...] - small checkpoints of megatron-core 0.16.1 on two tensor ranks: torch_dist, legacy and the truth

OUT/KIND has torch_dist/ (dist_checkpointing) and legacy/ (mp_rank_TT/model_optim_rng.pt) of one model, and truth.safetensors:
the tensors of torch_dist as torch's own loader gives them, taken apart by indexing and named as Hugging Face's files have them.
Kinds: qwen2 (biases of q, k and v), qwen3 (norms of q and k), adam (Llama in bf16 with Megatron's Adam, whose moments the truth
has, too), sharded (the same with the distributed optimizer: fully_reshardable, and distrib_optim.pt), buckets (dp_reshardable).
OUT.tar.gz is for tests/data: one of both forms of most kinds.

Megatron's kernels want a GPU; what they compute does not matter here, so what asks for one is answered for it.  The arguments of
the runs are those of make-foreign.py.  Needs torch, megatron-core and safetensors."""
import argparse
import gzip
import os
import shutil
import sys
import tarfile

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29547")
import torch
import torch.distributed as dist
import torch.nn.functional as F

HIDDEN, FFN, VOCAB, HEADS, KV, LAYERS = 16, 24, 32, 4, 2, 2


def without_gpu():
    cuda = torch.cuda
    cuda.synchronize = cuda.empty_cache = lambda *a, **k: None
    cuda.current_device, cuda.device_count = lambda: "cpu", lambda: 1

    def on_cpu(f):
        return lambda *a, **k: f(*a, **{x: "cpu" if x == "device" and str(y).startswith("cuda") else y for x, y in k.items()})

    for name in ("tensor", "zeros", "empty", "ones"):
        setattr(torch, name, on_cpu(getattr(torch, name)))
    real = torch.Tensor.type
    torch.Tensor.type = lambda s, *a, **k: real(s, *a, **k) if a or k else real(s).replace("torch.", "torch.cuda.")
    torch.Tensor.cuda = lambda s, *a, **k: s


def apart(t, qkv_bias, qk_norm):
    """Hugging Face's names of a Llama's stacked tensors T."""
    width = HIDDEN // HEADS
    o = {"model.embed_tokens.weight": t["embedding.word_embeddings.weight"], "lm_head.weight": t["output_layer.weight"],
         "model.norm.weight": t["decoder.final_layernorm.weight"]}
    for i in range(LAYERS):
        p = f"model.layers.{i}."
        for kind in ("weight", "bias")[:1 + qkv_bias]:
            w = t[f"decoder.layers.self_attention.linear_qkv.{kind}"][i]
            w = w.view(KV, HEADS // KV + 2, width, *w.shape[1:])
            for name, rows in (("q", w[:, :-2]), ("k", w[:, -2]), ("v", w[:, -1])):
                o[f"{p}self_attn.{name}_proj.{kind}"] = rows.reshape(-1, *w.shape[3:])
        for name in "qk" if qk_norm else "":
            o[f"{p}self_attn.{name}_norm.weight"] = t[f"decoder.layers.self_attention.{name}_layernorm.weight"][i]
        o[p + "self_attn.o_proj.weight"] = t["decoder.layers.self_attention.linear_proj.weight"][i]
        o[p + "input_layernorm.weight"] = t["decoder.layers.self_attention.linear_qkv.layer_norm_weight"][i]
        o[p + "post_attention_layernorm.weight"] = t["decoder.layers.mlp.linear_fc1.layer_norm_weight"][i]
        o[p + "mlp.gate_proj.weight"], o[p + "mlp.up_proj.weight"] = t["decoder.layers.mlp.linear_fc1.weight"][i].chunk(2)
        o[p + "mlp.down_proj.weight"] = t["decoder.layers.mlp.linear_fc2.weight"][i]
    return o


def save_truth(out, kind):
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import save_file
    from torch.distributed.checkpoint import FileSystemReader

    reader = FileSystemReader(f"{out}/torch_dist")
    all_of = {k: torch.empty(v.size, dtype=v.properties.dtype) for k, v in reader.read_metadata().state_dict_metadata.items()
              if hasattr(v, "size") and "_extra_state" not in k}
    dcp.load(all_of, storage_reader=reader, no_dist=True)
    truth = {}
    for start, end in (("model.", ""), ("optimizer.state.exp_avg.model.", ".exp_avg"), ("optimizer.state.exp_avg_sq.model.", ".exp_avg_sq")):
        part = {k.removeprefix(start): v for k, v in all_of.items() if k.startswith(start)}
        if part:
            truth |= {k + end: v.contiguous() for k, v in apart(part, kind == "qwen2", kind == "qwen3").items()}
    save_file(truth, f"{out}/truth.safetensors")


def make(rank, out, kind, ranks):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks))
    without_gpu()
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.transformer.transformer_config import TransformerConfig

    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    parallel_state.initialize_model_parallel(2, 1)
    trained = not kind.startswith("qwen")
    dtype = torch.bfloat16 if trained else torch.float32
    c = TransformerConfig(
        num_layers=LAYERS, hidden_size=HIDDEN, num_attention_heads=HEADS, num_query_groups=KV, ffn_hidden_size=FFN,
        use_cpu_initialization=True, normalization="RMSNorm", add_bias_linear=False, add_qkv_bias=kind == "qwen2",
        qk_layernorm=kind == "qwen3", gated_linear_unit=True, activation_func=F.silu, tensor_model_parallel_size=2, params_dtype=dtype,
        bf16=trained, gradient_accumulation_fusion=False, attention_dropout=0.0, hidden_dropout=0.0, bias_dropout_fusion=False,
        apply_rope_fusion=False)
    torch.manual_seed(5)
    m = GPTModel(config=c, transformer_layer_spec=get_gpt_layer_local_spec(normalization="RMSNorm", qk_layernorm=kind == "qwen3"),
                 vocab_size=VOCAB, max_sequence_length=32, share_embeddings_and_output_weights=False, position_embedding_type="rope")
    for name, p in m.named_parameters():
        if p.dim() < 2:  # norms and biases begin alike; the same on both ranks, but for the bias of q, k and v
            seed = len(name) + (rank if "linear_qkv.bias" in name else 0)
            p.data += torch.randn(p.shape, generator=torch.Generator().manual_seed(seed)) * 0.1
    m = m.to(dtype)
    sharded = kind in ("sharded", "buckets")
    state, legacy = {}, {}
    if trained:
        m = DistributedDataParallel(c, DistributedDataParallelConfig(use_distributed_optimizer=sharded, overlap_grad_reduce=False), m)
        optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=1e-3, use_distributed_optimizer=sharded, params_dtype=dtype,
                                                           bf16=True, clip_grad=0.0), [m])
        for p in m.parameters():
            p.main_grad.data.copy_(0.01 + 0.001 * p.data.float())
        optimizer.step()
        form = "dp_reshardable" if kind == "buckets" else "fully_reshardable"
        state["optimizer"] = optimizer.sharded_state_dict(
            m.module.sharded_state_dict(prefix="model."), metadata={"distrib_optim_sharding_type": form, "chained_optim_avoid_prefix": True})
        legacy["optimizer"] = optimizer.state_dict()
    inner = m.module if trained else m
    if not rank:
        os.makedirs(f"{out}/torch_dist")
    dist.barrier()
    dist_checkpointing.save({**inner.sharded_state_dict(prefix="model."), **state}, f"{out}/torch_dist")
    tp = parallel_state.get_tensor_model_parallel_rank()
    directory = f"{out}/legacy/mp_rank_{tp:02d}"
    if sharded:
        os.makedirs(directory, exist_ok=True)
        optimizer.save_parameter_state(f"{directory}/distrib_optim.pt")
    args = argparse.Namespace(
        num_layers=LAYERS, hidden_size=HIDDEN, ffn_hidden_size=FFN, num_attention_heads=HEADS, kv_channels=HIDDEN // HEADS,
        group_query_attention=True, num_query_groups=KV, max_position_embeddings=32, position_embedding_type="rope", rotary_base=10000,
        rotary_percent=1.0, normalization="RMSNorm", norm_epsilon=1e-5, swiglu=True, add_bias_linear=False, add_qkv_bias=kind == "qwen2",
        qk_layernorm=kind == "qwen3", untie_embeddings_and_output_weights=True, num_experts=None, padded_vocab_size=VOCAB,
        tensor_model_parallel_size=2, pipeline_model_parallel_size=1, expert_model_parallel_size=1)
    if rank < 2 or not sharded:
        os.makedirs(directory, exist_ok=True)
        torch.save({"args": args, "checkpoint_version": 3.0, "iteration": 1, "model": inner.state_dict_for_save_checkpoint(), **legacy},
                   f"{directory}/model_optim_rng.pt")
    dist.barrier()
    if not rank and kind != "buckets":
        save_truth(out, kind)
    dist.destroy_process_group()


KINDS = ("qwen2", "qwen3", "adam", "sharded", "buckets")
KEPT = ("qwen2/legacy", "qwen2/truth.safetensors", "qwen3/torch_dist", "qwen3/truth.safetensors", "adam/legacy",
        "adam/truth.safetensors", "sharded/legacy", "sharded/torch_dist", "sharded/truth.safetensors", "buckets/torch_dist")


def pack(out):
    """the same bytes from the same files"""
    def plain(info):
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        info.mode = 0o755 if info.isdir() else 0o644
        return info

    with gzip.GzipFile(f"{out}.tar.gz", "wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for name in KEPT:
            tar.add(os.path.join(out, name), "megatron/" + name, filter=plain)


if __name__ == "__main__":
    for name in sys.argv[2:] or KINDS:
        path, world = os.path.join(sys.argv[1], name), 4 if name in ("sharded", "buckets") else 2
        shutil.rmtree(path, ignore_errors=True)
        torch.multiprocessing.spawn(make, (path, name, world), nprocs=world)
    pack(sys.argv[1].rstrip("/"))

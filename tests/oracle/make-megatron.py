#!/usr/bin/env python3
"""make-megatron.py OUT [KIND...] - small checkpoints of megatron-core 0.16.1 on two tensor ranks: torch_dist, legacy and the truth

OUT/KIND has torch_dist/ (dist_checkpointing) and legacy/ (mp_rank_TT/model_optim_rng.pt) of one model, and truth.safetensors:
the tensors of torch_dist as torch's own loader gives them, taken apart by indexing and named as Hugging Face's files have them.
Kinds: qwen2 (biases of q, k and v), qwen3 (norms of q and k), adam (Llama in bf16 with Megatron's Adam, whose moments the truth
has, too, and masters.safetensors the f32 masters), sharded (the same with the distributed optimizer: fully_reshardable, and distrib_optim.pt), buckets (dp_reshardable),
experts (Mixtral in bf16 with Adam, legacy on two tensor and two expert ranks), spread (the same with the distributed optimizer),
crossed (such experts whole on each of two ranks that are tensor and expert ranks at once), shared (Qwen2-MoE), qwen3_moe, mla (DeepSeek-V3: latent attention, a dense layer, shared
experts, a bias of the router; the norms of the latents are put into Megatron's local layers, which leave them out).
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

HIDDEN, FFN, VOCAB, HEADS, KV, LAYERS, NEXPERTS = 16, 24, 32, 4, 2, 2, 4
MIXTRAL = ("experts", "spread", "crossed")
EXPERTS = (*MIXTRAL, "shared", "qwen3_moe", "mla")
CUT = ("experts", "spread")  # experts are cut over tensor ranks
NORMS = ("qwen3", "qwen3_moe")
SHARDED = ("sharded", "buckets", "spread")


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


def attention(o, t, p, q, kind):
    """Attention's tensors of the layer with the prefixes P in Hugging Face's names, Q in Megatron's."""
    width = HIDDEN // HEADS
    if kind == "mla":
        for name, of in (("q_a_proj", "linear_q_down_proj"), ("q_a_layernorm", "q_layernorm"), ("q_b_proj", "linear_q_up_proj"),
                         ("kv_a_proj_with_mqa", "linear_kv_down_proj"), ("kv_a_layernorm", "kv_layernorm"), ("kv_b_proj", "linear_kv_up_proj")):
            o[f"{p}self_attn.{name}.weight"] = t[f"{q}self_attention.{of}.weight"]
    else:
        for part in ("weight", "bias")[:1 + (kind in ("qwen2", "shared"))]:
            w = t[f"{q}self_attention.linear_qkv.{part}"]
            w = w.view(KV, HEADS // KV + 2, width, *w.shape[1:])
            for name, rows in (("q", w[:, :-2]), ("k", w[:, -2]), ("v", w[:, -1])):
                o[f"{p}self_attn.{name}_proj.{part}"] = rows.reshape(-1, *w.shape[3:])
        for name in "qk" if kind in NORMS else "":
            o[f"{p}self_attn.{name}_norm.weight"] = t[f"{q}self_attention.{name}_layernorm.weight"]
    o[p + "self_attn.o_proj.weight"] = t[q + "self_attention.linear_proj.weight"]


def feed_forward(o, t, p, q, gate="gate_proj", up="up_proj", down="down_proj"):
    o[f"{p}.{gate}.weight"], o[f"{p}.{up}.weight"] = t[q + ".linear_fc1.weight"].chunk(2)
    o[f"{p}.{down}.weight"] = t[q + ".linear_fc2.weight"]


def apart(t, kind):
    """Hugging Face's names of the tensors T, in which each layer is by itself."""
    o = {"model.embed_tokens.weight": t["embedding.word_embeddings.weight"], "lm_head.weight": t["output_layer.weight"],
         "model.norm.weight": t["decoder.final_layernorm.weight"]}
    for i in range(LAYERS):
        p, q = f"model.layers.{i}.", f"decoder.layers.{i}."
        attention(o, t, p, q, kind)
        for name, of in (("input_layernorm", ("self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight")),
                         ("post_attention_layernorm", ("mlp.linear_fc1.layer_norm_weight", "pre_mlp_layernorm.weight"))):
            o[f"{p}{name}.weight"] = next(t[q + x] for x in of if q + x in t)
        if kind not in EXPERTS or kind == "mla" and not i:
            feed_forward(o, t, p + "mlp", q + "mlp")
            continue
        block = p + ("block_sparse_moe" if kind in MIXTRAL else "mlp")
        o[block + ".gate.weight"] = t[q + "mlp.router.weight"]
        for e in range(NEXPERTS):
            feed_forward(o, t, f"{block}.experts.{e}", f"{q}mlp.experts.experts.{e}",
                         *(("w1", "w3", "w2") if kind in MIXTRAL else ()))
        if kind == "mla":
            o[block + ".gate.e_score_correction_bias"] = t[q + "mlp.router.expert_bias"]
            feed_forward(o, t, block + ".shared_experts", q + "mlp.shared_experts")
        if kind == "shared":
            o[block + ".shared_expert_gate.weight"] = t[q + "mlp.shared_experts.gate_weight"]
            feed_forward(o, t, block + ".shared_expert", q + "mlp.shared_experts")
    return o


def unstack(t):
    """T with each member of a stack of layers, and of experts, by itself."""
    o = {}
    for name, v in t.items():
        if name.startswith("decoder.layers.") and not name.split(".")[2].isdigit():
            for i in range(len(v)):
                o[name.replace("layers.", f"layers.{i}.", 1)] = v[i]
        else:
            o[name] = v
    for name in [n for n in o if ".experts.experts." in n and not n.split(".experts.experts.")[1][0].isdigit()]:
        v = o.pop(name)
        for e in range(len(v)):
            o[name.replace("experts.experts.", f"experts.experts.{e}.")] = v[e]
    return o


def save_truth(out, kind):
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import save_file
    from torch.distributed.checkpoint import FileSystemReader

    reader = FileSystemReader(f"{out}/torch_dist")
    all_of = {k: torch.empty(v.size, dtype=v.properties.dtype) for k, v in reader.read_metadata().state_dict_metadata.items()
              if hasattr(v, "size") and "_extra_state" not in k}
    dcp.load(all_of, storage_reader=reader, no_dist=True)
    files = {"truth": {}, "masters": {}}
    for file, start, end in (
            ("truth", "model.", ""), ("truth", "optimizer.state.exp_avg.model.", ".exp_avg"),
            ("truth", "optimizer.state.exp_avg_sq.model.", ".exp_avg_sq"), ("masters", "optimizer.state.fp32_param.model.", ""),
            ("masters", "optimizer.state.param.model.", "")):
        part = {k.removeprefix(start): v for k, v in all_of.items() if k.startswith(start)}
        if part:
            files[file] |= {k + end: v.contiguous() for k, v in apart(unstack(part), kind).items()}
    for file, tensors in files.items():
        if tensors:
            save_file(tensors, f"{out}/{file}.safetensors")


def spec_of(kind, c):
    """The layers of KIND, of Megatron's own modules."""
    from megatron.core.models.backends import LocalSpecProvider
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_layer_local_spec
    from megatron.core.transformer import multi_latent_attention
    from megatron.core.transformer.dot_product_attention import DotProductAttention

    if kind != "mla":
        return get_gpt_layer_local_spec(normalization="RMSNorm", qk_layernorm=kind in NORMS, num_experts=NEXPERTS if kind in EXPERTS else None)
    multi_latent_attention.HAVE_TE = False
    init = DotProductAttention.__init__  # the local one does not take the widths
    DotProductAttention.__init__ = lambda s, *a, k_channels=None, v_channels=None, **k: init(s, *a, **k)
    spec = get_gpt_decoder_block_spec(c, use_transformer_engine=False, normalization="RMSNorm")
    for layer in spec.layer_specs:  # these have no norms of the latents, which Transformer Engine's do
        layer.submodules.self_attention.submodules.q_layernorm = LocalSpecProvider().layer_norm(rms_norm=True, for_qk=True)
        layer.submodules.self_attention.submodules.kv_layernorm = LocalSpecProvider().layer_norm(rms_norm=True, for_qk=True)
    return spec


def config_of(kind, dtype):
    from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

    c = dict(
        num_layers=LAYERS, hidden_size=HIDDEN, num_attention_heads=HEADS, num_query_groups=KV, ffn_hidden_size=FFN,
        use_cpu_initialization=True, normalization="RMSNorm", add_bias_linear=False, add_qkv_bias=kind in ("qwen2", "shared"),
        qk_layernorm=kind in NORMS, gated_linear_unit=True, activation_func=F.silu, tensor_model_parallel_size=2, params_dtype=dtype,
        bf16=dtype == torch.bfloat16, gradient_accumulation_fusion=False, attention_dropout=0.0, hidden_dropout=0.0,
        bias_dropout_fusion=False, apply_rope_fusion=False)
    if kind in EXPERTS:
        c |= dict(num_moe_experts=NEXPERTS, moe_router_topk=2, moe_ffn_hidden_size=FFN, expert_model_parallel_size=2,
                  expert_tensor_parallel_size=2 if kind in CUT else 1)
    if kind == "shared":
        c |= dict(moe_shared_expert_intermediate_size=12, moe_shared_expert_gate=True)
    if kind == "mla":
        del c["num_query_groups"]
        c |= dict(q_lora_rank=8, kv_lora_rank=8, qk_head_dim=4, qk_pos_emb_head_dim=4, v_head_dim=4, rope_type="rope", qk_layernorm=True,
                  moe_layer_freq=[0, 1], moe_shared_expert_intermediate_size=24, moe_router_enable_expert_bias=True,
                  moe_router_score_function="sigmoid")
    return (MLATransformerConfig if kind == "mla" else TransformerConfig)(**c)


def args_of(kind):
    args = argparse.Namespace(
        num_layers=LAYERS, hidden_size=HIDDEN, ffn_hidden_size=FFN, num_attention_heads=HEADS, kv_channels=HIDDEN // HEADS,
        group_query_attention=True, num_query_groups=KV, max_position_embeddings=32, position_embedding_type="rope", rotary_base=10000,
        rotary_percent=1.0, normalization="RMSNorm", norm_epsilon=1e-5, swiglu=True, add_bias_linear=False, add_qkv_bias=kind == "qwen2",
        qk_layernorm=kind in NORMS, untie_embeddings_and_output_weights=True, num_experts=None, padded_vocab_size=VOCAB,
        tensor_model_parallel_size=2, pipeline_model_parallel_size=1, expert_model_parallel_size=1)
    if kind in EXPERTS:
        args.num_experts, args.expert_model_parallel_size, args.moe_router_topk, args.moe_ffn_hidden_size = NEXPERTS, 2, 2, FFN
        args.expert_tensor_parallel_size = 2 if kind in CUT else 1
        args.multi_latent_attention = kind == "mla"
        args.moe_shared_expert_intermediate_size = {"shared": 12, "mla": 24}.get(kind)
    return args


def make(rank, out, kind, ranks):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks))
    without_gpu()
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    split = dict(expert_model_parallel_size=2, expert_tensor_parallel_size=2 if kind in CUT else 1) if kind in EXPERTS else {}
    parallel_state.initialize_model_parallel(2, 1, **split)
    trained = kind in ("adam", *SHARDED, "experts")
    dtype = torch.bfloat16 if trained else torch.float32
    c = config_of(kind, dtype)
    torch.manual_seed(5)
    m = GPTModel(config=c, transformer_layer_spec=spec_of(kind, c), vocab_size=VOCAB, max_sequence_length=32,
                 share_embeddings_and_output_weights=False, position_embedding_type="rope")
    for name, p in [*m.named_parameters(), *((n, b) for n, b in m.named_buffers() if n.endswith("expert_bias"))]:
        if p.dim() < 2:  # norms and biases begin alike; the same on both ranks, but for the bias of q, k and v
            seed = len(name) + (rank if "linear_qkv.bias" in name else 0)
            p.data += torch.randn(p.shape, generator=torch.Generator().manual_seed(seed)) * 0.1
    m = m.to(dtype)
    sharded = kind in SHARDED
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
    tp, ep = parallel_state.get_tensor_model_parallel_rank(), parallel_state.get_expert_model_parallel_rank()
    directory = f"{out}/legacy/mp_rank_{tp:02d}" + (f"_{ep:03d}" if kind in EXPERTS else "")
    if sharded:
        os.makedirs(directory, exist_ok=True)
        optimizer.save_parameter_state(f"{directory}/distrib_optim.pt")
    if rank < 2 or not sharded or kind in EXPERTS:
        os.makedirs(directory, exist_ok=True)
        torch.save({"args": args_of(kind), "checkpoint_version": 3.0, "iteration": 1, "model": inner.state_dict_for_save_checkpoint(),
                    **legacy}, f"{directory}/model_optim_rng.pt")
    dist.barrier()
    if not rank and kind != "buckets":
        save_truth(out, kind)
    dist.destroy_process_group()


KINDS = ("qwen2", "qwen3", "adam", "sharded", "buckets", *EXPERTS)
KEPT = ("qwen2/legacy", "qwen2/truth.safetensors", "qwen3/torch_dist", "qwen3/truth.safetensors", "adam/legacy",
        "adam/truth.safetensors", "adam/masters.safetensors", "sharded/legacy", "sharded/torch_dist", "sharded/truth.safetensors", "sharded/masters.safetensors",
        "buckets/torch_dist", "experts/legacy", "experts/truth.safetensors", "spread/legacy", "spread/truth.safetensors",
        "crossed/legacy", "crossed/truth.safetensors", "shared/torch_dist", "shared/truth.safetensors",
        "qwen3_moe/legacy", "qwen3_moe/truth.safetensors", "mla/legacy", "mla/torch_dist", "mla/truth.safetensors")


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
        path, world = os.path.join(sys.argv[1], name), 4 if name in (*SHARDED, "experts") else 2
        shutil.rmtree(path, ignore_errors=True)
        torch.multiprocessing.spawn(make, (path, name, world), nprocs=world)
    pack(sys.argv[1].rstrip("/"))

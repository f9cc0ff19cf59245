#!/usr/bin/env python3
"""Load what `tp-shard merge --export megatron-dist` wrote with megatron-core, and compare it with the original.

usage: check-megatron.py DIRECTORY MODEL.safetensors [MOMENTS.safetensors]

Ranks of tp 1, tp 2 and tp 2 x pp 2 (gloo, no GPU) each make a GPTModel of the arguments in common.pt and load their
parts with dist_checkpointing.load.  With MOMENTS (NAME.exp_avg, NAME.exp_avg_sq and NAME.master) also the distributed
optimizer, fully reshardable.
Needs torch, megatron-core 0.16.1 and safetensors.
"""
import os
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F

C = torch.cuda
C.synchronize = lambda *a, **k: None
C.current_device = lambda: "cpu"
C.empty_cache = lambda: None
C.device_count = lambda: 1


def on_cpu(make):
    return lambda *a, **k: make(*a, **{x: "cpu" if x == "device" and str(y).startswith("cuda") else y
                                       for x, y in k.items()})


torch.tensor, torch.zeros, torch.empty, torch.ones = map(on_cpu, (torch.tensor, torch.zeros, torch.empty, torch.ones))
REAL_TYPE = torch.Tensor.type
torch.Tensor.type = lambda s, *a, **k: (REAL_TYPE(s, *a, **k) if a or k
                                        else REAL_TYPE(s).replace("torch.", "torch.cuda."))
torch.Tensor.cuda = lambda s, *a, **k: s


def build(args, tp, pp, dtype):
    from megatron.core import parallel_state as ps
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig
    experts = getattr(args, "num_experts", None)
    c = TransformerConfig(
        num_layers=args.num_layers, hidden_size=args.hidden_size, num_attention_heads=args.num_attention_heads,
        num_query_groups=args.num_query_groups, kv_channels=args.kv_channels, ffn_hidden_size=args.ffn_hidden_size,
        use_cpu_initialization=True, normalization=args.normalization, add_bias_linear=args.add_bias_linear,
        add_qkv_bias=args.add_qkv_bias, qk_layernorm=args.qk_layernorm, gated_linear_unit=args.swiglu,
        activation_func=F.silu, tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp, pipeline_dtype=dtype,
        params_dtype=dtype, bf16=dtype == torch.bfloat16, gradient_accumulation_fusion=False, num_moe_experts=experts,
        moe_router_topk=getattr(args, "moe_router_topk", 2), bias_dropout_fusion=False, apply_rope_fusion=False)
    spec = get_gpt_layer_local_spec(normalization="RMSNorm", num_experts=experts, moe_grouped_gemm=False,
                                    qk_layernorm=args.qk_layernorm)
    rows = (args.padded_vocab_size + 127) // 128 * 128
    m = GPTModel(config=c, transformer_layer_spec=spec, vocab_size=rows, max_sequence_length=64,
                 pre_process=ps.is_pipeline_first_stage(), post_process=ps.is_pipeline_last_stage(),
                 share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
                 position_embedding_type="rope")
    return c, m.to(dtype)


def expected(args, want, suffix=""):
    """The tensors of megatron-core at tp 1, of Hugging Face's."""
    heads, groups, width = args.num_attention_heads, args.num_query_groups, args.kv_channels
    out = {"embedding.word_embeddings.weight": want["model.embed_tokens.weight" + suffix],
           "decoder.final_layernorm.weight": want["model.norm.weight" + suffix]}
    if "lm_head.weight" + suffix in want:
        out["output_layer.weight"] = want["lm_head.weight" + suffix]

    def qkv(p, end):
        parts = [want[f"{p}self_attn.{x}_proj.{end}{suffix}"] for x in "qkv"]
        rest = parts[0].shape[1:]
        q = parts[0].reshape(groups, heads // groups * width, *rest)
        k, v = (x.reshape(groups, width, *rest) for x in parts[1:])
        return torch.cat([q, k, v], 1).reshape(-1, *rest)

    for i in range(args.num_layers):
        p, q = f"model.layers.{i}.", f"decoder.layers.{i}."
        out[q + "self_attention.linear_qkv.weight"] = qkv(p, "weight")
        if args.add_qkv_bias:
            out[q + "self_attention.linear_qkv.bias"] = qkv(p, "bias")
        out[q + "self_attention.linear_proj.weight"] = want[p + "self_attn.o_proj.weight" + suffix]
        out[q + "input_layernorm.weight"] = want[p + "input_layernorm.weight" + suffix]
        out[q + "pre_mlp_layernorm.weight"] = want[p + "post_attention_layernorm.weight" + suffix]
        if args.qk_layernorm:
            for x in "qk":
                out[f"{q}self_attention.{x}_layernorm.weight"] = want[f"{p}self_attn.{x}_norm.weight{suffix}"]
        if getattr(args, "num_experts", None):
            moe = p + "block_sparse_moe."
            out[q + "mlp.router.weight"] = want[moe + "gate.weight" + suffix]
            for e in range(args.num_experts):
                w = [want[f"{moe}experts.{e}.w{k}.weight{suffix}"] for k in (1, 2, 3)]
                out[f"{q}mlp.experts.local_experts.{e}.linear_fc1.weight"] = torch.cat([w[0], w[2]])
                out[f"{q}mlp.experts.local_experts.{e}.linear_fc2.weight"] = w[1]
            continue
        out[q + "mlp.linear_fc1.weight"] = torch.cat([want[f"{p}mlp.{x}_proj.weight{suffix}"] for x in ("gate", "up")])
        out[q + "mlp.linear_fc2.weight"] = want[p + "mlp.down_proj.weight" + suffix]
    return out


def part(name, whole, shape, tp, rank):
    """Rank RANK's part of WHOLE, which has SHAPE there."""
    if "linear_fc1" in name:
        return torch.cat([h.chunk(tp)[rank] for h in whole.chunk(2)])
    for axis in range(whole.dim()):
        if "word_embeddings" in name or "output_layer" in name:  # padded rows
            rows = whole[rank * shape[0]:(rank + 1) * shape[0]]
            return rows
        if whole.shape[axis] != shape[axis]:
            return whole.chunk(tp, axis)[rank]
    return whole


def compare(where, got, name, want, tp, rank, stack):
    if stack:  # a stage numbers its layers from 0
        name = name.replace("layers.", "layers.", 1)
    want = part(name, want, got.shape, tp, rank)
    got = got[:want.shape[0]] if got.dim() else got
    assert got.shape == want.shape, (where, name, got.shape, want.shape)
    assert torch.equal(got.to(want.dtype).contiguous().flatten().view(torch.uint8),
                       want.contiguous().flatten().view(torch.uint8)), (where, name)


def rank_main(rank, ranks, directory, original, moments, tp, pp, rendezvous):
    from megatron.core import dist_checkpointing as dc
    from megatron.core import parallel_state as ps
    from safetensors.torch import load_file
    dist.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank, world_size=ranks)
    ps.initialize_model_parallel(tp, pp)
    args = torch.load(os.path.join(directory, "common.pt"), weights_only=False)["args"]
    want = load_file(original)
    c, m = build(args, tp, pp, want["model.norm.weight"].dtype)
    state = dc.load(m.sharded_state_dict(), directory)
    m.load_state_dict({k: v for k, v in state.items() if torch.is_tensor(v)}, strict=False)
    first = args.num_layers // pp * ps.get_pipeline_model_parallel_rank()
    truth = expected(args, want)

    def whole_name(name):
        if not name.startswith("decoder.layers."):
            return name
        number, rest = name[len("decoder.layers."):].split(".", 1)
        return f"decoder.layers.{int(number) + first}.{rest}"
    count = 0
    for name, p in m.named_parameters():
        key = "embedding.word_embeddings.weight" if name == "output_layer.weight" and name not in truth else \
            whole_name(name)
        compare(f"tp {tp}, pp {pp}, rank {rank}", p.data, name, truth[key], tp,
                ps.get_tensor_model_parallel_rank(), False)
        count += 1
    if moments:
        count += check_optimizer(dc, ps, c, m, directory, load_file(moments), args, tp, whole_name)
    if rank == 0:
        print(f"tp {tp}, pp {pp}: {count} tensors of rank 0 equal")
    dist.barrier()
    ps.destroy_model_parallel()
    dist.destroy_process_group()


def check_optimizer(dc, ps, c, m, directory, want, args, tp, whole_name):
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    d = DistributedDataParallel(c, DistributedDataParallelConfig(use_distributed_optimizer=True,
                                                                 overlap_grad_reduce=False), m)
    o = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=3e-4, use_distributed_optimizer=True,
                                               params_dtype=c.params_dtype, bf16=c.bf16, clip_grad=0.0), [d])
    common = dc.load_common_state_dict(directory)
    meta = common["content_metadata"]
    model = d.module.sharded_state_dict()
    for p in d.module.parameters():  # the state has a step only after one
        p.main_grad.data.zero_()
    o.step()
    state = {**model, "optimizer": o.sharded_state_dict(model, is_loading=True, metadata=meta)}
    state = dc.load(state, directory)
    for one in getattr(o, "chained_optimizers", [o]):  # torch's AdamW, unlike Apex's, has steps of its own
        put = one._set_main_param_and_optimizer_states

        def without(param, tensors, put=put, one=one):
            for s in one.optimizer.state.values():
                s.pop("step", None)
            put(param, tensors)
        one._set_main_param_and_optimizer_states = without
    o.load_state_dict(state["optimizer"])
    count = 0
    inner = o.chained_optimizers[0] if hasattr(o, "chained_optimizers") else o
    groups = inner.optimizer.param_groups
    assert all(g["lr"] == common["optimizer"]["optimizer"]["param_groups"][0]["lr"] for g in groups), groups
    roles = {"param": ".master", "exp_avg": ".exp_avg", "exp_avg_sq": ".exp_avg_sq"}
    truth = {role: expected(args, want, suffix) for role, suffix in roles.items()}
    for name, p in d.module.named_parameters():
        got = inner._get_main_param_and_optimizer_states(p)
        r = inner._get_model_param_range_map(p)["param"]
        for role in roles:
            whole = part(name, truth[role][whole_name(name)], p.shape, tp, ps.get_tensor_model_parallel_rank())
            if whole.shape != p.shape:
                whole = torch.cat([whole, torch.zeros(p.shape[0] - whole.shape[0], *p.shape[1:])])
            assert torch.equal(got[role].flatten(), whole.flatten()[r.start:r.end]), (name, role)
            count += 1
    steps = {float(g["step"]) for g in groups if "step" in g}
    assert steps <= {float(common["iteration"])}, steps
    return count


def main(directory, original, moments=None):
    with tempfile.TemporaryDirectory() as scratch:
        for tp, pp in ((1, 1), (2, 1), (2, 2)):
            mp.spawn(rank_main, (tp * pp, directory, original, moments, tp, pp,
                                 os.path.join(scratch, f"meet{tp}{pp}")), nprocs=tp * pp)
    for name in (".metadata", "__0_0.distcp", "common.pt"):
        print(subprocess.run(["cksum", os.path.join(directory, name)], capture_output=True, text=True).stdout, end="")


if __name__ == "__main__":
    main(*sys.argv[1:])

#!/usr/bin/env python3
"""make-foreign.py MEGATRON OUT READERS - checkpoints of Megatron-LM and Meta, as OUT/foreign.tar.gz

MEGATRON holds what megatron-core 0.16.1 wrote: megatron-legacy, megatron-torch_dist (a GPT of 4 layers, vocabulary 128, width
32, FFN 56, 4 heads, 2 KV groups, on tp 2 x pp 2), extra/mcore-singleton and extra/mcore-moe, and megatron.truth, what its own
loader gives on one rank, under Hugging Face's names.  Meta's form of the same weights is made here, on two ranks: what the
conversion of transformers 4.46 (models/llama/convert_llama_weights_to_hf.py: permute) undoes.

The arguments of the runs are written here: of those that megatron/training/arguments.py of Megatron-LM has, what describes the
model, and one of each kind of value.

READERS has read_dcp.py.  Needs torch and safetensors."""
import argparse
import enum
import json
import os
import shutil
import sys
import tarfile
import types
import zlib

import torch
from safetensors.torch import load_file

source, out = sys.argv[1:3]
work = os.path.join(out, "foreign")
shutil.rmtree(work, ignore_errors=True)
os.makedirs(work)
for name in ("megatron-legacy", "megatron-torch_dist", "extra/mcore-singleton", "extra/mcore-moe"):
    shutil.copytree(os.path.join(source, name), os.path.join(work, os.path.basename(name)))
truth = os.path.join(source, "megatron.truth")
shutil.copy(os.path.join(truth, "config.json"), os.path.join(work, "llama.json"))
hf, c = load_file(os.path.join(truth, "model.safetensors")), json.load(open(os.path.join(truth, "config.json")))
heads, kv, ranks = c["num_attention_heads"], c["num_key_value_heads"], 2

for module in ("megatron", "megatron.core", "megatron.core.transformer", "megatron.core.transformer.enums"):
    enums = sys.modules[module] = types.ModuleType(module)
enums.AttnBackend = enum.Enum("AttnBackend", {"flash": 1, "auto": 5}, module=enums.__name__)


def arguments(c, tp, pp):
    """The arguments of a run of the model of the config C, as Megatron-LM pickles them."""
    moe = c["model_type"] == "mixtral"
    heads = c["num_attention_heads"]
    return argparse.Namespace(
        num_layers=c["num_hidden_layers"], encoder_num_layers=c["num_hidden_layers"], hidden_size=c["hidden_size"],
        ffn_hidden_size=c["intermediate_size"], num_attention_heads=heads, attention_backend=enums.AttnBackend.auto,
        kv_channels=c["hidden_size"] // heads, group_query_attention=True, num_query_groups=c["num_key_value_heads"],
        max_position_embeddings=c.get("max_position_embeddings", 64), position_embedding_type="rope",
        use_rotary_position_embeddings=False, rotary_base=int(c.get("rope_theta", 10000)), rotary_percent=1.0,
        rotary_interleaved=False, rotary_seq_len_interpolation_factor=None, use_rope_scaling=False, rope_scaling_factor=8.0,
        add_position_embedding=True, make_vocab_size_divisible_by=128, normalization="RMSNorm", norm_epsilon=c["rms_norm_eps"],
        apply_layernorm_1p=False, apply_residual_connection_post_layernorm=False, openai_gelu=False, squared_relu=False,
        swiglu=True, attention_dropout=0.0, hidden_dropout=0.0, add_bias_linear=False, add_qkv_bias=False,
        untie_embeddings_and_output_weights=not c.get("tie_word_embeddings", False), qk_layernorm=False,
        multi_latent_attention=False, hybrid_override_pattern=None, mtp_num_layers=None, params_dtype=torch.float32, bf16=False,
        num_experts=c["num_local_experts"] if moe else None, moe_layer_freq=1, moe_ffn_hidden_size=None,
        moe_shared_expert_intermediate_size=None, moe_router_topk=c["num_experts_per_tok"] if moe else 2,
        moe_router_pre_softmax=False, moe_router_score_function="softmax", moe_router_topk_scaling_factor=None,
        moe_router_enable_expert_bias=False, tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp,
        expert_model_parallel_size=1, padded_vocab_size=c["vocab_size"], betas=(0.9, 0.95), data_path=["1.0", "text_document"])


def add_arguments(path, args):
    """Puts ARGS into what is pickled in PATH."""
    state = torch.load(path, weights_only=False)
    os.chmod(path, 0o644)
    torch.save({**state, "args": args, "checkpoint_version": 3.0, "iteration": 3}, path)


for rank in ("00_000", "00_001", "01_000", "01_001"):
    add_arguments(os.path.join(work, "megatron-legacy/iter_0000003/mp_rank_" + rank, "model_optim_rng.pt"), arguments(c, 2, 2))
add_arguments(os.path.join(work, "megatron-torch_dist/common.pt"), arguments(c, 2, 2))


def interleave(w, n):
    """Rows of each head from halves to pairs: the inverse of transformers' permute."""
    return w.view(n, 2, w.shape[0] // n // 2, w.shape[1]).transpose(1, 2).reshape(w.shape)


NAMES = {"model.embed_tokens": ("tok_embeddings", 1), "model.norm": ("norm", None), "lm_head": ("output", 0), "input_layernorm":
         ("attention_norm", None), "post_attention_layernorm": ("ffn_norm", None), "self_attn.q_proj": ("attention.wq", 0),
         "self_attn.k_proj": ("attention.wk", 0), "self_attn.v_proj": ("attention.wv", 0), "self_attn.o_proj": ("attention.wo", 1),
         "mlp.gate_proj": ("feed_forward.w1", 0), "mlp.down_proj": ("feed_forward.w2", 1), "mlp.up_proj": ("feed_forward.w3", 0)}
for llama, axis in (("meta", 1), ("meta3", 0)):  # Llama 1 and 2 cut the embedding by columns, Llama 3 by rows
    parts = [{} for _ in range(ranks)]
    for name, w in hf.items():
        layer = name.removeprefix("model.").removesuffix(".weight")
        head, _, rest = layer.partition("layers.")
        number, _, rest = rest.partition(".") if not head and rest else ("", "", "")
        to, cut = NAMES[rest if rest else name.removesuffix(".weight")]
        cut = axis if to == "tok_embeddings" else cut
        to = f"layers.{number}.{to}" if rest else to
        w = interleave(w, heads) if to.endswith("wq") else interleave(w, kv) if to.endswith("wk") else w
        for r in range(ranks):
            parts[r][to + ".weight"] = w.chunk(ranks, cut)[r].contiguous().clone() if cut is not None else w.clone()
    for part in parts:
        part["rope.freqs"] = 1.0 / (10000.0 ** (torch.arange(0, 8, 2).float() / 8))
    os.makedirs(os.path.join(work, llama))
    for r in range(ranks):
        torch.save(parts[r], os.path.join(work, llama, f"consolidated.{r:02d}.pth"))
    params = {"dim": 32, "n_layers": 4, "n_heads": heads, "n_kv_heads": kv, "multiple_of": 8, "ffn_dim_multiplier": 0.65,
              "norm_eps": 1e-05, "vocab_size": -1}
    json.dump(params, open(os.path.join(work, llama, "params.json"), "w"))
small = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 24, "vocab_size": 64, "rms_norm_eps": 1e-05}
json.dump(small, open(os.path.join(work, "tiny.json"), "w"))
moe = {**small, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
json.dump(moe, open(os.path.join(work, "mixtral.json"), "w"))
add_arguments(os.path.join(work, "mcore-moe/common.pt"), arguments(moe, 1, 1))
sys.path.insert(0, sys.argv[3])  # read_dcp.py, which reads checkpoints of torch.distributed.checkpoint without torch
import read_dcp


def unfused(directory, config, experts):
    """The same tensors under Hugging Face's names, by indexing."""
    t = {k[6:]: torch.from_numpy(v.copy()) for k, v in
         read_dcp.read(os.path.join(work, directory), only=lambda k: "_extra_state" not in k)[0].items()}
    kv, group, width = config["num_key_value_heads"], 2, 4

    def layer(i, name):
        return t[f"decoder.layers.{i}.{name}"] if f"decoder.layers.{i}.{name}" in t else t[f"decoder.layers.{name}"][i]
    o = {"model.embed_tokens.weight": t["embedding.word_embeddings.weight"], "lm_head.weight": t["output_layer.weight"],
         "model.norm.weight": t["decoder.final_layernorm.weight"]}
    for i in range(2):
        p = f"model.layers.{i}."
        q = layer(i, "self_attention.linear_qkv.weight").view(kv, group + 2, width, -1)
        for name, rows in (("q", q[:, :group]), ("k", q[:, group]), ("v", q[:, group + 1])):
            o[f"{p}self_attn.{name}_proj.weight"] = rows.reshape(-1, q.shape[-1])
        o[p + "self_attn.o_proj.weight"] = layer(i, "self_attention.linear_proj.weight")
        o[p + "input_layernorm.weight"] = layer(i, "self_attention.linear_qkv.layer_norm_weight")
        o[p + "post_attention_layernorm.weight"] = layer(i, "mlp.linear_fc1.layer_norm_weight")
        if not experts:
            o[p + "mlp.gate_proj.weight"], o[p + "mlp.up_proj.weight"] = (layer(i, f"mlp.linear_fc1.weight_{x}") for x in "wv")
            o[p + "mlp.down_proj.weight"] = layer(i, "mlp.linear_fc2.weight")
            continue
        o[p + "block_sparse_moe.gate.weight"] = layer(i, "mlp.router.weight")
        for e in range(4):
            x = f"{p}block_sparse_moe.experts.{e}."
            o[x + "w1.weight"], o[x + "w3.weight"] = layer(i, "mlp.experts.experts.linear_fc1.weight")[e].chunk(2)
            o[x + "w2.weight"] = layer(i, "mlp.experts.experts.linear_fc2.weight")[e]
    return o


def sums(tensors, name):
    """CRC-32, bytes and name of each tensor, as `tp-shard sum | cut -f 1,2,4 | sort -k 3` prints them."""
    lines = []
    for key, w in tensors.items():
        data = w.contiguous().numpy().tobytes()
        lines.append((f'"{key}"', f'{zlib.crc32(data):08x}\t{len(data)}\t"{key}"\n'))
    with open(os.path.join(work, name + ".sums"), "w") as f:
        f.writelines(line for _, line in sorted(lines))


sums(hf, "llama")
sums(unfused("mcore-singleton", small, False), "tiny")
sums(unfused("mcore-moe", moe, True), "mixtral")
with tarfile.open(os.path.join(out, "foreign.tar.gz"), "w:gz", compresslevel=9) as tar:
    tar.add(work, "foreign")

#!/usr/bin/env python3
"""make-packed.py - write tests/data/packed/*: tiny models whose weights are quantized, and their logits

    make-packed.py [-o DIR] [NAME...]

Weights are drawn, quantized and packed here as the methods' tools store them, unpacked again by plain
numpy (float64, then rounded to the config's type), and put into `transformers`, which computes in
float64 with eager attention what expected.safetensors has: input_ids [T], logits [T, vocab].  For
the FP8 blocks `transformers` also unpacks the files itself (dequantize=True); both must agree.
nf4 and fp4 need bitsandbytes, ct-nvfp4, ct-mxfp4 and ct-w4-rows compressed-tensors, which quantize and unpack themselves.

Draws come from numpy's RandomState, seeded by the name: a second run writes the same bytes.
"""
import argparse
import json
import os
import shutil
import tempfile
import zlib

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)

H, HEADS, KV, D, F, V, L = 32, 4, 2, 16, 64, 40, 2
WORD_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # AutoAWQ: which column is in which four bits of a word


def words(x, bits, axis, order=None):
    """Neighbours along AXIS in words of 32 bits, the first in the lowest."""
    n = 32 // bits
    x = np.moveaxis(x.astype(np.uint32), axis, -1)
    x = x.reshape(*x.shape[:-1], -1, n)
    out = np.zeros(x.shape[:-1], np.uint32)
    for i in range(n):
        out |= x[..., order[i] if order else i] << np.uint32(i * bits)
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(out, -1, axis)).view(np.int32))


def groups(w, bits, size, zeros_from, half):
    """Of w [out, in]: values, zeros [out, groups] and scales [out, groups]."""
    size = w.shape[1] if size < 0 else size
    g = w.reshape(w.shape[0], -1, size)
    low, high = g.min(2), g.max(2)
    scale = torch.from_numpy((high - low) / (2 ** bits - 1)).to(half)
    s = scale.to(torch.float64).numpy()
    zero = np.clip(np.rint(-low / s), zeros_from, 2 ** bits - 1)
    q = np.clip(np.rint(g / s[..., None]) + zero[..., None], 0, 2 ** bits - 1)
    return q, zero, scale, ((q - zero[..., None]) * s[..., None]).reshape(w.shape)


def gptq(bits, size, less_one=True, act=False):
    def make(w, rng):
        order = rng.permutation(w.shape[1]) if act else np.arange(w.shape[1])
        q, zero, scale, plain = groups(w[:, order], bits, size, 0, torch.float16)
        back = np.argsort(order)
        count = w.shape[1] if size < 0 else size
        return {"qweight": words(q.reshape(w.shape)[:, back].T, bits, 0),
                "qzeros": words(((zero - less_one) % 2 ** bits).T, bits, 1),
                "scales": scale.T.contiguous(),
                "g_idx": torch.from_numpy((back // count).astype(np.int32))}, plain[:, back]
    return make


def awq(w, rng):
    q, zero, scale, plain = groups(w, 4, 16, 0, torch.float16)
    return {"qweight": words(q.reshape(w.shape).T, 4, 1, WORD_ORDER), "qzeros": words(zero.T, 4, 1, WORD_ORDER),
            "scales": scale.T.contiguous()}, plain


def fp8(block):
    def make(w, rng):
        rows, cols = -(-w.shape[0] // block), -(-w.shape[1] // block)
        scale, plain = np.zeros((rows, cols), np.float32), np.zeros(w.shape)
        values = torch.zeros(w.shape, dtype=torch.float8_e4m3fn)
        for r in range(rows):
            for c in range(cols):
                at = np.s_[r * block:(r + 1) * block, c * block:(c + 1) * block]
                scale[r, c] = np.abs(w[at]).max() / 448
                values[at] = torch.from_numpy(w[at] / scale[r, c]).to(torch.float32).to(torch.float8_e4m3fn)
                plain[at] = values[at].to(torch.float64).numpy() * np.float64(scale[r, c])
        return {"weight": values, "weight_scale_inv": torch.from_numpy(scale)}, plain
    return make


def scaled(dtype, most, kind, half=torch.bfloat16):
    """compressed-tensors: a scale for each row, or one for all."""
    def make(w, rng):
        top = np.abs(w).max(axis=1, keepdims=True) if kind == "channel" else np.abs(w).max().reshape(1)
        scale = torch.from_numpy(top / most).to(half)
        s = scale.to(torch.float64).numpy()
        x = torch.from_numpy(np.clip(w / s, -most, most))
        values = x.round().to(dtype) if dtype == torch.int8 else x.to(torch.float32).to(dtype)
        return {"weight": values, "weight_scale": scale}, values.to(torch.float64).numpy() * s
    return make


def ct_words(bits, size, zeros):
    def make(w, rng):
        middle = 2 ** (bits - 1)
        if zeros:
            q, zero, scale, plain = groups(w, bits, size, 0, torch.bfloat16)
        else:
            g = w.reshape(w.shape[0], -1, size)
            scale = torch.from_numpy(np.abs(g).max(2) / (middle - 0.5)).to(torch.bfloat16)
            s = scale.to(torch.float64).numpy()[..., None]
            q = np.clip(np.rint(g / s), -middle, middle - 1) + middle
            plain = ((q - middle) * s).reshape(w.shape)
        out = {"weight_packed": words(q.reshape(w.shape), bits, 1), "weight_scale": scale,
               "weight_shape": torch.tensor(w.shape, dtype=torch.int64)}
        if zeros:
            out["weight_zero_point"] = words(zero, bits, 0)
        return out, plain
    return make


def bnb(w, rng):
    top = np.abs(w).max(axis=1).astype(np.float32)
    values = np.rint(w * (127 / top[:, None].astype(np.float64)))
    return {"weight": torch.from_numpy(values.astype(np.int8)), "SCB": torch.from_numpy(top),
            "weight_format": torch.tensor(0, dtype=torch.uint8)}, values * (top[:, None].astype(np.float64) / 127)


def four(kind, dtype, nested):
    """bitsandbytes in 4 bits, by that library itself, which also unpacks it."""
    def make(w, rng):
        from bitsandbytes.functional import dequantize_4bit, quantize_4bit
        x = torch.from_numpy(w).to(dtype)
        codes, state = quantize_4bit(x, quant_type=kind, compress_statistics=nested)
        parts = {f"weight.{key}": t for key, t in state.as_dict(packed=True).items()}
        return {"weight": codes, **parts}, dequantize_4bit(codes, state).to(torch.float64).numpy()
    return make


def compressed(form, **weights):
    """The same by the library compressed_tensors itself, which also unpacks it."""
    def make(w, rng):
        from compressed_tensors.compressors import BaseCompressor
        from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
        from compressed_tensors.quantization.utils.helpers import calculate_qparams, generate_gparam
        args = QuantizationArgs(**weights)
        scheme = QuantizationScheme(targets=["Linear"], weights=args)
        x = torch.from_numpy(w).to(torch.float32)
        per = x.reshape(x.shape[0], -1, args.group_size or x.shape[1])
        one = None
        if args.strategy == "tensor_group":
            one = generate_gparam(x.min(), x.max()).to(torch.float32).reshape(1)
        scale, zero = calculate_qparams(per.amin(2), per.amax(2), args, one)
        state = {"weight": x, "weight_scale": scale, "weight_zero_point": zero}
        if one is not None:
            state["weight_global_scale"] = one
        compressor = BaseCompressor.get_value_from_registry(form)
        packed = compressor.compress(state, scheme)
        plain = compressor.decompress(dict(packed), scheme)["weight"]
        return packed, plain.to(torch.float64).numpy()
    return make


def ct(form, **weights):
    return {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"],
            "quantization_status": "compressed",
            "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": None, "weights": weights}}}


LLAMA, DEEPSEEK = "LlamaForCausalLM", "DeepseekV3ForCausalLM"
F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
NVFP4 = dict(num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True)
MXFP4 = dict(num_bits=4, type="float", strategy="group", group_size=32, symmetric=True)
ROWS = dict(num_bits=4, type="int", strategy="channel", symmetric=False)
KINDS = {
    "gptq": (LLAMA, F16, gptq(4, 16), {
        "quant_method": "gptq", "bits": 4, "group_size": 16, "desc_act": False, "sym": False, "damp_percent": 0.1}),
    "gptq-v2-act": (LLAMA, F16, gptq(8, 16, less_one=False, act=True), {
        "quant_method": "gptq", "bits": 8, "group_size": 16, "desc_act": True, "sym": False,
        "checkpoint_format": "gptq_v2"}),
    "gptq-whole": (LLAMA, F16, gptq(2, -1), {
        "quant_method": "gptq", "bits": 2, "group_size": -1, "desc_act": False, "checkpoint_format": "gptq"}),
    "awq": (LLAMA, F16, awq, {
        "quant_method": "awq", "bits": 4, "group_size": 16, "zero_point": True, "version": "gemm",
        "modules_to_not_convert": None}),
    "fp8": (LLAMA, BF16, fp8(16), {
        "quant_method": "fp8", "weight_block_size": [16, 16], "activation_scheme": "dynamic", "fmt": "e4m3"}),
    "fp8-latent": (DEEPSEEK, BF16, fp8(8), {
        "quant_method": "fp8", "weight_block_size": [8, 8], "activation_scheme": "dynamic", "fmt": "e4m3"}),
    "int8": (LLAMA, F16, bnb, {
        "quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False, "llm_int8_threshold": 6.0,
        "llm_int8_skip_modules": ["lm_head"]}),
    "nf4": (LLAMA, BF16, four("nf4", BF16, True), {
        "quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_compute_dtype": "bfloat16", "bnb_4bit_use_double_quant": True, "llm_int8_skip_modules": ["lm_head"]}),
    "fp4": (LLAMA, F16, four("fp4", F16, False), {
        "quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "fp4",
        "bnb_4bit_compute_dtype": "float16", "llm_int8_skip_modules": ["lm_head"]}),
    "ct-fp8": (LLAMA, BF16, scaled(torch.float8_e4m3fn, 448, "channel"),
               ct("float-quantized", num_bits=8, type="float", strategy="channel", symmetric=True)),
    "ct-fp8-one": (LLAMA, BF16, scaled(torch.float8_e4m3fn, 448, "tensor"),
                   ct("float-quantized", num_bits=8, type="float", strategy="tensor", symmetric=True)),
    "ct-int8": (LLAMA, BF16, scaled(torch.int8, 127, "channel"),
                ct("int-quantized", num_bits=8, type="int", strategy="channel", symmetric=True)),
    "ct-w4a16": (LLAMA, F32, ct_words(4, 16, True),
                 ct("pack-quantized", num_bits=4, type="int", strategy="group", group_size=16, symmetric=False)),
    "ct-nvfp4": (LLAMA, BF16, compressed("nvfp4-pack-quantized", **NVFP4), ct("nvfp4-pack-quantized", **NVFP4)),
    "ct-mxfp4": (LLAMA, BF16, compressed("mxfp4-pack-quantized", **MXFP4), ct("mxfp4-pack-quantized", **MXFP4)),
    "ct-w4-rows": (LLAMA, BF16, compressed("pack-quantized", **ROWS), ct("pack-quantized", **ROWS)),
    "ct-w8a16": (LLAMA, BF16, ct_words(8, 16, False),
                 ct("pack-quantized", num_bits=8, type="int", strategy="group", group_size=16, symmetric=True)),
}


def shape_of(model):
    base = dict(hidden_size=H, num_hidden_layers=L, vocab_size=V, max_position_embeddings=64,
                tie_word_embeddings=False, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2)
    if model == LLAMA:
        return transformers.LlamaConfig(**base, num_attention_heads=HEADS, num_key_value_heads=KV, head_dim=D,
                                        intermediate_size=F)
    return transformers.DeepseekV3Config(
        **base, num_attention_heads=8, num_key_value_heads=8, q_lora_rank=16, kv_lora_rank=16, qk_nope_head_dim=8,
        qk_rope_head_dim=4, v_head_dim=8, intermediate_size=32, moe_intermediate_size=16, n_routed_experts=2,
        n_shared_experts=1, n_group=1, topk_group=1, num_experts_per_tok=1, first_k_dense_replace=1)


def linears(model):
    """(name, out, in) of what is quantized, and the names and sizes of norms."""
    for layer in range(L):
        p = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield p + norm, H, None
        if model == LLAMA:
            for name, out, inp in (("self_attn.q_proj", HEADS * D, H), ("self_attn.k_proj", KV * D, H),
                                   ("self_attn.v_proj", KV * D, H), ("self_attn.o_proj", H, HEADS * D),
                                   ("mlp.gate_proj", F, H), ("mlp.up_proj", F, H), ("mlp.down_proj", H, F)):
                yield p + name, out, inp
            continue
        yield p + "self_attn.q_a_layernorm", 16, None
        yield p + "self_attn.kv_a_layernorm", 16, None
        for name, out, inp in (("q_a_proj", 16, H), ("q_b_proj", 96, 16), ("kv_a_proj_with_mqa", 20, H),
                               ("kv_b_proj", 128, 16), ("o_proj", H, 64)):
            yield p + "self_attn." + name, out, inp
        parts = ("experts.0.", "experts.1.", "shared_experts.") if layer else ("",)
        for part in parts:
            size = 16 if layer else 32
            for name, out, inp in (("gate_proj", size, H), ("up_proj", size, H), ("down_proj", H, size)):
                yield f"{p}mlp.{part}{name}", out, inp
    yield "model.norm", H, None


def write(path, name):
    model, dtype, make, quantization = KINDS[name]
    rng = np.random.RandomState(zlib.crc32(name.encode()))
    packed, plain = {}, {}

    def whole(key, value, dtype=dtype):
        packed[key] = plain[key] = torch.from_numpy(value).to(dtype)

    whole("model.embed_tokens.weight", rng.standard_normal((V, H)) * 0.7)
    whole("lm_head.weight", rng.standard_normal((V, H)) * (1.3 / H ** 0.5))
    for key, out, inp in linears(model):
        if inp is None:
            whole(key + ".weight", 1 + 0.25 * rng.standard_normal(out))
            continue
        tensors, values = make(rng.standard_normal((out, inp)) * (1.3 / inp ** 0.5), rng)
        packed.update({f"{key}.{suffix}": t.contiguous() for suffix, t in tensors.items()})
        plain[key + ".weight"] = torch.from_numpy(values.copy(order="C")).to(torch.float32).to(dtype)
    if model == DEEPSEEK:
        whole("model.layers.1.mlp.gate.weight", rng.standard_normal((2, H)) * 0.25)
        whole("model.layers.1.mlp.gate.e_score_correction_bias", rng.standard_normal(2) * 0.25, F32)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    config = {**shape_of(model).to_diff_dict(), "architectures": [model], "dtype": str(dtype).split(".")[1]}
    save_file(packed, os.path.join(path, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump({**config, "quantization_config": quantization}, f, indent=1, sort_keys=True)
        f.write("\n")
    ids = rng.randint(3, V, 12)

    def logits(where, **kw):
        m = getattr(transformers, model).from_pretrained(where, attn_implementation="eager",
                                                                experts_implementation="eager", **kw)
        with torch.no_grad():
            return m.double().eval()(torch.from_numpy(ids)[None]).logits[0].float()

    with tempfile.TemporaryDirectory() as at:
        save_file(plain, os.path.join(at, "model.safetensors"), metadata={"format": "pt"})
        with open(os.path.join(at, "config.json"), "w") as f:
            json.dump(config, f)
        expected = logits(at, dtype=torch.float64)
    if name == "fp8":
        own = logits(path, dtype=dtype, quantization_config=transformers.FineGrainedFP8Config(
            weight_block_size=(16, 16), dequantize=True))
        assert (own - expected).abs().max() < 1e-3 * expected.abs().max(), (own - expected).abs().max()
        print("as transformers unpacks them, within", float((own - expected).abs().max() / expected.abs().max()))
    save_file({"input_ids": torch.from_numpy(ids), "logits": expected.contiguous()},
              os.path.join(path, "expected.safetensors"))
    with open(os.path.join(path, "ids"), "w") as f:
        f.write(",".join(map(str, ids)) + "\n")
    print(name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-o", default="tests/data/packed")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    for name in args.names or KINDS:
        write(os.path.join(args.o, name), name)

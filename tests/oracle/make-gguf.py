#!/usr/bin/env python3
"""make-gguf.py OUT - small models and tokenizers as GGUF files, and what they are in Hugging Face's form, as OUT.tar.gz

OUT/KIND.gguf is written by the gguf package (0.19) under the names of its tensor maps, changed as llama.cpp's conversion changes
them; OUT/KIND.sums has the CRC-32s of the same weights, blocks dequantized by that package to f32, under Hugging Face's names and not
changed; OUT/KIND.json is the model's config.  Kinds: f32, f16, bf16 (Llama), blocks (Llama, each type of blocks, of random bytes with sane
scales where the package cannot quantize), mixtral (Q8_0), qwen2, qwen3, phi3, gemma, gemma2, gemma3.  f32 has the tokenizer of spm, and a
chat template; blocks is in two files, as gguf-split leaves them.  Of scaled positions: llama3 (the divisors that llama.cpp's conversion
makes of Llama 3's rule), divisors (others), longrope (phi3), yarn (qwen3), whose weights repeat so that they pack well.
OUT/bpe.gguf and OUT/spm.gguf are tokenizers alone, trained here; OUT/NAME.inp has texts and OUT/NAME.out the ids that the packages
tokenizers and sentencepiece give.  Needs numpy, gguf, tokenizers and sentencepiece."""
import gzip
import json
import os
import shutil
import sys
import tarfile
import zlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T

rng = np.random.default_rng(11)
HIDDEN, HEADS, KV, DIM, FFN, VOCAB, LAYERS = 32, 2, 1, 16, 64, 48, 2
TEXTS = ["Hello World", " Hello   world!", "I'll've 12345 apples\n\n\tand \u00e9t\u00e9", "\u4f60\u597d \U0001f642", "don't DON'T",
         "x = y+1; // ok", "\n", "   ", "ab", "the quick brown fox jumps over the lazy dog", "it's 3.14159", "a  b   c"]
CORPUS = ["the quick brown fox jumps over the lazy dog", "hello world, this is a little text about apples", "I'll have 12 apples and you've 345",
          "don't stop; it's the end of the world", "x = y + 1; z = x * 2"] * 20


def random_blocks(kind, rows, cols):
    """blocks of random codes, whose half scales are between 2^-8 and 2^-5"""
    n, size = gguf.GGML_QUANT_SIZES[kind]
    b = rng.integers(0, 256, (rows, cols // n, size), dtype=np.uint8)
    halves = {T.Q4_0: (0,), T.Q4_1: (0, 2), T.Q5_0: (0,), T.Q5_1: (0, 2), T.Q8_0: (0,), T.Q2_K: (80, 82), T.Q3_K: (108,), T.Q4_K: (0, 2),
              T.Q5_K: (0, 2), T.Q6_K: (208,), T.IQ4_NL: (0,), T.IQ4_XS: (0,), T.MXFP4: ()}[kind]
    for at in halves:
        scale = (2.0 ** rng.uniform(-12, -9, b.shape[:2])).astype("<f2")
        b[..., at:at + 2] = scale.view(np.uint8).reshape(*b.shape[:2], 2)
    if kind == T.MXFP4:
        b[..., 0] = rng.integers(118, 124, b.shape[:2])
    return b.reshape(rows, -1)


def permute(w, heads):
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def unpermute(w, heads):
    return w.reshape(heads, w.shape[0] // heads // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


class Writer:
    def __init__(self, out, kind, arch, config, split, few):
        self.out, self.kind, self.truth, self.config, self.few = out, kind, {}, config, few
        self.w = gguf.GGUFWriter(os.path.join(out, kind + ".gguf"), arch, split_max_tensors=split)
        self.w.add_block_count(LAYERS)
        self.w.add_context_length(64)
        self.w.add_embedding_length(HIDDEN)
        self.w.add_feed_forward_length(FFN)
        self.w.add_head_count(HEADS)
        self.w.add_head_count_kv(KV)
        self.w.add_key_length(DIM)
        self.w.add_value_length(DIM)
        self.w.add_layer_norm_rms_eps(1e-5)
        self.w.add_rope_freq_base(50000.0)
        self.w.add_vocab_size(VOCAB)

    def put(self, name, hf, shape, kind, heads=0, plus=0):
        """a tensor NAME of SHAPE in KIND, HF in the truth; HEADS: rows were permuted; PLUS was added"""
        if kind in (T.F32, T.F16, T.BF16):
            x = rng.standard_normal(shape) if not self.few else np.resize(rng.standard_normal(61), shape)
            x = (x * 0.05 + plus).astype(np.float32)
            data = gguf.quants.quantize(x, kind)
            back = data.view(np.uint16).reshape(shape) if kind == T.BF16 else data.reshape(shape)
        else:
            flat = int(np.prod(shape[:-1]))
            data = random_blocks(kind, flat, shape[-1]).reshape(*shape[:-1], -1)
            back = gguf.quants.dequantize(data, kind).reshape(shape)
        self.w.add_tensor(name, data, raw_dtype=None if kind in (T.F32, T.F16) else kind)
        back = back - np.float32(plus) if plus else back
        if heads:
            back = unpermute(back, heads)
        names = [hf] if isinstance(hf, str) else hf
        for n, part in zip(names, back if len(names) > 1 else [back]):
            self.truth[n] = np.ascontiguousarray(part)

    def close(self, tokenizer=None):
        if tokenizer:
            tokenizer(self.w)
        self.w.write_header_to_file()
        self.w.write_kv_data_to_file()
        self.w.write_tensors_to_file()
        self.w.close()
        with open(os.path.join(self.out, self.kind + ".sums"), "w") as f:
            f.writelines(f'{zlib.crc32(x.tobytes()):08x}\t{x.nbytes}\t"{n}"\n' for n, x in sorted(self.truth.items()))
        json.dump(self.config, open(os.path.join(self.out, self.kind + ".json"), "w"))


def model(out, kind, arch="llama", types=lambda i, name: T.F32, experts=0, tokenizer=None, split=0, scaled=None):
    """a model whose tensor NAME of layer I has the type types(i, name); scaled(writer, config) adds what scales its positions"""
    base = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "phi3": "Phi3", "gemma": "Gemma", "gemma2": "Gemma2",
            "gemma3": "Gemma3"}[arch] if not experts else "Mixtral"
    gemma, plus, kind_of = arch.startswith("gemma"), int(arch.startswith("gemma")), base.lower() + ("_text" if arch == "gemma3" else "")
    config = {"architectures": [base + "ForCausalLM"], "model_type": kind_of, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
              "num_attention_heads": HEADS, "num_key_value_heads": KV, "head_dim": DIM, "intermediate_size": FFN, "vocab_size": VOCAB,
              "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 50000.0, "tie_word_embeddings": gemma}
    if arch in ("phi3", "gemma2", "gemma3"):
        config["sliding_window"] = 16
    if arch in ("gemma2", "gemma3"):
        config["query_pre_attn_scalar"] = DIM
    if arch == "gemma2":
        config |= {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    if experts:
        config |= {"num_local_experts": experts, "num_experts_per_tok": 2, "sliding_window": None}
    w = Writer(out, kind, arch, config, split, scaled)
    if scaled:
        scaled(w.w, config)
    if experts:
        w.w.add_expert_count(experts)
        w.w.add_expert_used_count(2)
    if "sliding_window" in config and not experts:
        w.w.add_sliding_window(16)
    if arch == "gemma2":
        w.w.add_attn_logit_softcapping(50.0)
        w.w.add_final_logit_softcapping(30.0)
    cut = arch == "llama"
    w.put("token_embd.weight", "model.embed_tokens.weight", (VOCAB, HIDDEN), types(-1, "token_embd"))
    if not gemma:
        w.put("output.weight", "lm_head.weight", (VOCAB, HIDDEN), types(-1, "output"))
    w.put("output_norm.weight", "model.norm.weight", (HIDDEN,), T.F32, plus=plus)
    for i in range(LAYERS):
        b, p = f"blk.{i}.", f"model.layers.{i}."
        w.put(b + "attn_norm.weight", p + "input_layernorm.weight", (HIDDEN,), T.F32, plus=plus)
        four = arch in ("gemma2", "gemma3")
        w.put(b + "ffn_norm.weight", p + ("pre_feedforward" if four else "post_attention") + "_layernorm.weight", (HIDDEN,), T.F32, plus=plus)
        if four:
            w.put(b + "post_attention_norm.weight", p + "post_attention_layernorm.weight", (HIDDEN,), T.F32, plus=1)
            w.put(b + "post_ffw_norm.weight", p + "post_feedforward_layernorm.weight", (HIDDEN,), T.F32, plus=1)
        if arch == "phi3":
            w.put(b + "attn_qkv.weight", p + "self_attn.qkv_proj.weight", ((HEADS + 2 * KV) * DIM, HIDDEN), types(i, "q"))
            w.put(b + "ffn_up.weight", p + "mlp.gate_up_proj.weight", (2 * FFN, HIDDEN), types(i, "up"))
            w.put(b + "attn_output.weight", p + "self_attn.o_proj.weight", (HIDDEN, HEADS * DIM), types(i, "o"))
            w.put(b + "ffn_down.weight", p + "mlp.down_proj.weight", (HIDDEN, FFN), types(i, "down"))
            continue
        for x, rows, heads in (("q", HEADS * DIM, HEADS), ("k", KV * DIM, KV), ("v", KV * DIM, 0)):
            w.put(f"{b}attn_{x}.weight", f"{p}self_attn.{x}_proj.weight", (rows, HIDDEN), types(i, x), heads if cut else 0)
            if arch == "qwen2":
                w.put(f"{b}attn_{x}.bias", f"{p}self_attn.{x}_proj.bias", (rows,), T.F32)
            if arch in ("qwen3", "gemma3") and x != "v":
                w.put(f"{b}attn_{x}_norm.weight", f"{p}self_attn.{x}_norm.weight", (DIM,), T.F32, plus=plus)
        w.put(b + "attn_output.weight", p + "self_attn.o_proj.weight", (HIDDEN, HEADS * DIM), types(i, "o"))
        if experts:
            w.put(b + "ffn_gate_inp.weight", p + "block_sparse_moe.gate.weight", (experts, HIDDEN), T.F32)
            for x, of, shape in (("gate", "w1", (FFN, HIDDEN)), ("up", "w3", (FFN, HIDDEN)), ("down", "w2", (HIDDEN, FFN))):
                w.put(f"{b}ffn_{x}_exps.weight", [f"{p}block_sparse_moe.experts.{e}.{of}.weight" for e in range(experts)],
                      (experts, *shape), types(i, x))
        else:
            for x, shape in (("gate", (FFN, HIDDEN)), ("up", (FFN, HIDDEN)), ("down", (HIDDEN, FFN))):
                w.put(f"{b}ffn_{x}.weight", f"{p}mlp.{x}_proj.weight", shape, types(i, x))
    w.close(tokenizer)


def texts(out, name, encode):
    mark = "\n__ggml_vocab_test__\n"
    with open(os.path.join(out, name + ".inp"), "w", newline="") as f:
        f.write("".join(t + mark for t in TEXTS))
    with open(os.path.join(out, name + ".out"), "w") as f:
        f.writelines(" " + " ".join(map(str, encode(t))) + "\n" for t in TEXTS)


def bpe(out):
    """a byte-level BPE that cuts like Llama 3, with an added token"""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                                   r"|\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=330, special_tokens=["<s>", "</s>"],
                                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    vocab, merges = t.get_vocab(), json.loads(t.to_str())["model"]["merges"]
    tokens = sorted(vocab, key=vocab.get)
    w = gguf.GGUFWriter(os.path.join(out, "bpe.gguf"), "llama")
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("llama-bpe")
    w.add_token_list(tokens)
    w.add_token_types([3 if x in ("<s>", "</s>") else 1 for x in tokens])
    w.add_token_merges([" ".join(m) for m in merges])
    w.add_bos_token_id(0)
    w.add_eos_token_id(1)
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()
    texts(out, "bpe", lambda x: t.encode(x, add_special_tokens=False).ids)


def spm(out):
    """SentencePiece's BPE with bytes for what it lacks; returns what adds it to a writer"""
    import io

    import sentencepiece as sp

    model = io.BytesIO()
    sp.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS), model_writer=model, model_type="bpe", vocab_size=350, byte_fallback=True,
                                  normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2)
    p = sp.SentencePieceProcessor(model_proto=model.getvalue())
    kinds = [2 if p.is_unknown(i) else 3 if p.is_control(i) else 6 if p.is_byte(i) else 1 for i in range(p.get_piece_size())]

    def add(w):
        w.add_tokenizer_model("llama")
        w.add_token_list([p.id_to_piece(i) for i in range(len(kinds))])
        w.add_token_scores([p.get_score(i) for i in range(len(kinds))])
        w.add_token_types(kinds)
        w.add_bos_token_id(1)
        w.add_eos_token_id(2)
        w.add_unk_token_id(0)
        w.add_chat_template("{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}")
    w = gguf.GGUFWriter(os.path.join(out, "spm.gguf"), "llama")
    add(w)
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()
    texts(out, "spm", p.encode)
    return add, len(kinds)


def rope_freqs(of):
    """positions scaled by the divisors OF, and by what the config says"""
    def add(w, config):
        wave = 2 * np.pi * config["rope_theta"] ** (np.arange(0, DIM, 2) / DIM)
        divisors, config["rope_scaling"] = of(wave)
        w.add_tensor("rope_freqs.weight", divisors.astype(np.float32))
    return add


def llama3(wave):
    """as conversion/llama.py of llama.cpp"""
    out = [1 if x < 2048 else 32 if x > 8192 else 1 / ((1 - (8192 / x - 1) / 3) / 32 + (8192 / x - 1) / 3) for x in wave]
    return np.array(out), {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                           "original_max_position_embeddings": 8192}


def divisors(wave):
    out = [1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.5, 8.0]
    return np.array(out), {"rope_type": "longrope", "attention_factor": 1.0, "original_max_position_embeddings": 64,
                           "short_factor": out, "long_factor": out}


def longrope(w, config):
    few, many = [1.0, 1.5, 2.0, 2.5, 3.0, 3.5], [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    config |= {"original_max_position_embeddings": 32, "partial_rotary_factor": 0.75,
               "rope_scaling": {"type": "longrope", "short_factor": few, "long_factor": many}}
    w.add_rope_dimension_count(DIM * 3 // 4)
    w.add_rope_scaling_orig_ctx_len(32)
    w.add_rope_scaling_attn_factors(float(np.sqrt(1 + np.log(2) / np.log(32))))
    w.add_tensor("rope_factors_short.weight", np.array(few, dtype=np.float32))
    w.add_tensor("rope_factors_long.weight", np.array(many, dtype=np.float32))


def yarn(w, config):
    config["rope_scaling"] = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    w.add_rope_scaling_factor(4.0)
    w.add_rope_scaling_orig_ctx_len(16)


EACH = ({"token_embd": T.Q6_K, "output": T.Q8_0},
        {"q": T.Q4_K, "k": T.Q5_K, "v": T.Q6_K, "o": T.Q8_0, "gate": T.Q2_K, "up": T.Q3_K, "down": T.Q4_0},
        {"q": T.IQ4_XS, "k": T.Q4_1, "v": T.Q8_0, "o": T.IQ4_NL, "gate": T.Q5_0, "up": T.Q5_1, "down": T.MXFP4})

def pack(out):
    """the same bytes from the same files"""
    def plain(info):
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        info.mode = 0o755 if info.isdir() else 0o644
        return info

    with gzip.GzipFile(f"{out}.tar.gz", "wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for name in sorted(os.listdir(out)):
            tar.add(os.path.join(out, name), "gguf/" + name, filter=plain)


if __name__ == "__main__":
    out = sys.argv[1].rstrip("/")
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    bpe(out)
    add, VOCAB = spm(out)
    model(out, "f32", tokenizer=add)
    VOCAB = 48
    model(out, "f16", types=lambda i, x: T.F16)
    model(out, "bf16", types=lambda i, x: T.BF16)
    model(out, "mixtral", types=lambda i, x: T.F16 if i < 0 or x == "o" else T.Q8_0, experts=4)
    model(out, "qwen2", arch="qwen2", types=lambda i, x: T.F16)
    model(out, "qwen3", arch="qwen3", types=lambda i, x: T.F16)
    for arch in ("phi3", "gemma", "gemma2", "gemma3"):
        model(out, arch, arch=arch, types=lambda i, x: T.F16)
    HIDDEN, DIM = 256, 32
    model(out, "blocks", types=lambda i, x: EACH[i + 1][x], split=12)
    HIDDEN, DIM, LAYERS = 32, 16, 1
    for kind, arch, scaled in (("llama3", "llama", rope_freqs(llama3)), ("divisors", "llama", rope_freqs(divisors)),
                               ("longrope", "phi3", longrope), ("yarn", "qwen3", yarn)):
        model(out, kind, arch=arch, types=lambda i, x: T.F16, scaled=scaled)
    LAYERS = 2
    pack(out)
    out += "/seeds"  # for tests/fuzz/corpus/gguf
    os.makedirs(out)
    HIDDEN, HEADS, DIM, FFN, VOCAB, LAYERS = 32, 2, 8, 6, 5, 1
    model(out, "mixtral", types=lambda i, x: T.Q8_0 if x in ("q", "gate") else T.F16, experts=2)
    HIDDEN = 8
    model(out, "llama", types=lambda i, x: T.BF16)
    model(out, "qwen3", arch="qwen3", types=lambda i, x: T.F16)

"""peers.py - tp-run beside torch or llama.cpp, in turns

peers.py torch|llama.cpp MODEL TYPE THREADS REPEAT TP-RUN TOKENS [OPTION...]

MODEL is a directory of make-model; TYPE is f32, bf16 or, for llama.cpp, q8_0 or q4_0.  Prints two
medians: tp-run's rate over the peer's, for a prompt of 1024 tokens and for the tokens after it.
"""

import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time

PROMPT = 1024


def tp_run(program, model, threads, tokens, options):
    """Tokens a second of a prompt, and of the tokens after a prompt of one token."""
    run = [program, "bench", "--json", "--tokens", str(PROMPT), "--repeat", "2", "--threads", str(threads)]
    bench = json.loads(subprocess.run(run + options + [model], check=True, capture_output=True).stdout)
    run = [program, "generate", "--ids", "1", "--max-tokens", str(tokens), "--json", "--threads", str(threads)]
    text = json.loads(subprocess.run(run + options + [model], check=True, capture_output=True).stdout)
    return PROMPT / sum(p["prefill"] for p in bench["parts"]), text["tokens_per_second"]


def open_torch(model, kind, threads):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(threads)
    with open(os.path.join(model, "config.json")) as f:
        config = LlamaConfig(**json.load(f))
    dtype = torch.float32 if kind == "f32" else torch.bfloat16
    net = LlamaForCausalLM.from_pretrained(model, config=config, dtype=dtype).eval()

    def rates(tokens):
        with torch.inference_mode():
            start = time.perf_counter()
            net(torch.arange(1, PROMPT + 1)[None], logits_to_keep=1)
            prefill = PROMPT / (time.perf_counter() - start)
            out = net(torch.tensor([[1]]), use_cache=True)
            start = time.perf_counter()
            for _ in range(tokens - 1):
                best = out.logits[:, -1:].argmax(-1)
                out = net(best, use_cache=True, past_key_values=out.past_key_values)
            return prefill, (tokens - 1) / (time.perf_counter() - start)

    return rates


def tensors_of(model):
    """The stored tensors, as (name, shape, bytes)."""
    path = os.path.join(model, "model.safetensors")
    with open(path, "rb") as f:
        (size,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(size))
        for name, t in header.items():
            if name == "__metadata__":
                continue
            f.seek(8 + size + t["data_offsets"][0])
            yield name, t["shape"], t["dtype"], f.read(t["data_offsets"][1] - t["data_offsets"][0])


NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(model, kind, path):
    """The same weights for llama.cpp, without a vocabulary.  Rows of q and k keep their order: it changes no speed."""
    import gguf
    import numpy

    with open(os.path.join(model, "config.json")) as f:
        c = json.load(f)
    quant = {
        "f32": gguf.GGMLQuantizationType.F32,
        "bf16": gguf.GGMLQuantizationType.BF16,
        "q8_0": gguf.GGMLQuantizationType.Q8_0,
        "q4_0": gguf.GGMLQuantizationType.Q4_0,
    }[kind]
    w = gguf.GGUFWriter(path, "llama")
    w.add_block_count(c["num_hidden_layers"])
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_layer_norm_rms_eps(1e-6)
    w.add_vocab_size(c["vocab_size"])
    w.add_tokenizer_model("none")
    for name, shape, dtype, data in tensors_of(model):
        if dtype == "F32":
            x = numpy.frombuffer(data, numpy.float32)
        else:
            x = (numpy.frombuffer(data, numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)
        if name in NAMES:
            to = NAMES[name]
        else:
            _, _, layer, rest = name.split(".", 3)
            to = f"blk.{layer}.{NAMES[rest.rsplit('.', 1)[0]]}.weight"
        x = x.reshape(shape)
        if len(shape) == 1 or kind == "f32":
            w.add_tensor(to, x)
        else:
            w.add_tensor(to, gguf.quants.quantize(x, quant), raw_dtype=quant)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def open_llama(model, kind, threads):
    from llama_cpp import Llama

    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "model.gguf")
        write_gguf(model, kind, path)
        net = Llama(path, n_ctx=2 * PROMPT, n_batch=PROMPT, n_ubatch=512, n_threads=threads, n_threads_batch=threads, verbose=False)
        net.eval([1])  # every page has been read when the file goes

    def rates(tokens):
        net.reset()
        start = time.perf_counter()
        net.eval(list(range(1, PROMPT + 1)))
        prefill = PROMPT / (time.perf_counter() - start)
        net.reset()
        net.eval([1])
        start = time.perf_counter()
        for i in range(tokens - 1):
            net.eval([i + 2])
        return prefill, (tokens - 1) / (time.perf_counter() - start)

    return rates


def main():
    peer, model, kind, threads, repeat, program, tokens = sys.argv[1:8]
    options = sys.argv[8:]
    rates = (open_torch if peer == "torch" else open_llama)(model, kind, int(threads))
    rates(4)
    prefill, decode = [], []
    for _ in range(int(repeat)):
        ours = tp_run(program, model, threads, int(tokens), options)
        theirs = rates(int(tokens))
        prefill.append(ours[0] / theirs[0])
        decode.append(ours[1] / theirs[1])
    print(f"{statistics.median(prefill):.3f} {statistics.median(decode):.3f}")


if __name__ == "__main__":
    main()

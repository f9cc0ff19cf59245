#!/usr/bin/env python3
"""Read what `tp-shard merge --export gguf` wrote with the gguf package and llama.cpp.

usage: check-gguf.py DIRECTORY MODEL [TEXT IDS]

Compares each tensor of DIRECTORY/model.gguf that is not permuted with MODEL/model.safetensors, Q8_0 with the bytes of
gguf.quants.quantize; with TEXT and IDS, a list of numbers, llama.cpp's greedy tokens after TEXT with IDS.
Needs torch, safetensors, gguf 0.19 and, for IDS, llama-cpp-python.
"""
import sys

import gguf
import numpy as np
from gguf.quants import quantize
from safetensors.torch import load_file

NAMES = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
         "output.weight": "lm_head.weight"}
LAYER = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def main(directory, model, text=None, ids=None):
    r = gguf.GGUFReader(directory + "/model.gguf")
    want = load_file(model + "/model.safetensors")
    fields = {k: f.contents() for k, f in r.fields.items() if not k.startswith("GGUF.")}
    heads = {"attn_q": fields["llama.attention.head_count"], "attn_k": fields["llama.attention.head_count_kv"]}
    count = 0
    for t in r.tensors:
        part = t.name.split(".")
        name = NAMES.get(t.name) or f"model.layers.{part[1]}.{LAYER[part[2]]}.{part[3]}"
        x = want[name].float().numpy()
        n = heads.get(part[2] if len(part) > 2 else "")
        if n:  # convert_hf_to_gguf.py's LlamaModel.permute
            x = x.reshape(n, 2, x.shape[0] // n // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)
        q = quantize(np.ascontiguousarray(x), t.tensor_type)
        assert q.tobytes() == t.data.tobytes(), (t.name, t.tensor_type)
        count += 1
    assert count == len(want), (count, len(want))
    kinds = sorted({t.tensor_type.name for t in r.tensors})
    print(f"{count} tensors equal, {', '.join(kinds)}; {len(fields)} keys, file type {fields['general.file_type']}, "
          f"{len(fields['tokenizer.ggml.tokens'])} tokens, pre {fields.get('tokenizer.ggml.pre')}")
    if text is None:
        return
    from llama_cpp import Llama
    llm = Llama(directory + "/model.gguf", n_ctx=256, verbose=False, n_threads=1)
    prompt = llm.tokenize(text.encode(), add_bos=False, special=True)
    got = []
    ids = [int(i) for i in ids.split()]
    for token in llm.generate(prompt, temp=0.0, top_k=1, repeat_penalty=1.0):
        got.append(token)
        if len(got) == len(ids):
            break
    assert got == ids, (prompt, got, ids)
    print(f"llama.cpp: {len(prompt)} tokens of the text, {len(got)} greedy ones equal")


if __name__ == "__main__":
    main(*sys.argv[1:])

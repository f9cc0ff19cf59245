#!/usr/bin/env python3
"""Measure what PyTorch has of values while it trains models of transformers: writes tests/data/peak-memory.tsv.

usage: peak-memory.py [NAME...] > tests/data/peak-memory.tsv

One step of each model below, with random weights, on the CPU, operation by operation.  A dispatch mode sees
every tensor that an operation returns and a finalizer sees it go; what a kernel takes and gives back inside
is not seen, so that the figures are those of any device on which the same operations run.  (They are not the
same for dropout, which on a CPU multiplies by a mask of floats: the operation of GPUs, whose mask has a byte
an element, is put in its place.)

For each step there is a line: name, options of mem-estimate, and in bytes, without weights and inputs,

  kept      what the forward pass leaves for the backward pass, logits and what the loss keeps of them apart
  loss      the most there is while the loss is made and gone through, logits held
  backward  the most there is in the rest of the backward pass, gradients of weights among it, logits apart

Needs torch (2.13 was used) and transformers (5.23).
"""
import itertools
import json
import sys
import weakref

import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

LLAMA = dict(model_type="llama", hidden_size=512, intermediate_size=1408, num_hidden_layers=4, num_attention_heads=8,
             num_key_value_heads=2, vocab_size=8000, max_position_embeddings=1024)
GPT2 = dict(model_type="gpt2", n_embd=384, n_layer=4, n_head=6, vocab_size=10000, n_positions=512, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0)
DROPOUT = dict(resid_pdrop=0.1, attn_pdrop=0.1)
OTHER = dict(hidden_size=320, num_hidden_layers=3, num_attention_heads=5, vocab_size=6000)
MODELS = {
    "llama": LLAMA,
    "gpt2": GPT2,
    "gpt2-tanh": dict(GPT2, activation_function="gelu_pytorch_tanh"),
    "gpt2-dropout": dict(GPT2, **DROPOUT),
    "gemma2": dict(model_type="gemma2", hidden_size=256, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=4,
                   num_key_value_heads=2, head_dim=64, vocab_size=64000, max_position_embeddings=1024,
                   query_pre_attn_scalar=64, sliding_window=4096, attn_logit_softcapping=50.0, final_logit_softcapping=30.0),
    "qwen3": dict(LLAMA, model_type="qwen3", head_dim=64),
    "olmo2": dict(LLAMA, model_type="olmo2"),
    "opt": dict(model_type="opt", hidden_size=384, ffn_dim=1536, num_hidden_layers=4, num_attention_heads=6, vocab_size=10000,
                max_position_embeddings=512, word_embed_proj_dim=384, dropout=0.0, attention_dropout=0.0),
    "gpt_neox": dict(model_type="gpt_neox", hidden_size=384, intermediate_size=1536, num_hidden_layers=4,
                     num_attention_heads=6, vocab_size=10000, max_position_embeddings=512, hidden_dropout=0.0,
                     attention_dropout=0.0),
    "t5": dict(model_type="t5", d_model=384, d_kv=64, d_ff=1024, num_layers=3, num_decoder_layers=3, num_heads=6,
               vocab_size=10000, feed_forward_proj="gated-gelu", tie_word_embeddings=True, dropout_rate=0.0,
               decoder_start_token_id=0),
    "bert": dict(model_type="bert", architectures=["BertForMaskedLM"], hidden_size=384, num_hidden_layers=4,
                 num_attention_heads=6, intermediate_size=1536, vocab_size=10000, hidden_dropout_prob=0.0,
                 attention_probs_dropout_prob=0.0),
    "mixtral": dict(model_type="mixtral", hidden_size=256, intermediate_size=512, num_hidden_layers=4,
                    num_attention_heads=4, num_key_value_heads=2, num_local_experts=8, num_experts_per_tok=2,
                    vocab_size=8000, max_position_embeddings=1024),
    # of other shapes than those above
    "mistral-window": dict(model_type="mistral", sliding_window=64, head_dim=64, intermediate_size=896, num_key_value_heads=5,
                           max_position_embeddings=1024, **OTHER),
    "olmo": dict(model_type="olmo", intermediate_size=896, num_key_value_heads=5, max_position_embeddings=1024, **OTHER),
    "phi": dict(model_type="phi", intermediate_size=1280, max_position_embeddings=1024, resid_pdrop=0.0, embd_pdrop=0.0,
                attention_dropout=0.0, partial_rotary_factor=0.5, **OTHER),
    "phi3": dict(model_type="phi3", intermediate_size=896, num_key_value_heads=5, max_position_embeddings=1024, pad_token_id=0, **OTHER),
    "qwen2": dict(model_type="qwen2", intermediate_size=896, num_key_value_heads=5, max_position_embeddings=1024, **OTHER),
    "gemma": dict(model_type="gemma", intermediate_size=896, num_key_value_heads=5, head_dim=64, max_position_embeddings=1024, **OTHER),
}
# models, types, ways of attention, what is made again; all of 2 x 256 tokens
STEPS = [
    ("llama", "bf16 f32", "sdpa eager", "none full"),
    ("llama", "bf16 f32", "sdpa", "products"),
    ("gpt2", "bf16 f32", "sdpa eager", "none full"),
    ("gpt2-tanh", "bf16", "sdpa", "none full"),
    ("gpt2-dropout", "f32", "eager", "none full"),
    ("gemma2", "bf16 f32", "eager", "none full"),
    ("qwen3", "bf16", "sdpa", "none full products"),
    ("olmo2", "bf16", "sdpa", "none full"),
    ("opt", "f32", "sdpa", "none full"),
    ("gpt_neox", "bf16", "sdpa", "none full"),
    ("t5", "f32", "eager", "none full"),
    ("bert", "f32", "sdpa eager", "none full"),
    ("mixtral", "bf16", "sdpa", "none full"),
    *((name, "bf16 f32", "sdpa", "none full") for name in ("mistral-window", "olmo", "phi", "phi3", "qwen2", "gemma")),
]
BATCH, SEQ = 2, 256


class Live(TorchDispatchMode):
    """The storages that exist, their kinds, and the most bytes of each phase."""

    def __init__(self, logits):
        super().__init__()
        self.logits, self.phase = logits, "forward"
        self.live, self.bytes, self.most = {}, dict(weights=0, logits=0, gradients=0, values=0), {}

    def add(self, tensor, kind=None):
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if size and key not in self.live:
            kind = kind or ("logits" if tensor.numel() == self.logits else "values")
            self.live[key] = kind, size
            self.bytes[kind] += size
            weakref.finalize(storage, self.drop, key)

    def drop(self, key):
        kind, size = self.live.pop(key)
        self.bytes[kind] -= size

    def is_gradient(self, tensor):
        key = tensor.untyped_storage()._cdata
        kind, size = self.live[key]
        self.live[key] = "gradients", size
        self.bytes[kind] -= size
        self.bytes["gradients"] += size

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                self.add(tensor)
        if func is torch.ops.aten.add.Tensor:  # of gradients, which without a mode is made in place
            return out
        now = self.bytes["values"] + self.bytes["gradients"] + (self.bytes["logits"] if self.phase == "loss" else 0)
        self.most[self.phase] = max(now, self.most.get(self.phase, 0))
        return out


def gpu_dropout(x, p=0.5, training=True, inplace=False):
    return torch.ops.aten.native_dropout(x, p, True)[0] if training and p > 0 else x


def every_second_product():
    """What torchtitan saves: attention's result and that of the first, third ... product of a layer."""
    products = {True: 0, False: 0}

    def policy(context, func, *args, **kwargs):
        again = context.is_recompute
        if func is torch.ops.aten.mm.default:
            products[again] += 1
            saved = products[again] % 2
        else:
            saved = "scaled_dot_product" in str(func)
        return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def make_again(model, what):
    if what == "full":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    elif what == "products":
        for layer in model.model.layers:
            forward = layer.forward
            layer.forward = lambda *args, forward=forward, **kwargs: checkpoint(
                forward, *args, use_reentrant=False, context_fn=every_second_product, **kwargs)


def step(config, dtype, attention, again):
    config = transformers.AutoConfig.for_model(**config)
    config._attn_implementation = attention
    auto = {"t5": transformers.AutoModelForSeq2SeqLM, "bert": transformers.AutoModelForMaskedLM}.get(
        config.model_type, transformers.AutoModelForCausalLM)
    model = auto.from_config(config, dtype=dict(f32=torch.float32, bf16=torch.bfloat16)[dtype])
    model.train()
    make_again(model, again)
    ids = torch.zeros((BATCH, SEQ), dtype=torch.long)
    live = Live(ids.numel() * config.vocab_size)
    for tensor in [*model.parameters(), *model.buffers(), ids]:
        live.add(tensor, "weights")
    for weight in model.parameters():
        weight.register_post_accumulate_grad_hook(lambda weight: live.is_gradient(weight.grad))

    def enter_loss(head, inputs):
        live.phase = "loss"

        def leave_loss(gradient):
            live.phase = "backward"

        inputs[0].register_hook(leave_loss)

    model.get_output_embeddings().register_forward_pre_hook(enter_loss)
    options = {} if config.model_type == "bert" else {"use_cache": False}
    with live:
        out = model(input_ids=ids, labels=ids, **options)
        kept = live.bytes["values"]
        out.loss.backward()
    return kept, live.most["loss"], live.most["backward"]


def main():
    torch.nn.functional.dropout = gpu_dropout
    torch.manual_seed(0)
    torch.set_num_threads(1)
    print("model\toptions\tkept\tloss\tbackward\tconfig")
    for name, dtypes, ways, parts in STEPS:
        for dtype, attention, again in itertools.product(dtypes.split(), ways.split(), parts.split()):
            if sys.argv[1:] and name not in sys.argv[1:]:
                continue
            options = f"--weights {dtype} --micro-batch {BATCH} --seq {SEQ} --recompute {again}"
            options += " --flash off" if attention == "eager" else ""
            options += " --dropout" if name.endswith("dropout") else ""
            figures = step(MODELS[name], dtype, attention, again)
            print(name, options, *figures, json.dumps(MODELS[name], separators=(",", ":")), sep="\t", flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""config-keys.py - what tp-run makes of every key of every class, beside transformers

    config-keys.py [--bin DIR] [-o DIR] [TYPE...]

Takes a tiny model of each shipped family's model type, changes one key of its config.json
at a time to each value of a table (every member of an enumeration, both booleans, two
numbers, null) or takes it away ("absent"), gives `transformers` and `tp-run logits` the same directory, and writes to
DIR (tests/data/keys)

    base.json     {type: the config.json that is changed}
    verdicts.tsv  type, key, value (JSON), verdict:
                  same     the logits of transformers, to 1e-4 of the largest
                  refused  by tp-run, status 3
                  fails    transformers itself cannot load or run it

Any other outcome is an error, and nothing is written.  With TYPEs, their lines alone are
made anew.  tests/keys.t holds the library
against the table without Python.  (transformers 5.23.0, torch 2.13)
"""
import argparse
import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import zlib

os.environ["HF_HUB_OFFLINE"] = "1"
HERE = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("models", os.path.join(HERE, "make-models.py"))
models = importlib.util.module_from_spec(spec)
spec.loader.exec_module(models)

import numpy as np
import torch
import transformers
from safetensors.torch import load_file
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

CAUSAL, MLM = "AutoModelForCausalLM", "AutoModelForMaskedLM"
SEQ2SEQ, SPEECH = "AutoModelForSeq2SeqLM", "AutoModelForSpeechSeq2Seq"
SMALL = dict(hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=6,
             vocab_size=64, max_position_embeddings=64, bos_token_id=1, eos_token_id=2)
GROUPED = dict(SMALL, num_key_value_heads=3)
OLD = dict(n_embd=32, n_layer=2, n_head=4, n_positions=64, vocab_size=64)
EXPERTS = dict(GROUPED, num_experts_per_tok=2)
ROUTED = dict(moe_intermediate_size=20, n_routed_experts=8, n_group=4, topk_group=2, n_shared_experts=1,
              first_k_dense_replace=1, num_experts_per_tok=2)
LATENT = dict(SMALL, num_key_value_heads=6, kv_lora_rank=20, q_lora_rank=16, qk_nope_head_dim=8,
              qk_rope_head_dim=4, v_head_dim=6, moe_intermediate_size=20, n_routed_experts=8,
              n_group=4, topk_group=2, first_k_dense_replace=1, num_experts_per_tok=2,
              n_shared_experts=1)
T5 = dict(d_model=24, d_kv=5, d_ff=40, num_layers=2, num_decoder_layers=2, num_heads=6,
          vocab_size=60, relative_attention_num_buckets=8, relative_attention_max_distance=20,
          decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)

TWO = dict(d_model=24, encoder_layers=1, decoder_layers=2, encoder_attention_heads=6, decoder_attention_heads=6,
           encoder_ffn_dim=40, decoder_ffn_dim=40, vocab_size=60, max_position_embeddings=80)

# type: (class, settings); None: those of base.json
BASE = {
    "llama": (CAUSAL, GROUPED), "mistral": (CAUSAL, dict(GROUPED, sliding_window=8)),
    "bamba": (CAUSAL, dict(GROUPED, **models.SSD, mamba_n_groups=3, attn_layer_indices=[1])),
    "granitemoehybrid": (CAUSAL, dict(EXPERTS, **models.SSD, mamba_n_groups=3, layer_types=["linear_attention", "full_attention"],
                                      num_local_experts=4, shared_intermediate_size=20)),
    "falcon_h1": (CAUSAL, dict(GROUPED, **models.SSD, mamba_n_groups=3, mamba_d_ssm=48)),
    "mamba": (CAUSAL, dict(hidden_size=24, num_hidden_layers=2, state_size=6, time_step_rank=5, vocab_size=64)),
    "falcon_mamba": (CAUSAL, dict(hidden_size=24, num_hidden_layers=2, state_size=6, time_step_rank=5, vocab_size=64)),
    "jamba": (CAUSAL, dict(EXPERTS, num_experts=4, mamba_d_state=6, mamba_dt_rank=5, attn_layer_period=2, attn_layer_offset=1)),
    "nemotron_h": (CAUSAL, dict(EXPERTS, **models.NEMOTRON)),
    "lfm2_moe": (CAUSAL, dict(EXPERTS, num_experts=4, moe_intermediate_size=20, num_dense_layers=1, layer_types=["conv", "full_attention"])),
    "minimax": (CAUSAL, dict(EXPERTS, num_local_experts=4, layer_types=["full_attention", "linear_attention"], block_size=8)),
    "recurrent_gemma": (CAUSAL, dict(GROUPED, intermediate_size=80, lru_width=24, attention_window_size=8, block_types=["recurrent", "attention"])),
    "kimi_linear": (CAUSAL, dict({**EXPERTS, **models.KIMI}, num_key_value_heads=6, pad_token_id=0)),
    "mamba2": (CAUSAL, dict(hidden_size=24, num_hidden_layers=2, num_heads=6, head_dim=8, n_groups=3, state_size=10, vocab_size=64)),
    "qwen3_next": (CAUSAL, dict(EXPERTS, num_experts=4, moe_intermediate_size=20, shared_expert_intermediate_size=28, head_dim=8,
                                layer_types=["linear_attention", "full_attention"], **models.DELTA)),
    "qwen3_5_text": (CAUSAL, dict(GROUPED, head_dim=8, layer_types=["linear_attention", "full_attention"], **models.DELTA)),
    "qwen3_5_moe_text": (CAUSAL, dict(EXPERTS, num_experts=4, moe_intermediate_size=20, shared_expert_intermediate_size=28, head_dim=8,
                                      intermediate_size=None, layer_types=["linear_attention", "full_attention"], **models.DELTA)),
    "lfm2": (CAUSAL, dict(GROUPED, layer_types=["conv", "full_attention"], block_multiple_of=8)),
    "qwen2": (CAUSAL, GROUPED), "qwen3": (CAUSAL, dict(GROUPED, head_dim=8)),
    "gemma": (CAUSAL, dict(GROUPED, head_dim=8)),
    "gemma2": (CAUSAL, dict(GROUPED, head_dim=8, sliding_window=8)),
    "gemma3_text": (CAUSAL, dict(GROUPED, head_dim=8, sliding_window=8, sliding_window_pattern=2)),
    "gpt2": (CAUSAL, OLD), "gpt_bigcode": (CAUSAL, OLD),
    "gpt_neox": (CAUSAL, dict(SMALL, hidden_size=48)),
    "falcon": (CAUSAL, dict(SMALL, intermediate_size=None)),
    "bert": (MLM, SMALL), "roberta": (MLM, dict(SMALL, max_position_embeddings=70)),
    "xlm-roberta": (MLM, dict(SMALL, max_position_embeddings=70)),
    "bloom": (CAUSAL, dict(hidden_size=24, n_layer=2, n_head=6, vocab_size=64)),
    "codegen": (CAUSAL, dict(OLD, rotary_dim=4)), "gptj": (CAUSAL, dict(OLD, rotary_dim=4)),
    "cohere": (CAUSAL, GROUPED),
    "deepseek_v2": (CAUSAL, dict(LATENT, topk_method="group_limited_greedy")),
    "deepseek_v3": (CAUSAL, LATENT),
    "mixtral": (CAUSAL, dict(EXPERTS, num_local_experts=4)),
    "mpt": (CAUSAL, dict(d_model=24, n_layers=2, n_heads=6, vocab_size=64, max_seq_len=64)),
    "olmo": (CAUSAL, GROUPED), "olmo2": (CAUSAL, GROUPED),
    "olmoe": (CAUSAL, dict(EXPERTS, num_experts=4)),
    "opt": (CAUSAL, dict(SMALL, ffn_dim=40, word_embed_proj_dim=24, intermediate_size=None)),
    "phi": (CAUSAL, GROUPED), "phi3": (CAUSAL, dict(GROUPED, pad_token_id=0)),
    "qwen2_moe": (CAUSAL, dict(EXPERTS, num_experts=4, moe_intermediate_size=20,
                               shared_expert_intermediate_size=28)),
    "qwen3_moe": (CAUSAL, dict(EXPERTS, num_experts=4, moe_intermediate_size=20, head_dim=8)),
    "granite": (CAUSAL, dict(GROUPED, embedding_multiplier=2.0, attention_multiplier=0.4)),
    "cohere2": (CAUSAL, dict(GROUPED, sliding_window=8)), "olmo3": (CAUSAL, dict(GROUPED, sliding_window=8)),
    "smollm3": (CAUSAL, dict(GROUPED, pad_token_id=0, num_hidden_layers=4)),
    "stablelm": (CAUSAL, dict(GROUPED, hidden_size=48)),
    "glm": (CAUSAL, dict(GROUPED, head_dim=8, pad_token_id=0)), "glm4": (CAUSAL, dict(GROUPED, head_dim=8, pad_token_id=0)),
    "ernie4_5": (CAUSAL, dict(GROUPED, head_dim=8)), "seed_oss": (CAUSAL, dict(GROUPED, head_dim=8)),
    "exaone4": (CAUSAL, dict(GROUPED, sliding_window=8, num_hidden_layers=4)),
    "hunyuan_v1_dense": (CAUSAL, dict(GROUPED, head_dim=8)), "arcee": (CAUSAL, dict(GROUPED, head_dim=8)),
    "nemotron": (CAUSAL, dict(GROUPED, head_dim=8)), "helium": (CAUSAL, dict(GROUPED, head_dim=4, pad_token_id=0)),
    "ministral": (CAUSAL, dict(GROUPED, head_dim=8, sliding_window=8)),
    "gpt_neo": (CAUSAL, dict(hidden_size=24, num_layers=2, num_heads=6, vocab_size=64, max_position_embeddings=64,
                             attention_types=[[["global", "local"], 1]], window_size=8, bos_token_id=1, eos_token_id=2)),
    "openai-gpt": (CAUSAL, OLD), "biogpt": (CAUSAL, SMALL), "persimmon": (CAUSAL, dict(SMALL, hidden_size=48)),
    "dots1": (CAUSAL, dict(GROUPED, head_dim=8, **ROUTED)), "glm4_moe": (CAUSAL, dict(GROUPED, head_dim=8, **ROUTED)),
    "ernie4_5_moe": (CAUSAL, dict(GROUPED, moe_intermediate_size=20, moe_num_experts=4, moe_k=2, moe_layer_end_index=1)),
    "hunyuan_v1_moe": (CAUSAL, dict(GROUPED, head_dim=8, num_experts=4, moe_topk=2)),
    "minimax_m2": (CAUSAL, dict(EXPERTS, head_dim=8, num_local_experts=4)),
    "gpt_oss": (CAUSAL, None),
    "starcoder2": (CAUSAL, GROUPED), "t5": (SEQ2SEQ, T5), "mt5": (SEQ2SEQ, T5),
    "bart": (SEQ2SEQ, TWO), "mbart": (SEQ2SEQ, TWO), "plbart": (SEQ2SEQ, TWO), "blenderbot": (SEQ2SEQ, TWO),
    "blenderbot-small": (SEQ2SEQ, TWO), "pegasus": (SEQ2SEQ, TWO), "m2m_100": (SEQ2SEQ, TWO),
    "marian": (SEQ2SEQ, dict(TWO, pad_token_id=59, decoder_start_token_id=57)),
    "fsmt": (SEQ2SEQ, dict(TWO, src_vocab_size=60)), "bigbird_pegasus": (SEQ2SEQ, TWO),
    "led": (SEQ2SEQ, dict(TWO, max_position_embeddings=None, max_encoder_position_embeddings=130,
                          max_decoder_position_embeddings=64, attention_window=128)),
    "bert-generation": ("BertGenerationEncoder", SMALL), "dpr": ("DPRQuestionEncoder", SMALL),
    "layoutlm": (MLM, dict(SMALL, max_2d_position_embeddings=64)), "tapas": (MLM, SMALL),
    "visual_bert": ("VisualBertForPreTraining", dict(SMALL, visual_embedding_dim=8)),
    "granitemoe": (CAUSAL, dict(EXPERTS, num_local_experts=4)),
    "granitemoeshared": (CAUSAL, dict(EXPERTS, num_local_experts=4, shared_intermediate_size=20)),
    "prophetnet": (SEQ2SEQ, models.PROPHET), "umt5": (SEQ2SEQ, T5), "longt5": (SEQ2SEQ, T5),
    "gpt_oss": (CAUSAL, dict(EXPERTS, head_dim=8, sliding_window=8, num_local_experts=4)),
    "phimoe": (CAUSAL, dict(EXPERTS, num_local_experts=4)), "apertus": (CAUSAL, dict(GROUPED, pad_token_id=0)),
    "llama4_text": (CAUSAL, dict(EXPERTS, head_dim=8, intermediate_size_mlp=28, num_local_experts=4, num_experts_per_tok=1, pad_token_id=0)),
    "ctrl": (CAUSAL, dict(OLD, dff=40)),
    "xglm": (CAUSAL, dict(d_model=24, ffn_dim=40, num_layers=2, attention_heads=6, vocab_size=64, max_position_embeddings=64)),
    "camembert": (MLM, dict(SMALL, max_position_embeddings=70)), "electra": (MLM, dict(SMALL, embedding_size=16)),
    "distilbert": (MLM, dict(dim=24, hidden_dim=40, n_layers=2, n_heads=6, vocab_size=64, max_position_embeddings=64)),
    "albert": (MLM, dict(SMALL, embedding_size=16)), "mpnet": (MLM, dict(SMALL, max_position_embeddings=70)),
    "modernbert": (MLM, dict(SMALL, pad_token_id=0, cls_token_id=1, sep_token_id=2, local_attention=8, global_attn_every_n_layers=2)),
    "nomic_bert": (MLM, SMALL), "deberta": (MLM, dict(SMALL, relative_attention=True, pos_att_type=["p2c", "c2p"])),
    "deberta-v2": (MLM, dict(SMALL, relative_attention=True, pos_att_type=["p2c", "c2p"])),
    "big_bird": (MLM, dict(SMALL, attention_type="original_full")), "megatron-bert": (MLM, SMALL), "ibert": (MLM, dict(SMALL, max_position_embeddings=70)),
    "xlm": (MLM, dict(emb_dim=24, n_layers=2, n_heads=6, vocab_size=64, max_position_embeddings=64)),
    "flaubert": (MLM, dict(emb_dim=24, n_layers=2, n_heads=6, vocab_size=64, max_position_embeddings=64)),
    "roformer": (MLM, dict(SMALL, embedding_size=16)), "luke": (MLM, dict(SMALL, max_position_embeddings=70, entity_vocab_size=5, entity_emb_size=6)),
    "longformer": (MLM, dict(SMALL, max_position_embeddings=70, attention_window=64)),
    "mobilebert": (MLM, dict(SMALL, num_hidden_layers=1, embedding_size=8, intra_bottleneck_size=12, num_feedforward_networks=2)),
    "squeezebert": (MLM, dict(SMALL, embedding_size=24)),
    "convbert": (MLM, dict(SMALL, num_attention_heads=8, embedding_size=24)),
    "funnel": (MLM, dict(d_model=24, block_sizes=[1, 2, 1], block_repeats=[1, 1, 1], n_head=6, d_head=4, d_inner=40, num_decoder_layers=1, vocab_size=64)),
    "xlnet": (CAUSAL, dict(d_model=24, n_layer=2, n_head=6, d_inner=40, vocab_size=64)),
    "speech_to_text": (SPEECH, dict(TWO, max_position_embeddings=None, input_feat_per_channel=6, conv_channels=16)),
}
WEIGHTS = {"mobilebert": 0.5}  # without norms larger ones overflow, and round too much in f32
ROUNDED = {"roformer"}  # stores its angles in the dtype of the config
ZEROED = {("funnel", "pad_token_id")}  # loading, transformers sets the stored row of that token to zeros
NARROW = {"fsmt", "xglm", "xlnet"}  # masks, and segments, do not go with float64
ATTENTION = {"falcon": "sdpa"}  # eager Falcon adds ALiBi twice
TOKENS = 40

# ---- values ---------------------------------------------------------------------------

ACTIVATIONS = ["gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_python",
               "quick_gelu", "relu", "relu2", "relu6", "silu", "swish", "tanh", "sigmoid",
               "mish", "linear", "laplace", "leaky_relu", "gelu_10", "gelu_accurate",
               "hardswish", "sqrtsoftplus", "xielu"]
ROPES = [
    {"rope_type": "default", "rope_theta": 500.0},
    {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0},
    {"rope_type": "dynamic", "rope_theta": 500.0, "factor": 2.0},
    {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0,
     "original_max_position_embeddings": 16},
    {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "beta_fast": 4.0, "beta_slow": 0.5,
     "mscale": 1.0, "mscale_all_dim": 0.4, "truncate": False,
     "original_max_position_embeddings": 16},
    {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "attention_factor": 0.7,
     "original_max_position_embeddings": 16},
    {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
     "high_freq_factor": 4.0, "original_max_position_embeddings": 48},
    {"rope_type": "longrope", "rope_theta": 500.0, "short_factor": [1.5], "long_factor": [2.5],
     "original_max_position_embeddings": 16},
    {"rope_type": "proportional", "rope_theta": 500.0, "factor": 2.0},
    {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5},
    {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0, "partial_rotary_factor": 0.5},
    {"type": "linear", "factor": 2.0}, {}, None,
]
ENUMS = {
    "hidden_act": ACTIVATIONS, "hidden_activation": ACTIVATIONS, "activation": ACTIVATIONS,
    "activation_function": ACTIVATIONS,
    "feed_forward_proj": ["relu", "gelu", "gated-gelu", "gated-silu", "gated-relu", "silu",
                          "gelu_new", "gated-gelu_new"],
    "attention_type": ["original_full", "block_sparse", "relative_shift", "factorized"], "encoder_attention_type": ["local", "transient-global"],
    "langs": [["en", "ru"]], "ff_activation": ACTIVATIONS, "attn_type": ["bi", "uni"],
    "pooling_type": ["mean", "max"], "block_repeats": [[1, 2, 2], [2, 1, 1], [1, 3, 1], [1, 1], None],
    "block_sizes": [[2, 1, 1], [1, 1], [1, 1, 1, 1]],
    "summary_type": ["last", "first", "mean", "cls_index", "attn"],
    "topk_method": ["greedy", "group_limited_greedy", "noaux_tc"],
    "attn_config.attn_type": ["multihead_attention", "multiquery_attention"],
    "attn_config.attn_impl": ["torch", "triton"],
    "norm_type": ["low_precision_layernorm", "layernorm"],
    "init_device": ["cpu", "meta"],
    "dtype": ["float32", "bfloat16"],
    "problem_type": ["regression", "single_label_classification"],
    "mlp_only_layers": [[], [0], [1]],
    "rope_parameters": ROPES, "rope_scaling": ROPES,
    "dense_act_fn": ["relu", "gelu_new"], "summary_activation": ["tanh"],
    "id2label": [{"0": "a", "1": "b", "2": "c"}], "label2id": [{"a": 0, "b": 1}],
    "architectures": [], "afn": ["gelu", "relu", "silu", "swish", "tanh"],
    "attention_types": [[[["local"], 2]], [[["local", "global"], 1]], [[["global"], 1], [["local"], 1]]],
    "attention_layers": [["local", "global"], ["local", "local"]],
}
LAYERS = [["full_attention", "full_attention"], ["sliding_attention", "full_attention"],
          ["full_attention", "sliding_attention"], ["sliding_attention"] * 2,
          ["chunked_attention", "full_attention"]]
NUMBERS = {
    "vocab_size": [70, 80], "hidden_size": [48, 96], "d_model": [48, 96], "n_embd": [64, 96],
    "num_attention_heads": [3, 12], "n_head": [2, 8], "n_heads": [3, 12], "num_heads": [3, 4],
    "num_key_value_heads": [1, 6], "num_kv_heads": [1, 3], "head_dim": [4, 16],
    "rotary_dim": [8, 2], "max_position_embeddings": [64, 128], "n_positions": [64, 128],
    "n_ctx": [64, 128], "max_seq_len": [64, 128], "sliding_window": [5, 64],
    "num_experts_per_tok": [1, 3], "num_local_experts": [2, 6], "num_experts": [2, 6],
    "n_routed_experts": [4, 12], "n_group": [1, 2], "topk_group": [1, 2], "d_kv": [4, 8],
    "num_ln_in_parallel_attn": [1, 2], "word_embed_proj_dim": [16, 24],
    "max_window_layers": [0, 1], "n_inner": [40, 50], "ffn_hidden_size": [40, 50],
    "logit_scale": [0.5, 2.0], "clip_qkv": [0.3, 0.6], "attn_config.clip_qkv": [0.3, 0.6],
    "attn_config.softmax_scale": [0.3, 0.6], "attn_config.alibi_bias_max": [4, 16],
    "final_logit_softcapping": [5.0, 20.0], "attn_logit_softcapping": [2.0, 20.0],
    "layer_norm_epsilon": [1e-3, 0.1], "layer_norm_eps": [1e-3, 0.1],
    "rms_norm_eps": [1e-3, 0.1], "norm_epsilon": [1e-3, 0.1],
    "original_max_position_embeddings": [16, 64], "rope_theta": [100.0, 5e5],
    "partial_rotary_factor": [0.5, 1.0], "no_rope_layer_interval": [2, 3], "rotary_pct": [0.5, 1.0],
    "rotary_emb_base": [100, 5000], "sliding_window_pattern": [1, 2],
    "_sliding_window_pattern": [1, 2], "rope_local_base_freq": [100.0, 5000.0],
    "seq_length": [64, 128], "qk_rope_head_dim": [8, 2], "type_vocab_size": [1, 3],
    "attention_window": [120, [126]], "block_size": [2, 7], "num_random_blocks": [1, 2], "local_radius": [40, 60],
    "decoder_sparse_step": [1, 2], "moe_k": [1, 3], "moe_topk": [1, 3], "moe_num_experts": [2, 6], "window_size": [5, 64], "pad_token_id": [0, 3], "conv_channels": [20, 24], "clamp_len": [3, 100], "mem_len": [4, 100], "conv_kernel_sizes": [[3, 5], [5, 7], [4, 5], [5], [5, 5, 5]], "num_conv_layers": [1, 3],
    "q_lora_rank": [8, 20],
}
BOOLS = {"tie_word_embeddings", "use_bidirectional_attention", "tie_encoder_decoder"}
# names that classes convert, and that old files have
LEGACY = {
    "rope": ["rope_theta", "rope_scaling", "partial_rotary_factor",
             "original_max_position_embeddings"],
    "gpt_neox": ["rotary_pct", "rotary_emb_base"],
    "gemma3_text": ["sliding_window_pattern", "rope_local_base_freq", "rope_theta",
                    "rope_scaling"],
    "olmo3": ["rope_theta", "rope_scaling"], "cohere2": ["sliding_window_pattern"],
    "bloom": ["seq_length", "n_embed"], "falcon": ["n_embed"],
}
NESTED_ROPES = {"gemma3_text", "olmo3"}
ALIAS_OF = {"hidden_size": "n_embd", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer",
            "max_position_embeddings": "n_positions"}
# names and descriptions, which are no settings
SKIP = {"model_type", "transformers_version", "_name_or_path", "attribute_map", "architectures"}


def values(key, base, cls_map):
    """The values that KEY, now BASE, is changed to."""
    name = key.split(".")[-1]
    target = cls_map.get(name)
    if key == "layer_types":
        return [None] if base is None else [(v * len(base))[:len(base)] for v in LAYERS] + [None]
    if key == "no_rope_layers":
        return [[0, 1] * 2, [1, 1, 1, 0], [0] * 4, None]
    for table in (ENUMS, NUMBERS):
        for k in (key, name, target):
            if k in table:
                return [v for v in table[k] if v != base] + ([None] if table is NUMBERS else [])
    if isinstance(base, bool) or name in BOOLS:
        return [True, False, None]
    if isinstance(base, int):
        return [base + 1, base + 2, None]
    if isinstance(base, float):
        return [base * 0.5 + 0.1, base * 2 + 0.2, None]
    return [1, True, None]


class Absent:
    """Stands for no value at all: the class has a default of its own."""


ABSENT = Absent()


def written(value):
    return "absent" if value is ABSENT else json.dumps(value)


def can_be_absent(name, key, base):
    """Without it the model is another, but no larger one."""
    default = CONFIG_MAPPING[name]().to_dict().get(key)
    return key in base and "layers" not in key and not (isinstance(default, int) and default > 300)


# ---- one trial ------------------------------------------------------------------------

def with_key(config, key, value):
    out = json.loads(json.dumps(config))
    at = out
    *parents, last = key.split(".")
    for p in parents:
        at = at.setdefault(p, {})
    if value is ABSENT:
        at.pop(last, None)
    else:
        at[last] = value
    return out


def expand_longrope(config, rope):
    """As many factors as the model has frequencies."""
    if isinstance(rope, dict) and rope.get("rope_type") == "longrope":
        dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        n = dim // 2
        return {**rope, "short_factor": [1.5 + 0.1 * i for i in range(n)],
                "long_factor": [2.5 + 0.1 * i for i in range(n)]}
    return rope


def frames(config):
    width = config.input_feat_per_channel * config.input_channels
    return [[math.sin(0.7 * i + 1.3 * k) for k in range(width)] for i in range(TOKENS)]


def built(kind, config):
    cls = getattr(transformers, kind)
    return cls.from_config(config) if kind.startswith("Auto") else cls(config)


# the output that is compared, where it is not the logits; and its name in tp-run
OUTPUT = {"BertGenerationEncoder": ("last_hidden_state",) * 2, "DPRQuestionEncoder": ("pooler_output",) * 2,
          "VisualBertForPreTraining": ("prediction_logits", "logits")}


def logits(path, kind, ids, attention, wide=torch.float64):
    model, report = getattr(transformers, kind).from_pretrained(
        path, dtype=wide, experts_implementation="eager",
        attn_implementation=attention, output_loading_info=True)
    model.eval()
    if report["missing_keys"] or report["mismatched_keys"]:
        raise ValueError(f"missing {report}")
    with torch.no_grad():
        given = {"input_ids": torch.tensor([ids])}
        if kind == SPEECH:
            given = {"input_features": torch.tensor([frames(model.config)], dtype=wide)}
        if kind in (SEQ2SEQ, SPEECH):
            given["decoder_input_ids"] = torch.tensor([[0] + ids[:9]])
            return models.stack_logits(model, given)[0]
        elif kind == CAUSAL:
            given["use_cache"] = False
        return getattr(model(**given), OUTPUT.get(kind, ["logits"])[0])[0]


def make(path, kind, config, seed):
    """A directory with CONFIG as it is and weights of the shapes that its class gives."""
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)

    def write():
        with open(os.path.join(path, "config.json"), "w") as f:
            json.dump(config, f, indent=1)

    write()
    model = built(kind, transformers.AutoConfig.from_pretrained(path))
    models.fill(model, seed)
    for p in model.parameters():
        p.data.mul_(WEIGHTS.get(config["model_type"], 1))
    model.to(torch.float32)
    model.save_pretrained(path)
    for extra in ("generation_config.json",):
        if os.path.exists(os.path.join(path, extra)):
            os.remove(os.path.join(path, extra))
    write()


def run(program, path, kind, ids):
    out = os.path.join(path, "got.safetensors")
    words = [program, "logits", "-q", "-o", out]
    if kind == SEQ2SEQ:
        words += ["--source-ids", ",".join(map(str, ids)),
                  "--ids", ",".join(map(str, [0] + ids[:9]))]
    elif kind == SPEECH:
        pair = os.path.join(path, "pair.json")
        with open(pair, "w") as f:
            json.dump({"features": frames(transformers.AutoConfig.from_pretrained(path)), "ids": [0] + ids[:9]}, f)
        words += ["--input", pair]
    else:
        words += ["--ids", ",".join(map(str, ids))]
    done = subprocess.run(words + [path], capture_output=True, text=True)
    if done.returncode:
        return done.returncode, done.stderr.strip()
    return 0, load_file(out)[OUTPUT.get(kind, ["", "logits"])[1]].double().squeeze(0)


def verdict(program, path, name, config):
    kind = BASE[name][0]
    rng = np.random.RandomState(zlib.crc32(name.encode()) ^ 0x51)
    ids = rng.randint(4, 60, TOKENS).tolist()
    try:
        make(path, kind, config, name)
        want = logits(path, kind, ids, ATTENTION.get(name, "eager"),
                      torch.float32 if name in NARROW else torch.float64).double()
        if not torch.isfinite(want).all():
            return "fails", "not finite"
    except Exception as e:  # whatever its validation or its arithmetic raises
        return "fails", str(e).strip().split("\n")[-1][:100]
    status, got = run(program, path, kind, ids)
    if status == 3:
        return "refused", got
    if status:
        return f"STATUS {status}", got
    if got.shape != want.shape:
        return "SHAPE", f"{tuple(got.shape)} for {tuple(want.shape)}"
    off = ((got - want).abs().max() / want.abs().max()).item()
    return ("same", "") if off < 1e-4 else ("DIFFERENT", f"{off:.2g}")


def base_config(name):
    kind, settings = BASE[name]
    if settings is None:
        with open(os.path.join(HERE, "..", "data", "keys", "base.json")) as f:
            return json.load(f)[name]
    settings = {k: v for k, v in settings.items() if v is not None}
    config = CONFIG_MAPPING[name](**settings)
    path = tempfile.mkdtemp()
    built(kind, config).save_pretrained(path)
    with open(os.path.join(path, "config.json")) as f:
        out = json.load(f)
    shutil.rmtree(path)
    if "num_mtp_layers" in out:
        out.pop("num_mtp_layers")
    return out


def keys_of(name, base):
    """The keys that a config of this type may have, with their values in BASE."""
    config = CONFIG_MAPPING[name]()
    out = {k: base.get(k, v) for k, v in config.to_dict().items() if k not in SKIP}
    nested = out.pop("attn_config", None)
    if nested:
        common = set(transformers.PreTrainedConfig().to_dict())
        out.update({f"attn_config.{k}": base["attn_config"].get(k, v)
                    for k, v in nested.items() if k not in common | SKIP})
    if "rope_parameters" in out and name not in NESTED_ROPES:
        for k in LEGACY["rope"]:
            out.setdefault(k, None)
    for k in LEGACY.get(name, []) + list(config.attribute_map):
        out.setdefault(k, None)
    return out


def nested_ropes(rope):
    if rope is None:
        return [None]
    return [{"full_attention": rope, "sliding_attention": {"rope_type": "default"}},
            {"sliding_attention": rope, "full_attention": {"rope_type": "default"}}]


def trials(name, base):
    cls_map = CONFIG_MAPPING[name].attribute_map
    for key, now in sorted(keys_of(name, base).items()):
        if name in ROUNDED and key == "dtype" or (name, key) in ZEROED:
            continue
        if can_be_absent(name, key, base):
            yield key, ABSENT
        for v in values(key, now, {k: cls_map.get(k) for k in [key]}):
            if key in ("rope_parameters", "rope_scaling"):
                v = expand_longrope(base, v)
            if name in NESTED_ROPES and key == "rope_parameters":
                for each in nested_ropes(v):
                    yield key, each
            elif v != now or type(v) is not type(now):
                yield key, v


def write_tables(out, bases, lines, only=""):
    """Replace what the tables say of the types in BASES."""
    os.makedirs(out, exist_ok=True)
    base, table = (os.path.join(out, name) for name in ("base.json", "verdicts.tsv"))
    if os.path.exists(base):
        with open(base) as f:
            bases = {**json.load(f), **bases}
        with open(table) as f:
            old = [tuple(line.rstrip("\n").split("\t")) for line in f]
        new, known = {line[0] for line in lines}, {line[:3]: line for line in lines}
        if only:
            lines = [known.get(line[:3], line) for line in old]
        else:
            lines = [line for line in old if line[0] not in new] + lines
    order = list(dict.fromkeys([*bases, *BASE]))
    with open(base, "w") as f:
        f.write("{\n" + ",\n".join(f"{json.dumps(n)}: {json.dumps(bases[n], sort_keys=True)}"
                                   for n in order if n in bases) + "\n}\n")
    with open(table, "w") as f:
        for line in sorted(lines, key=lambda line: order.index(line[0])):
            f.write("\t".join(line) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", default=os.path.join(HERE, "..", "..", "bin"))
    parser.add_argument("-o", dest="out", default=os.path.join(HERE, "..", "data", "keys"))
    parser.add_argument("--only", default="", help="try again only the values with this text, and keep the other lines")
    parser.add_argument("types", nargs="*")
    args = parser.parse_args()
    names = args.types or list(BASE)
    scratch = tempfile.mkdtemp()
    bases, lines, bad = {}, [], 0
    for name in names:
        bases[name] = base_config(name)
        v, why = verdict(os.path.join(args.bin, "tp-run"), scratch, name, bases[name])
        if v != "same":
            print(f"{name}\t-\t-\t{v}\t{why}", flush=True)
            bad += 1
            continue
        for key, value in trials(name, bases[name]):
            if args.only not in written(value):
                continue
            v, why = verdict(os.path.join(args.bin, "tp-run"), scratch, name,
                             with_key(bases[name], key, value))
            lines.append((name, key, written(value), v))
            if v not in ("same", "fails"):
                print(f"{name}\t{key}\t{written(value)[:60]}\t{v}\t{why}", flush=True)
            bad += v not in ("same", "refused", "fails")
    shutil.rmtree(scratch)
    count = {v: sum(line[3] == v for line in lines) for v in ("same", "refused", "fails")}
    print(count, f"refused {count['refused'] / max(1, count['refused'] + count['same']):.1%}",
          f"{bad} wrong")
    if bad:
        sys.exit(1)
    write_tables(args.out, bases, lines, args.only)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""count-parameters.py - lines of tests/data/configs.tsv: published shapes, and their parameters

    count-parameters.py [NAME...]

The shapes are those of the models' config.json; the parameters are counted by the classes of
`transformers` (5.23) on PyTorch's meta device, tied tensors once, the correction biases of
experts and of logits, which are buffers there, as what files hold.
"""
import json
import sys

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

transformers.logging.set_verbosity_error()

def two(layers, heads, ffn, vocab, hidden, decoders=None, **kw):
    return dict(encoder_layers=layers, decoder_layers=decoders or layers, encoder_attention_heads=heads,
                decoder_attention_heads=heads, encoder_ffn_dim=ffn, decoder_ffn_dim=ffn, vocab_size=vocab,
                d_model=hidden, **kw)


SHAPES = {
    "bart-base": ("bart", two(6, 12, 3072, 50265, 768)),
    "bart-large-cnn": ("bart", two(12, 16, 4096, 50264, 1024)),
    "mbart-large-cc25": ("mbart", two(12, 16, 4096, 250027, 1024, scale_embedding=True)),
    "barthez": ("mbart", two(6, 12, 3072, 50002, 768)),
    "plbart-base": ("plbart", two(6, 12, 3072, 50005, 768)),
    "opus-mt-en-de": ("marian", two(6, 8, 2048, 58101, 512, max_position_embeddings=512, activation_function="swish",
        scale_embedding=True)),
    "pegasus-large": ("pegasus", two(16, 16, 4096, 96103, 1024, scale_embedding=True, activation_function="relu")),
    "m2m100_418M": ("m2m_100", two(12, 16, 4096, 128112, 1024)),
    "nllb-200-3.3B": ("m2m_100", two(24, 16, 8192, 256206, 2048)),
    "blenderbot-400M-distill": ("blenderbot", two(2, 32, 5120, 8008, 1280, 12)),
    "blenderbot_small-90M": ("blenderbot-small", two(8, 16, 2048, 54944, 512)),
    "wmt19-en-de": ("fsmt", {**two(6, 16, 8192, 42024, 1024), "decoder_ffn_dim": 4096, "src_vocab_size": 42024,
        "tgt_vocab_size": 42024}),
    "led-base-16384": ("led", two(6, 12, 3072, 50265, 768, attention_window=1024)),
    "bigbird-pegasus-large": ("bigbird_pegasus", two(16, 16, 4096, 96103, 1024)),
    "prophetnet-large-uncased": ("prophetnet", dict(hidden_size=1024, num_encoder_layers=12, num_decoder_layers=12,
        num_encoder_attention_heads=16, num_decoder_attention_heads=16, encoder_ffn_dim=4096, decoder_ffn_dim=4096, vocab_size=30522,
        max_position_embeddings=512, ngram=2, num_buckets=32)),
    "umt5-small": ("umt5", dict(d_model=512, d_kv=64, d_ff=1024, num_layers=8, num_heads=6, vocab_size=256384)),
    "long-t5-local-base": ("longt5", dict(d_model=768, d_kv=64, d_ff=2048, num_layers=12, num_heads=12,
        vocab_size=32128, feed_forward_proj="gated-gelu")),
    "granite-3.1-8b": ("granite", dict(hidden_size=4096, intermediate_size=12800, num_hidden_layers=40,
        num_attention_heads=32, num_key_value_heads=8, vocab_size=49155, max_position_embeddings=131072,
        tie_word_embeddings=True, embedding_multiplier=12.0, attention_multiplier=0.0078125, residual_multiplier=0.22,
        logits_scaling=16.0, rms_norm_eps=1e-05, rope_theta=10000000.0)),
    "command-r7b": ("cohere2", dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=8, vocab_size=256000, sliding_window=4096,
        max_position_embeddings=8192, rope_theta=50000.0, logit_scale=0.25)),
    "olmo-3-7b": ("olmo3", dict(hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=32, vocab_size=100278, sliding_window=4096,
        max_position_embeddings=65536)),
    "smollm3-3b": ("smollm3", dict(vocab_size=128256, hidden_size=2048, intermediate_size=11008, num_hidden_layers=36,
        num_attention_heads=16, num_key_value_heads=4, max_position_embeddings=65536, rope_theta=5000000.0)),
    "stablelm-3b-4e1t": ("stablelm", dict(vocab_size=50304, hidden_size=2560, intermediate_size=6912,
        num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=32)),
    "glm-4-9b-chat": ("glm", dict(vocab_size=151552, hidden_size=4096, intermediate_size=13696, num_hidden_layers=40,
        num_attention_heads=32, num_key_value_heads=2, head_dim=128)),
    "glm-4-9b-0414": ("glm4", dict(vocab_size=151552, hidden_size=4096, intermediate_size=13696, num_hidden_layers=40,
        num_attention_heads=32, num_key_value_heads=2, head_dim=128, attention_bias=False)),
    "ernie-4.5-0.3b": ("ernie4_5", dict(vocab_size=103424, hidden_size=1024, intermediate_size=3072,
        num_hidden_layers=18, num_attention_heads=16, num_key_value_heads=2, head_dim=128)),
    "seed-oss-36b": ("seed_oss", dict(vocab_size=155136, hidden_size=5120, intermediate_size=27648,
        num_hidden_layers=64, num_attention_heads=80, num_key_value_heads=8, head_dim=128)),
    "exaone-4.0-32b": ("exaone4", dict(vocab_size=102400, hidden_size=5120, intermediate_size=27392,
        num_hidden_layers=64, num_attention_heads=40, num_key_value_heads=8, head_dim=128, sliding_window=4096,
        max_position_embeddings=131072)),
    "hunyuan-7b": ("hunyuan_v1_dense", dict(vocab_size=128167, hidden_size=4096, intermediate_size=14336,
        num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, head_dim=128, tie_word_embeddings=True)),
    "afm-4.5b": ("arcee", dict(vocab_size=128004, hidden_size=2560, intermediate_size=18432, num_hidden_layers=36,
        num_attention_heads=20, num_key_value_heads=4, head_dim=128)),
    "minitron-8b": ("nemotron", dict(vocab_size=256000, hidden_size=4096, intermediate_size=16384,
        num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=32, head_dim=128)),
    "helium-1-preview": ("helium", dict(vocab_size=48000, hidden_size=2560, intermediate_size=7040,
        num_hidden_layers=24, num_attention_heads=20, num_key_value_heads=20, head_dim=128)),
    "ministral-8b": ("ministral", dict(vocab_size=131072, hidden_size=4096, intermediate_size=12288,
        num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8, head_dim=128, sliding_window=32768)),
    "gpt-neo-1.3b": ("gpt_neo", dict(vocab_size=50257, hidden_size=2048, num_layers=24, num_heads=16,
        attention_types=[[["global", "local"], 12]])),
    "openai-gpt": ("openai-gpt", dict(vocab_size=40478, n_embd=768, n_layer=12, n_head=12, n_positions=512)),
    "biogpt": ("biogpt", dict(vocab_size=42384, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
        intermediate_size=4096)),
    "persimmon-8b": ("persimmon", dict(vocab_size=262144, hidden_size=4096, intermediate_size=16384,
        num_hidden_layers=36, num_attention_heads=64)),
    "dots.llm1": ("dots1", dict(vocab_size=152064, hidden_size=4096, intermediate_size=10944,
        moe_intermediate_size=1408, num_hidden_layers=62, num_attention_heads=32, num_key_value_heads=32,
        head_dim=128, n_shared_experts=2, n_routed_experts=128, num_experts_per_tok=6, first_k_dense_replace=1,
        n_group=1, topk_group=1)),
    "glm-4.5-air": ("glm4_moe", dict(vocab_size=151552, hidden_size=4096, intermediate_size=10944,
        moe_intermediate_size=1408, num_hidden_layers=46, num_attention_heads=96, num_key_value_heads=8, head_dim=128,
        attention_bias=True, n_shared_experts=1, n_routed_experts=128, num_experts_per_tok=8,
        first_k_dense_replace=1)),
    "ernie-4.5-21b-a3b": ("ernie4_5_moe", dict(vocab_size=103424, hidden_size=2560, intermediate_size=12288,
        moe_intermediate_size=1536, num_hidden_layers=28, num_attention_heads=20, num_key_value_heads=4,
        moe_num_experts=64, moe_k=6, moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=-1)),
    "hunyuan-a13b": ("hunyuan_v1_moe", dict(vocab_size=128167, hidden_size=4096, intermediate_size=3072,
        num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, head_dim=128, num_experts=64, moe_topk=8,
        tie_word_embeddings=True)),
    "minimax-m2": ("minimax_m2", dict(vocab_size=200064, hidden_size=3072, intermediate_size=1536,
        num_hidden_layers=62, num_attention_heads=48, num_key_value_heads=8, head_dim=128, num_local_experts=256,
        num_experts_per_tok=8, rotary_dim=64)),
    "gpt-oss-20b": ("gpt_oss", dict(vocab_size=201088, hidden_size=2880, intermediate_size=2880, num_hidden_layers=24,
        num_attention_heads=64, num_key_value_heads=8, head_dim=64, num_local_experts=32, num_experts_per_tok=4)),
    "gpt-oss-120b": ("gpt_oss", dict(vocab_size=201088, hidden_size=2880, intermediate_size=2880, num_hidden_layers=36,
        num_attention_heads=64, num_key_value_heads=8, head_dim=64, num_local_experts=128, num_experts_per_tok=4)),
    "phi-3.5-moe": ("phimoe", dict(vocab_size=32064, hidden_size=4096, intermediate_size=6400, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=8, num_local_experts=16, num_experts_per_tok=2, attention_bias=True, lm_head_bias=True)),
    "apertus-8b": ("apertus", dict(vocab_size=131072, hidden_size=4096, intermediate_size=21504, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=8)),
    "llama-4-scout-text": ("llama4_text", dict(vocab_size=202048, hidden_size=5120, intermediate_size=8192, intermediate_size_mlp=16384,
        num_hidden_layers=48, num_attention_heads=40, num_key_value_heads=8, head_dim=128, num_local_experts=16)),
    "mamba2-2.7b": ("mamba2", dict(vocab_size=50288, hidden_size=2560, num_hidden_layers=64, num_heads=80, head_dim=64, n_groups=1,
        state_size=128, tie_word_embeddings=True)),
    "mamba-codestral-7b": ("mamba2", dict(vocab_size=32768, hidden_size=4096, num_hidden_layers=64, num_heads=128, n_groups=8)),
    "qwen3-next-80b-a3b": ("qwen3_next", dict(vocab_size=151936, hidden_size=2048, num_hidden_layers=48, num_experts=512,
        num_experts_per_tok=10, moe_intermediate_size=512, shared_expert_intermediate_size=512)),
    "qwen3.5-9b-text": ("qwen3_5_text", dict(vocab_size=248320, hidden_size=4096, intermediate_size=12288, num_hidden_layers=32)),
    "qwen3.5-35b-a3b-text": ("qwen3_5_moe_text", dict(vocab_size=248320, hidden_size=2048, num_hidden_layers=40, num_experts=256)),
    "bamba-9b": ("bamba", dict(vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=8, mamba_n_heads=128, mamba_d_head=64, mamba_d_state=128, attn_layer_indices=[9, 18, 27])),
    "granite-4.0-h-tiny": ("granitemoehybrid", dict(vocab_size=100352, hidden_size=1536, intermediate_size=512, num_hidden_layers=40,
        num_attention_heads=12, num_key_value_heads=4, num_local_experts=64, num_experts_per_tok=6, shared_intermediate_size=1024,
        mamba_n_heads=48, mamba_d_head=64, mamba_d_state=128, tie_word_embeddings=True,
        layer_types=["attention" if i in (5, 15, 25, 35) else "mamba" for i in range(40)])),
    "falcon-h1-1.5b": ("falcon_h1", dict(vocab_size=65537, hidden_size=2048, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=8,
        num_key_value_heads=2, head_dim=128, mamba_d_ssm=3072, mamba_n_heads=48, mamba_d_head=64, mamba_d_state=256)),
    "mamba-2.8b": ("mamba", dict(vocab_size=50280, hidden_size=2560, num_hidden_layers=64)),
    "falcon-mamba-7b": ("falcon_mamba", dict(vocab_size=65024, hidden_size=4096, num_hidden_layers=64, tie_word_embeddings=False)),
    "jamba-v0.1": ("jamba", dict(vocab_size=65536)),
    "nemotron-h-8b": ("nemotron_h", dict(vocab_size=131072, hidden_size=4096, intermediate_size=21504, num_attention_heads=32, num_key_value_heads=8,
        mamba_num_heads=128, mamba_head_dim=64, n_groups=8, ssm_state_size=128,
        hybrid_override_pattern="M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-", num_hidden_layers=52)),
    "lfm2-8b-a1b": ("lfm2_moe", dict(vocab_size=65536, num_hidden_layers=24,
        layer_types=["full_attention" if i in (2, 6, 10, 14, 18, 21) else "conv" for i in range(24)])),
    "minimax-text-01": ("minimax", dict(vocab_size=200064, hidden_size=6144, intermediate_size=9216, num_hidden_layers=80, num_attention_heads=64,
        num_key_value_heads=8, head_dim=128, num_local_experts=32,
        layer_types=["full_attention" if i % 8 == 7 else "linear_attention" for i in range(80)])),
    "recurrentgemma-2b": ("recurrent_gemma", dict(num_key_value_heads=1)),
    "kimi-linear-48b-a3b": ("kimi_linear", dict(num_key_value_heads=32, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
        num_experts_per_tok=8)),
    "lfm2-1.2b": ("lfm2", dict(vocab_size=65536, hidden_size=2048, intermediate_size=12288, num_hidden_layers=16, num_attention_heads=32,
        num_key_value_heads=8, layer_types=["full_attention" if i in (2, 5, 8, 10, 12, 14) else "conv" for i in range(16)])),
    "ctrl": ("ctrl", dict(vocab_size=246534, n_embd=1280, n_layer=48, n_head=16, dff=8192)),
    "s2t-small-librispeech-asr": ("speech_to_text", {**two(12, 4, 2048, 10000, 256, 6)}),
    "s2t-medium-mustc-multilingual-st": ("speech_to_text", two(12, 8, 2048, 10000, 512, 6)),
    "xlnet-base-cased": ("xlnet", dict(d_model=768, n_layer=12, n_head=12, d_inner=3072, vocab_size=32000)),
    "xlnet-large-cased": ("xlnet", dict(d_model=1024, n_layer=24, n_head=16, d_inner=4096, vocab_size=32000)),
    "xglm-564m": ("xglm", dict(vocab_size=256008, d_model=1024, ffn_dim=4096, num_layers=24, attention_heads=16)),
}

BERT = dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072)
FAR = dict(relative_attention=True, pos_att_type=["p2c", "c2p"], position_biased_input=False, type_vocab_size=0, max_relative_positions=-1)
LARGE = dict(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
# encoders, counted without a head, but for those that are masked
ENCODERS = {
    "distilbert-base": ("distilbert", dict(vocab_size=30522, dim=768, n_layers=6, n_heads=12, hidden_dim=3072)),
    "electra-small": ("electra", dict(vocab_size=30522, embedding_size=128, hidden_size=256, num_hidden_layers=12,
        num_attention_heads=4, intermediate_size=1024)),
    "electra-large": ("electra", dict(vocab_size=30522, embedding_size=1024, **LARGE)),
    "albert-base-v2": ("albert", dict(vocab_size=30000, embedding_size=128, **BERT)),
    "camembert-base": ("camembert", dict(vocab_size=32005, max_position_embeddings=514, type_vocab_size=1, pad_token_id=1, **BERT)),
    "xlm-roberta-large": ("xlm-roberta", dict(vocab_size=250002, max_position_embeddings=514, type_vocab_size=1, pad_token_id=1, **LARGE)),
    "all-mpnet-base-v2": ("mpnet", dict(vocab_size=30527, max_position_embeddings=514, **BERT)),
    "modernbert-base": ("modernbert", dict(vocab_size=50368, hidden_size=768, intermediate_size=1152, num_hidden_layers=22, num_attention_heads=12)),
    "nomic-embed-text-v1.5": ("nomic_bert", dict(vocab_size=30528, **BERT)),
    "deberta-v3-base": ("deberta-v2", dict(vocab_size=128100, position_buckets=256, norm_rel_ebd="layer_norm", share_att_key=True, **FAR, **BERT)),
    "deberta-base": ("deberta", dict(vocab_size=50265, **FAR, **BERT)),
    "bigbird-base": ("big_bird", dict(vocab_size=50358, max_position_embeddings=4096, **BERT)),
    "megatron-bert-345m": ("megatron-bert", dict(vocab_size=29056, **LARGE)),
    "dpr-question": ("dpr", dict(vocab_size=30522, **BERT)),
    "bert-generation-l24": ("bert-generation", dict(vocab_size=50358, **LARGE)),
    "ibert-base": ("ibert", dict(vocab_size=50265, max_position_embeddings=514, type_vocab_size=1, pad_token_id=1, **BERT)),
    "xlm-mlm-en-2048": ("xlm", dict(vocab_size=30145, emb_dim=2048, n_layers=12, n_heads=16)),
    "flaubert-base-cased": ("flaubert", dict(vocab_size=68729, emb_dim=768, n_layers=12, n_heads=12)),
    "layoutlm-base": ("layoutlm", dict(vocab_size=30522, **BERT)),
    "tapas-base": ("tapas", dict(vocab_size=30522, type_vocab_sizes=[3, 256, 256, 2, 256, 256, 10], **BERT)),
    "mobilebert-uncased": ("mobilebert", dict(vocab_size=30522, hidden_size=512, num_hidden_layers=24, num_attention_heads=4, intermediate_size=512,
        embedding_size=128, intra_bottleneck_size=128, num_feedforward_networks=4)),
    "squeezebert-uncased": ("squeezebert", dict(vocab_size=30528, embedding_size=768, **BERT)),
    "conv-bert-base": ("convbert", dict(vocab_size=30522, embedding_size=768, head_ratio=2, conv_kernel_size=9, num_groups=1, **BERT)),
    "conv-bert-medium-small": ("convbert", dict(vocab_size=30522, embedding_size=128, hidden_size=384, num_hidden_layers=12, num_attention_heads=8,
        intermediate_size=1536, head_ratio=2, conv_kernel_size=9, num_groups=2)),
    "funnel-small": ("funnel", dict(architectures=["FunnelModel"], vocab_size=30522, block_sizes=[4, 4, 4], d_model=768, n_head=12, d_head=64, d_inner=3072, num_decoder_layers=2)),
    "funnel-medium": ("funnel", dict(architectures=["FunnelModel"], vocab_size=30522, block_sizes=[6, 3, 3], block_repeats=[1, 2, 2], d_model=768, n_head=12,
        d_head=64, d_inner=3072, num_decoder_layers=2)),
    "longformer-base-4096": ("longformer", dict(vocab_size=50265, max_position_embeddings=4098, type_vocab_size=1, pad_token_id=1, attention_window=512, **BERT)),
    "roformer-chinese-base": ("roformer", dict(vocab_size=50000, max_position_embeddings=1536, embedding_size=768, **BERT)),
    "luke-base": ("luke", dict(vocab_size=50267, entity_vocab_size=500000, entity_emb_size=256, max_position_embeddings=514, type_vocab_size=1, pad_token_id=1, **BERT)),
    "luke-base-masked": ("luke", dict(vocab_size=50267, entity_vocab_size=500000, entity_emb_size=256, max_position_embeddings=514, type_vocab_size=1,
        pad_token_id=1, **BERT)),
    "visualbert-vqa-coco-pre": ("visual_bert", dict(vocab_size=30522, visual_embedding_dim=2048, **BERT)),
}

# the heads with global tokens
HEADS = {"-classify": transformers.AutoModelForSequenceClassification, "-answers": transformers.AutoModelForQuestionAnswering,
         "-choices": transformers.AutoModelForMultipleChoice, "-masked": transformers.AutoModelForMaskedLM}
for head in HEADS:
    if head != "-masked":
        ENCODERS["longformer-base-4096" + head] = ENCODERS["longformer-base-4096"]

for name, (kind, settings) in {**SHAPES, **ENCODERS}.items():
    if sys.argv[1:] and name not in sys.argv[1:]:
        continue
    loader = (HEADS[name[name.rindex("-"):]] if name[name.rindex("-"):] in HEADS else transformers.AutoModel if name in ENCODERS
              else transformers.AutoModelForCausalLM)
    with torch.device("meta"):
        config = CONFIG_MAPPING[kind](**settings)
        if name not in ENCODERS and config.is_encoder_decoder:
            loader = (transformers.AutoModelForSpeechSeq2Seq if kind == "speech_to_text" else
                      transformers.AutoModelForSeq2SeqLM)
        model = loader.from_config(config)
    count = model.num_parameters() + sum(
        b.numel() for key, b in model.named_buffers() if key.endswith(("e_score_correction_bias", "expert_bias", "final_logits_bias")))
    config = {"model_type": kind, "architectures": [type(model).__name__], **settings}
    print(name, "exact", count, json.dumps(config), sep="\t")

#!/usr/bin/env python3
"""make-encoders.py - write the tiny encoders of tests/data/encoders and what they answer

    make-encoders.py [-o DIR] [NAME...]

Each is a Hugging Face directory with random weights in bfloat16 and, computed from it by
PyTorch's `transformers` in float64 with eager attention, expected.safetensors (last_hidden_state,
pooler_output, logits: what the model has) and `ids`.  The weights are drawn as in make-models.py
(transformers 5.23, torch 2.13).
"""
import argparse
import importlib.util
import json
import os
import shutil
import zlib

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

here = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("models", os.path.join(here, "make-models.py"))
models = importlib.util.module_from_spec(spec)
spec.loader.exec_module(models)

ANGLES = {"roformer-stored", "roformer-computed"}  # the table drawn as the weights are, and left to the formula

BARE, MLM, CLASS, TAGS, ANSWERS, CHOICE = ("", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification",
                                           "ForQuestionAnswering", "ForMultipleChoice")
SMALL = dict(hidden_size=24, intermediate_size=28, num_hidden_layers=2, num_attention_heads=4, vocab_size=48,
             max_position_embeddings=30, pad_token_id=0)
ODD = dict(SMALL, hidden_size=15, intermediate_size=17, num_attention_heads=5, vocab_size=43)
OLD = dict(emb_dim=24, n_layers=2, n_heads=4, vocab_size=48, max_position_embeddings=30, pad_index=0)
DISTIL = dict(dim=24, hidden_dim=28, n_layers=2, n_heads=4, vocab_size=48, max_position_embeddings=30)
LOCAL = dict(num_hidden_layers=3, global_attn_every_n_layers=2, local_attention=8)

FUNNEL = dict(vocab_size=47, d_model=16, block_sizes=[1, 2, 1], n_head=4, d_head=3, d_inner=19, num_decoder_layers=1)

# name: (class, configuration class, its values)
MODELS = {
    "bert-choice": ("Bert" + CHOICE, "Bert", SMALL),
    "bert-answers": ("Bert" + ANSWERS, "Bert", ODD),
    "camembert": ("Camembert" + MLM, "Camembert", {**SMALL, "pad_token_id": 1}),
    "xlm-roberta-choice": ("XLMRoberta" + CHOICE, "XLMRoberta", {**ODD, "pad_token_id": 1}),
    "electra": ("Electra" + MLM, "Electra", dict(SMALL, embedding_size=10)),
    "electra-class": ("Electra" + CLASS, "Electra", dict(ODD, embedding_size=15, num_labels=3)),
    "electra-found": ("ElectraForPreTraining", "Electra", dict(ODD, embedding_size=7)),
    "distilbert": ("DistilBert" + MLM, "DistilBert", DISTIL),
    "distilbert-class": ("DistilBert" + CLASS, "DistilBert",
                         dict(DISTIL, dim=15, hidden_dim=17, n_heads=5, vocab_size=43, num_labels=3, activation="relu")),
    "albert": ("AlbertForPreTraining", "Albert", dict(SMALL, embedding_size=10, num_hidden_layers=3)),
    "albert-class": ("Albert" + CLASS, "Albert", dict(ODD, embedding_size=15, num_labels=3)),
    "mpnet": ("MPNet" + BARE + "Model", "MPNet", {**SMALL, "pad_token_id": 1}),
    "mpnet-masked": ("MPNet" + MLM, "MPNet", {**ODD, "pad_token_id": 1}),
    "modernbert": ("ModernBert" + MLM, "ModernBert", dict(SMALL, **LOCAL)),
    "modernbert-class": ("ModernBert" + CLASS, "ModernBert", dict(
        ODD, hidden_size=20, **LOCAL, num_labels=3, attention_bias=True, norm_bias=True, mlp_bias=True, classifier_bias=True)),
    "nomic-bert": ("NomicBertModel", "NomicBert", SMALL),
    "nomic-bert-masked": ("NomicBert" + MLM, "NomicBert", dict(ODD, hidden_size=20, tie_word_embeddings=False)),
    "bert-generation": ("BertGenerationEncoder", "BertGeneration", SMALL),
    "bert-generation-odd": ("BertGenerationEncoder", "BertGeneration", ODD),
    "dpr-question": ("DPRQuestionEncoder", "DPR", SMALL),
    "dpr-context": ("DPRContextEncoder", "DPR", dict(ODD, projection_dim=7)),
    "dpr-reader": ("DPRReader", "DPR", ODD),
    "megatron-bert": ("MegatronBertForPreTraining", "MegatronBert", SMALL),
    "megatron-bert-class": ("MegatronBert" + CLASS, "MegatronBert", dict(ODD, num_labels=3)),
    "roformer": ("RoFormer" + MLM, "RoFormer", dict(SMALL, embedding_size=10)),
    "roformer-class": ("RoFormer" + CLASS, "RoFormer", dict(ODD, hidden_size=20, rotary_value=True, num_labels=3)),
    "roformer-choice": ("RoFormer" + CHOICE, "RoFormer", dict(ODD, hidden_size=20, embedding_size=9)),
    "roformer-stored": ("RoFormer" + MLM, "RoFormer", dict(ODD, hidden_size=20, rotary_value=True)),
    "roformer-computed": ("RoFormer" + MLM, "RoFormer", dict(ODD, hidden_size=20, embedding_size=9)),
    "ibert": ("IBert" + MLM, "IBert", {**SMALL, "pad_token_id": 1}),
    "ibert-tags": ("IBert" + TAGS, "IBert", {**ODD, "pad_token_id": 1, "num_labels": 3}),
    "big-bird": ("BigBird" + MLM, "BigBird", dict(SMALL, attention_type="original_full")),
    "big-bird-answers": ("BigBird" + ANSWERS, "BigBird", dict(
        ODD, attention_type="original_full", use_bias=False, rescale_embeddings=True)),
    "big-bird-blocks": ("BigBird" + MLM, "BigBird", dict(SMALL, max_position_embeddings=66, block_size=4, num_random_blocks=1)),
    "big-bird-blocks-tags": ("BigBird" + TAGS, "BigBird", dict(ODD, max_position_embeddings=66, block_size=3, num_random_blocks=2,
                                                               num_labels=3)),
    "luke": ("LukeModel", "Luke", {**SMALL, "pad_token_id": 1, "entity_vocab_size": 5, "entity_emb_size": 6}),
    "luke-class": ("Luke" + CLASS, "Luke", {**ODD, "pad_token_id": 1, "entity_vocab_size": 5, "entity_emb_size": 6,
                                            "use_entity_aware_attention": False, "num_labels": 3}),
    "longformer": ("Longformer" + MLM, "Longformer", {**SMALL, "pad_token_id": 1, "attention_window": [8, 4]}),
    "longformer-tags": ("Longformer" + TAGS, "Longformer", {**ODD, "pad_token_id": 1, "attention_window": 6, "num_labels": 3}),
    "longformer-class": ("Longformer" + CLASS, "Longformer", {**ODD, "pad_token_id": 1, "attention_window": [6, 4], "num_labels": 3}),
    "longformer-answers": ("Longformer" + ANSWERS, "Longformer", {**ODD, "hidden_size": 20, "pad_token_id": 1, "attention_window": 4}),
    "longformer-choice": ("Longformer" + CHOICE, "Longformer", {**ODD, "hidden_size": 20, "pad_token_id": 1, "attention_window": 6}),
    "deberta-v2": ("DebertaV2" + MLM, "DebertaV2", dict(
        SMALL, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8, norm_rel_ebd="layer_norm", share_att_key=True,
        position_biased_input=False, type_vocab_size=0, max_position_embeddings=64)),
    "deberta-v2-class": ("DebertaV2" + CLASS, "DebertaV2", dict(
        ODD, relative_attention=True, pos_att_type="c2p|p2c", max_relative_positions=12, type_vocab_size=2, num_labels=3,
        pooler_hidden_size=15)),
    "deberta": ("Deberta" + MLM, "Deberta", dict(
        SMALL, relative_attention=True, pos_att_type=["p2c", "c2p"], position_biased_input=False, type_vocab_size=0)),
    "deberta-tags": ("Deberta" + TAGS, "Deberta", dict(
        ODD, relative_attention=True, pos_att_type=["p2c", "c2p"], type_vocab_size=2, num_labels=3, max_relative_positions=24)),
    "xlm": ("XLMWithLMHeadModel", "XLM", OLD),
    "xlm-class": ("XLM" + CLASS, "XLM", dict(OLD, emb_dim=15, n_heads=5, vocab_size=43, num_labels=3, n_langs=3, gelu_activation=False)),
    "flaubert": ("FlaubertWithLMHeadModel", "Flaubert", dict(OLD, pre_norm=True)),
    "flaubert-class": ("Flaubert" + CLASS, "Flaubert", dict(OLD, emb_dim=15, n_heads=5, vocab_size=43, num_labels=3)),
    "layoutlm": ("LayoutLM" + TAGS, "LayoutLM", dict(SMALL, max_2d_position_embeddings=9)),
    "layoutlm-masked": ("LayoutLM" + MLM, "LayoutLM", dict(ODD, max_2d_position_embeddings=9)),
    "tapas": ("Tapas" + MLM, "Tapas", dict(SMALL, type_vocab_sizes=[3, 4, 5, 2, 6, 7, 10])),
    "visual-bert": ("VisualBertForPreTraining", "VisualBert", dict(ODD, visual_embedding_dim=7)),
    "visual-bert-bare": ("VisualBertModel", "VisualBert", dict(SMALL, visual_embedding_dim=9)),
    "xlnet": ("XLNetLMHeadModel", "XLNet", dict(vocab_size=48, d_model=24, n_layer=2, n_head=6, d_inner=36, mem_len=None)),
    "xlnet-class": ("XLNet" + CLASS, "XLNet", dict(vocab_size=47, d_model=30, n_layer=2, n_head=5, d_inner=29, ff_activation="relu",
                                                  num_labels=3)),
    "funnel": ("Funnel" + MLM, "Funnel", FUNNEL),
    "funnel-class": ("Funnel" + CLASS, "Funnel", dict(
        FUNNEL, d_model=12, n_head=5, d_head=3, d_inner=17, block_sizes=[2, 1, 1], block_repeats=[1, 2, 1], truncate_seq=False,
        pool_q_only=False, pooling_type="max", attention_type="factorized", num_labels=3)),
    "tapas-class": ("Tapas" + CLASS, "Tapas", dict(ODD, type_vocab_sizes=[3, 4, 5, 2, 6, 7, 10], num_labels=3,
                                                   reset_position_index_per_cell=False)),
    "mobilebert": ("MobileBert" + MLM, "MobileBert", dict(
        SMALL, embedding_size=8, intra_bottleneck_size=12, num_feedforward_networks=3)),
    "mobilebert-choice": ("MobileBert" + CHOICE, "MobileBert", dict(
        ODD, hidden_size=19, embedding_size=7, intra_bottleneck_size=15, num_feedforward_networks=1, hidden_act="gelu")),
    "squeezebert": ("SqueezeBert" + MLM, "SqueezeBert", dict(SMALL, embedding_size=24)),
    "squeezebert-tags": ("SqueezeBert" + TAGS, "SqueezeBert", dict(
        ODD, embedding_size=15, intermediate_size=21, q_groups=3, k_groups=5, v_groups=1, post_attention_groups=5, intermediate_groups=3,
        output_groups=3, num_labels=3)),
    "convbert": ("ConvBert" + MLM, "ConvBert", dict(SMALL, num_attention_heads=8, embedding_size=10, num_groups=2)),
    "convbert-choice": ("ConvBert" + CHOICE, "ConvBert", dict(
        ODD, hidden_size=20, num_attention_heads=10, embedding_size=7, conv_kernel_size=3)),
    "luke-masked": ("Luke" + MLM, "Luke", {**ODD, "pad_token_id": 1, "entity_vocab_size": 5, "entity_emb_size": 6,
                                           "use_entity_aware_attention": False}),
    "convbert-class": ("ConvBert" + CLASS, "ConvBert", dict(
        ODD, hidden_size=30, num_attention_heads=10, embedding_size=30, conv_kernel_size=5, num_labels=3)),
}

LENGTHS = {"big-bird-blocks": 43, "big-bird-blocks-tags": 57}  # other than 20 tokens: in blocks, the last not whole

# FlauBERT normed early asks transformers' cache for a layer, which 5.23's cannot give
transformers.EncoderDecoderCache.__getitem__ = lambda self, layer: None


def squeeze(t):
    """Without the batch."""
    return models.f32(t[0]) if t.dim() > 1 else models.f32(t)


def answers(out, kind):
    found = {}
    for name in ("last_hidden_state", "pooler_output", "logits"):
        if getattr(out, name, None) is not None:
            found[name] = squeeze(getattr(out, name))
    if getattr(out, "prediction_logits", None) is not None:
        found["logits"] = squeeze(out.prediction_logits)
    for name in ("seq_relationship_logits", "sop_logits", "relevance_logits"):
        if getattr(out, name, None) is not None:
            found["seq_relationship_logits"] = squeeze(getattr(out, name)) if name != "relevance_logits" else models.f32(out.relevance_logits)
    if getattr(out, "start_logits", None) is not None:
        found["logits"] = models.f32(torch.stack([out.start_logits[0], out.end_logits[0]], 1))
    if kind.startswith("DPR") and not kind.endswith("Reader"):
        found["last_hidden_state"] = squeeze(out.hidden_states[-1])
    return found


def marks(kind, config, n):
    """What a token has besides its id, under the key that tp-run reads."""
    rng = np.random.RandomState(zlib.crc32(kind.encode()))
    if kind.startswith("LayoutLM"):
        low, more = rng.randint(0, 5, (n, 2)), rng.randint(0, 4, (n, 2))
        return {"bbox": np.concatenate([low, low + more], 1).tolist()}
    if kind.startswith("Tapas"):  # in few cells, which come again
        types = np.stack([rng.randint(0, size, n) for size in config.type_vocab_sizes], 1)
        types[:, 1] = np.arange(n) // 4 % 3
        types[:, 2] = np.arange(n) // 6 % 2
        return {"token_types": types.tolist()}
    if kind in ("XLNet" + CLASS, "Funnel" + CLASS):
        return {"token_types": [0] * (n // 2) + [1] * (n - n // 2 - 1) + [2]}
    return {}


def write(path, name):
    kind, config, values = MODELS[name]
    cls = getattr(transformers, kind)
    shutil.rmtree(path, ignore_errors=True)
    model = cls(getattr(transformers, config + "Config")(**values)).eval()
    places = {key: p.clone() for key, p in model.named_parameters()
              if "embed_positions" in key and name not in ANGLES}  # computed
    models.fill(model, name)
    for p in model.parameters():  # without norms larger weights saturate every tanh
        p.data.mul_(0.5 if config == "MobileBert" else 1)
    for key, p in model.named_parameters():
        if name == "roformer-stored" and "embed_positions" in key:
            p.data.div_(p.data.abs().max())  # as sines and cosines are
        if key in places:
            p.data.copy_(places[key])
    dtype = torch.float32 if places else torch.bfloat16
    model.to(dtype)
    model.config.dtype = dtype
    model.save_pretrained(path)
    if name == "roformer-computed":
        stored = load_file(os.path.join(path, "model.safetensors"))
        save_file({key: t for key, t in stored.items() if "embed_positions" not in key},
                  os.path.join(path, "model.safetensors"), {"format": "pt"})
    ids = np.random.RandomState(zlib.crc32(name.encode()) ^ 0x1D5).randint(3, 40, LENGTHS.get(name, 20)).tolist()
    if config == "Longformer" and kind.endswith((ANSWERS, CHOICE)):  # a question, and what it is about
        for at in 6, 7, 19:
            ids[at] = model.config.sep_token_id
    wide = torch.float32 if kind.startswith("XLNet") else torch.float64  # its segments are float32
    model = cls.from_pretrained(path, dtype=wide, attn_implementation=None if kind.startswith("Longformer") else "eager").eval()
    inputs = torch.tensor([ids])
    if kind.endswith(CHOICE):
        inputs = inputs.unsqueeze(0)
    more = {"token_type_ids": torch.zeros_like(inputs)} if kind == "BigBird" + ANSWERS else {}
    line = {"ids": ids, **marks(kind, model.config, len(ids))}
    for key in line.keys() - {"ids"}:
        more["token_type_ids" if key == "token_types" else key] = torch.tensor([line[key]])
    with torch.no_grad():
        out = model(input_ids=inputs, **more, output_hidden_states=True, return_dict=True)
    save_file(answers(out, kind), os.path.join(path, "expected.safetensors"))
    with open(os.path.join(path, "ids"), "w") as f:
        f.write(",".join(map(str, ids)) + "\n")
    if len(line) > 1:
        with open(os.path.join(path, "line.json"), "w") as f:
            f.write(json.dumps(line) + "\n")
    for entry in os.scandir(path):
        if entry.name == "generation_config.json":
            os.unlink(entry.path)
            continue
        os.chmod(entry.path, 0o644)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", dest="out", metavar="DIR", default=os.path.join(here, "..", "data", "encoders"))
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    for name in args.names or MODELS:
        write(os.path.join(args.out, name), name)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""make-pictured.py - text models beside a tower for pictures: tests/data/pictured

    make-pictured.py [-o DIR] [NAME...]
    make-pictured.py --try tp-run         compare what the program answers for all of them, also those that are not committed

Tiny models with random weights, written by save_pretrained of transformers (5.24), and what the
ForConditionalGeneration class answers in float64 when it is given ids alone: logits [T, vocab] and input_ids [T] in
expected.safetensors, the number of its parameters in the file's metadata.  qwen2_5_vl is brought to the older form of
config.json, in which the text's keys are the model's own.
"""
import argparse
import json
import os
import shutil
import subprocess
import tempfile
import zlib

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.models.llama4 import modeling_llama4

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)
# without pictures, 5.24 asks the text model's answer for a member that it lacks
modeling_llama4.MoeCausalLMOutputWithPast.image_outputs = None

TEXT = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
            vocab_size=40, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)
NO_HEAD_DIM = {k: v for k, v in TEXT.items() if k != "head_dim"}
V = dict(hidden_size=12, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2, image_size=8, patch_size=4)
IDS = [1, 5, 9, 13, 2, 7, 30, 31, 4, 11, 6, 29]
COMMITTED = ["gemma3", "paligemma", "internvl", "llava", "mistral3", "qwen2_5_vl", "qwen3_vl", "llama4"]
MODELS = {
    "gemma3": (lambda: transformers.Gemma3Config(text_config=dict(TEXT, num_hidden_layers=2,
        _sliding_window_pattern=2, sliding_window=4, query_pre_attn_scalar=8), vision_config=dict(V),
        mm_tokens_per_image=4, image_token_index=39, boi_token_index=38, eoi_token_index=37),
        "Gemma3ForConditionalGeneration"),
    "paligemma": (lambda: transformers.PaliGemmaConfig(text_config=dict(TEXT, model_type="gemma"),
        vision_config=dict(V, model_type="siglip_vision_model", projection_dim=16, vision_use_head=False),
        projection_dim=16, image_token_index=39, hidden_size=16), "PaliGemmaForConditionalGeneration"),
    "paligemma2": (lambda: transformers.PaliGemmaConfig(text_config=dict(TEXT, model_type="gemma2",
        query_pre_attn_scalar=8, sliding_window=4), vision_config=dict(V, model_type="siglip_vision_model",
        projection_dim=16, vision_use_head=False), projection_dim=16, image_token_index=39, hidden_size=16),
        "PaliGemmaForConditionalGeneration"),
    "llava-clip": (lambda: transformers.LlavaConfig(text_config=dict(TEXT, model_type="llama"),
        vision_config=dict(V, model_type="clip_vision_model", projection_dim=8), image_token_index=39),
        "LlavaForConditionalGeneration"),
    "llava": (lambda: transformers.LlavaConfig(text_config=dict(TEXT, model_type="mistral", sliding_window=4),
        vision_config=dict(V, model_type="siglip_vision_model"), image_token_index=39),
        "LlavaForConditionalGeneration"),
    "qwen2_vl": (lambda: transformers.Qwen2VLConfig(text_config=dict(NO_HEAD_DIM, rope_scaling=dict(type="mrope", mrope_section=[1, 1, 0])),
        vision_config=dict(depth=2, embed_dim=12, hidden_size=16, num_heads=2, mlp_ratio=2, patch_size=4),
        image_token_id=39, video_token_id=38, vision_start_token_id=37, vision_end_token_id=36),
        "Qwen2VLForConditionalGeneration"),
    "qwen2_5_vl": (lambda: transformers.Qwen2_5_VLConfig(text_config=dict(NO_HEAD_DIM, rope_scaling=dict(type="mrope", mrope_section=[1, 1, 0])),
        vision_config=dict(depth=2, hidden_size=12, out_hidden_size=16, num_heads=2, intermediate_size=20,
        patch_size=4, window_size=16, fullatt_block_indexes=[1]), image_token_id=39, video_token_id=38,
        vision_start_token_id=37, vision_end_token_id=36), "Qwen2_5_VLForConditionalGeneration"),
    "qwen3_vl": (lambda: transformers.Qwen3VLConfig(text_config=dict(TEXT, rope_scaling=dict(rope_type="default",
        mrope_section=[2, 1, 1])), vision_config=dict(depth=2, hidden_size=12, out_hidden_size=16, num_heads=2,
        intermediate_size=20, patch_size=4, num_position_embeddings=16, deepstack_visual_indexes=[0]),
        image_token_id=39, video_token_id=38, vision_start_token_id=37, vision_end_token_id=36),
        "Qwen3VLForConditionalGeneration"),
    "mistral3-mistral": (lambda: transformers.Mistral3Config(text_config=dict(TEXT, model_type="mistral",
        sliding_window=None), vision_config=dict(V, model_type="pixtral", head_dim=6), image_token_index=39),
        "Mistral3ForConditionalGeneration"),
    "mistral3": (lambda: transformers.Mistral3Config(text_config=dict(TEXT, model_type="ministral3",
        rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=8,
        max_position_embeddings=64, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0,
        llama_4_scaling_beta=0.1)), vision_config=dict(V, model_type="pixtral", head_dim=6), image_token_index=39),
        "Mistral3ForConditionalGeneration"),
    "llama4": (lambda: transformers.Llama4Config(text_config=dict(TEXT, intermediate_size_mlp=20,
        num_local_experts=2, interleave_moe_layer_step=2, attention_chunk_size=8, no_rope_layer_interval=2),
        vision_config=dict(hidden_size=12, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        image_size=8, patch_size=2, vision_output_dim=20, projector_input_dim=20, projector_output_dim=20,
        pixel_shuffle_ratio=0.5), boi_token_index=37, eoi_token_index=38, image_token_index=39),
        "Llama4ForConditionalGeneration"),
    "internvl": (lambda: transformers.InternVLConfig(text_config=dict(TEXT, model_type="qwen2"),
        vision_config=dict(hidden_size=12, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2,
        image_size=[8, 8], patch_size=[4, 4]), image_token_id=39), "InternVLForConditionalGeneration"),
    "internvl-qwen3": (lambda: transformers.InternVLConfig(text_config=dict(TEXT, model_type="qwen3"),
        vision_config=dict(hidden_size=12, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2,
        image_size=[8, 8], patch_size=[4, 4], attention_bias=True, use_qk_norm=True), image_token_id=39),
        "InternVLForConditionalGeneration"),
}


def make(name, path):
    config, cls = MODELS[name]
    cls = getattr(transformers, cls)
    torch.manual_seed(zlib.crc32(name.encode()))
    model = cls._from_config(config(), attn_implementation="eager", dtype=torch.float32).eval()
    with torch.no_grad():
        for key, p in model.named_parameters():
            p.copy_((torch.randn_like(p) * 0.3 + (1.0 if "norm" in key and "weight" in key else 0)).to(torch.bfloat16).float())
    model.to(torch.bfloat16).save_pretrained(path)
    model = cls.from_pretrained(path, dtype=torch.float64, attn_implementation="eager").eval()
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([IDS])).logits[0]
    n = sum(t.numel() for t in load_file(os.path.join(path, "model.safetensors")).values())
    save_file({"input_ids": torch.tensor(IDS), "logits": logits.float().contiguous()}, os.path.join(path, "expected.safetensors"),
              metadata={"parameters": str(n)})
    if os.path.exists(os.path.join(path, "generation_config.json")):
        os.remove(os.path.join(path, "generation_config.json"))
    if name == "qwen2_5_vl":
        with open(os.path.join(path, "config.json")) as f:
            c = json.load(f)
        text = c.pop("text_config")
        c = {**text, **c, "rope_theta": text["rope_parameters"]["rope_theta"],
             "rope_scaling": {"type": "mrope", "mrope_section": text["rope_parameters"]["mrope_section"]}}
        del c["rope_parameters"]
        with open(os.path.join(path, "config.json"), "w") as f:
            json.dump(c, f, indent=2)


def attempt(program):
    for name in MODELS:
        with tempfile.TemporaryDirectory() as d:
            make(name, d)
            out = os.path.join(d, "out.safetensors")
            ran = subprocess.run([program, "logits", "-q", "--ids", ",".join(map(str, IDS)), "-o", out, d], capture_output=True, text=True)
            if ran.returncode:
                print(f"{name}: {ran.stderr.strip()}")
                continue
            want, got = load_file(os.path.join(d, "expected.safetensors"))["logits"], load_file(out)["logits"]
            print(f"{name}: {float((got - want).abs().max() / want.abs().max()):.1e} of the largest logit")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", default=os.path.join(os.path.dirname(__file__), "..", "data", "pictured"))
    parser.add_argument("--try", dest="program")
    parser.add_argument("names", nargs="*", default=COMMITTED)
    args = parser.parse_args()
    if args.program:
        attempt(args.program)
        return
    for name in args.names:
        path = os.path.join(args.o, name)
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        make(name, path)


if __name__ == "__main__":
    main()

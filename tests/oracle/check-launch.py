#!/usr/bin/env python3
"""check-launch.py - plans as other frameworks' options, read by these frameworks

    check-launch.py CONFIGS.TSV [megatron=DIR] [vllm=DIR] [torchtitan] [deepspeed]
    check-launch.py flags DIR > tests/data/vllm-flags.txt

Makes about 20 plans for each framework by 'mem-estimate plan --emit' and gives them to what the
framework itself reads them with: torchtitan's ConfigManager, DeepSpeed's DeepSpeedConfig and AutoEP,
megatron-core's ModelParallelConfig and stage layouts beside the flags of megatron/training/arguments.py
(DIR: a checkout of Megatron-LM), the flags of vllm serve (DIR: an unpacked wheel, or tests/data/vllm-flags.txt, which has those of 0.19.0).
No flag may be unknown, and every degree must be read back.
(torchtitan 0.3, deepspeed 0.19, megatron-core 0.16, vllm 0.19)
"""
import dataclasses
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

AXES = ("tp", "sp", "ep", "dp", "pp")
TRAIN = [("llama-3-8b", n, batch, extra)
         for n, batch, extra in [(1, 8, "--zero 0 --recompute full --optimizer sgd --master none"), (8, 64, ""), (8, 64, "--mesh tp=2"),
                                 (8, 64, "--mesh dp=8,tp=1,pp=1"), (16, 128, "--mesh pp=4"), (16, 128, "--mesh sp=2"),
                                 (8, 64, "--recompute full"), (16, 64, "--mesh pp=3,tp=1 --gpus 12 --global-batch 48")]]
TRAIN += [("llama-3-70b", n, batch, extra)
          for n, batch, extra in [(64, 256, ""), (64, 256, "--mesh tp=4,pp=8"), (64, 256, "--mesh tp=8,sp=2"),
                                  (32, 64, "--offload optimizer"), (32, 64, "--offload params --zero 3"), (32, 64, "--offload optimizer,activations --zero 3"), (64, 256, "--mesh pp=8 --schedule 1f1b")]]
TRAIN += [("mixtral-8x7b", n, batch, extra)
          for n, batch, extra in [(64, 256, ""), (64, 256, "--mesh ep=8"), (64, 256, "--mesh ep=4,tp=2"), (64, 256, "--mesh ep=8,pp=2"),
                                  (64, 256, "--mesh ep=4,sp=2,tp=2")]]
FOLDED = [("mixtral-8x7b", 64, 256, "--tp 2 --ep 8 --etp 1 --pp 2"), ("deepseek-v3", 1024, 8192, "--tp 2 --ep 64 --etp 1 --pp 16")]
INFER = [(model, n, extra) for model in ("llama-3-8b", "llama-3-70b", "mixtral-8x7b")
         for n, extra in ((2, ""), (4, "--mesh tp=4"), (8, "--mesh pp=2"), (8, ""), (16, "--kv-dtype fp8"), (8, "--weights bf16"),
                          (8, "--mesh ep=4" if model.startswith("mix") else "--mesh dp=2,tp=4"))]


def plan(where, model, n, mode, framework, extra):
    """The emitted text and the plan in JSON, or None if nothing fits."""
    base = ["mem-estimate", "plan", "--mode", mode, "--gpu", "h100-80g", "--gpus", str(n), "--seq", "4096",
            "--framework", framework, *extra.split(), str(where / (model + ".json"))]
    told = subprocess.run([*base[:-1], "--emit", framework, base[-1]], capture_output=True, text=True)
    if told.returncode:
        print(f"  {framework} {model} {n} {extra}: {told.stderr.splitlines()[0]}")
        return None
    best = subprocess.run([*base[:-1], "--json", "--top", "1", base[-1]], capture_output=True, text=True, check=True)
    return told.stdout, json.loads(best.stdout.splitlines()[0])


def flags(script):
    """{flag: value or True} of a script's last command, and its words."""
    text = script.replace("\\\n", " ")
    line = [row for row in text.splitlines() if row.startswith("exec ")][-1]
    words = re.findall(r"'[^']*'|\"[^\"]*\"|\$\([^)]*\)|\S+", line)
    found = {}
    for word, after in zip(words, words[1:] + ["--"]):
        if word.startswith("--"):
            found[word] = True if after.startswith("--") or after.startswith('"$@') else after.strip("'")
    return found, words


def known_flags(path):
    return set(re.findall(r"""["'](--[a-z0-9-]+)["']""", Path(path).read_text()))


def check_megatron(directory, made):
    from megatron.core.model_parallel_config import ModelParallelConfig
    from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout
    from megatron.core.transformer.transformer_config import TransformerConfig
    known = known_flags(Path(directory, "megatron/training/arguments.py"))
    for config in Path(directory, "megatron").rglob("*.py"):
        text = config.read_text(errors="replace")
        if "@dataclass" in text:
            known |= {"--" + name.replace("_", "-") for name in re.findall(r"^    ([a-z0-9_]+): ", text, re.M)}
    launcher = {"--nproc-per-node", "--nnodes", "--node-rank", "--master-addr"}
    for script, best in made:
        found, _ = flags(script)
        unknown = set(found) - known - launcher
        assert not unknown, unknown
        names = {f.name for f in dataclasses.fields(TransformerConfig)} | {f.name for f in dataclasses.fields(ModelParallelConfig)}
        kept = {k[2:].replace("-", "_"): v for k, v in found.items()}
        degrees = {k: int(v) for k, v in kept.items() if k in names and str(v).isdigit()}
        import torch
        config = ModelParallelConfig(**{k: v for k, v in degrees.items() if k in {f.name for f in dataclasses.fields(ModelParallelConfig)}},
                                     sequence_parallel="sequence_parallel" in kept, bf16="bf16" in kept, pipeline_dtype=torch.bfloat16)
        mesh = best["mesh"]
        assert config.tensor_model_parallel_size == mesh["tp"] and config.context_parallel_size == mesh["sp"]
        assert config.expert_model_parallel_size == mesh["ep"] and config.pipeline_model_parallel_size == mesh["pp"]
        world = int(kept["nproc_per_node"]) * int(kept.get("nnodes", 1))
        copies = world // (mesh["tp"] * mesh["pp"] * mesh["sp"])
        assert copies * mesh["tp"] == mesh["dp"] * mesh["ep"] * best["etp"]
        assert (config.expert_tensor_parallel_size or mesh["tp"]) == best["etp"]
        assert int(kept["global_batch_size"]) == int(kept["micro_batch_size"]) * best["micro_batches"] * copies
        assert ("use_distributed_optimizer" in kept) == (best["zero"] > 0)
        assert kept.get("recompute_granularity", "none") == {"attention": "selective"}.get(best["recompute"], best["recompute"])
        if "pipeline_model_parallel_layout" in kept:
            layout = PipelineParallelLayerLayout(kept["pipeline_model_parallel_layout"], mesh["pp"])
            assert layout.virtual_pipeline_model_parallel_size == best["model_chunks"]
        else:
            assert int(kept.get("num_virtual_stages_per_pipeline_rank", 1)) == best["model_chunks"]
            if best["model_chunks"] > 1:
                assert best["micro_batches"] % mesh["pp"] == 0


def check_deepspeed(_, made):
    from deepspeed.module_inject.auto_ep_config import parse_autoep_config
    from deepspeed.module_inject.auto_ep_folding import build_folding_spec
    from deepspeed.runtime.config import DeepSpeedConfig
    from deepspeed.runtime.tensor_parallel import get_tensor_parallel_config
    from deepspeed import comm
    for text, best in made:
        config = json.loads(text)
        mesh = best["mesh"]
        world = 1
        for axis in AXES:
            world *= mesh[axis]
        comm.get_rank = lambda: 0
        ranks = mesh["dp"] * mesh["ep"]
        read = DeepSpeedConfig(dict(config), mpu=type("Mpu", (), {"get_data_parallel_world_size": lambda self, n=ranks: n})())
        assert config["train_batch_size"] == config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * mesh["dp"] * mesh["ep"]
        assert read.train_batch_size == config["train_batch_size"] and read.zero_optimization_stage == best["zero"]
        moved = best["offload"].split(",")
        assert (read.zero_config.offload_optimizer is not None) == bool({"optimizer", "params"} & set(moved))
        assert (read.zero_config.offload_param is not None) == ("params" in moved)
        assert read.activation_checkpointing_config.cpu_checkpointing == ("activations" in moved)
        assert read.pipeline["stages"] == (mesh["pp"] if mesh["pp"] > 1 else "auto")
        assert read.bfloat16_config.enabled
        assert get_tensor_parallel_config(config).autotp_size == (mesh["tp"] if mesh["tp"] > 1 else 0)
        assert config.get("sequence_parallel_size", 1) == mesh["sp"]
        experts = parse_autoep_config(config.get("expert_parallel", {}))
        assert experts.autoep_size == mesh["ep"]
        if mesh["ep"] > 1:
            build_folding_spec(world_size=world, pp_size=mesh["pp"], tp_size=mesh["tp"], ep_size=mesh["ep"],
                               etp_size=experts.expert_tensor_parallel_size)


def check_torchtitan(_, made):
    from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class
    from torchtitan.config.manager import ConfigManager
    for script, best in made:
        _, words = flags(script)
        mesh = best["mesh"]
        words = [w for w in words[words.index("torchtitan.train") + 1:] if w != '"$@"']
        words = [{"\"${MODULE:-llama3}\"": "llama3", "\"${CONFIG:?}\"": "llama3_8b"}.get(w, w) for w in words]
        read = ConfigManager().parse_args(words)
        p = read.parallelism
        copies = mesh["dp"] * mesh["ep"]
        assert p.tensor_parallel_degree == mesh["tp"] and p.context_parallel_degree == mesh["sp"] and p.pipeline_parallel_degree == mesh["pp"]
        assert p.data_parallel_shard_degree * p.data_parallel_replicate_degree == copies
        assert p.data_parallel_shard_degree * mesh["sp"] == (1 if not best["zero"] else best["hsdp"] or copies * mesh["sp"])
        assert (p.data_parallel_shard_degree * mesh["sp"] * mesh["tp"]) % p.expert_parallel_degree == 0
        assert p.expert_parallel_degree % mesh["ep"] == 0
        assert read.training.global_batch_size == best["micro_batch"] * best["micro_batches"] * copies
        assert type(read.activation_checkpoint).__qualname__.lower().startswith(
            {"full": "fullac", "products": "selectiveac"}.get(best["recompute"], "none")) or best["recompute"] == "none"
        if mesh["pp"] > 1:
            multi = issubclass(get_schedule_class(p.pipeline_parallel_schedule), PipelineScheduleMulti)
            assert multi == (best["model_chunks"] > 1)
            assert p.pipeline_parallel_microbatch_size == best["micro_batch"]


def vllm_flags(directory):
    sources = ("engine/arg_utils.py", "entrypoints/openai/cli_args.py", "entrypoints/cli/serve.py")
    return set().union(*(known_flags(Path(directory, "vllm", source)) for source in sources))


def check_vllm(given, made):
    known = set(Path(given).read_text().split()) if Path(given).is_file() else vllm_flags(given)
    for script, best in made:
        found, _ = flags(script)
        assert not set(found) - known, set(found) - known
        mesh = best["mesh"]
        assert int(found["--tensor-parallel-size"]) == mesh["tp"] and int(found["--pipeline-parallel-size"]) == mesh["pp"]
        assert int(found.get("--data-parallel-size", 1)) == mesh["dp"] * mesh["ep"]
        assert ("--enable-expert-parallel" in found) == (mesh["ep"] > 1)


CHECKS = {"megatron": check_megatron, "deepspeed": check_deepspeed, "torchtitan": check_torchtitan, "vllm": check_vllm}


def main():
    table, *asked = sys.argv[1:]
    if table == "flags":
        print(*sorted(vllm_flags(asked[0])), sep="\n")
        return
    with tempfile.TemporaryDirectory() as name:
        where = Path(name)
        for row in Path(table).read_text().splitlines():
            cells = row.split("\t")
            if len(cells) > 3:
                (where / (cells[0] + ".json")).write_text(cells[3])
        for what in asked:
            framework, _, directory = what.partition("=")
            made = []
            if framework == "vllm":
                cases = [(model, n, "infer", f"--global-batch 64 {extra}") for model, n, extra in INFER]
            else:
                cases = [(model, n, "train", f"--global-batch {batch} {extra}") for model, n, batch, extra in
                         TRAIN + (FOLDED if framework == "megatron" else [])]
            for model, n, mode, extra in cases:
                one = plan(where, model, n, mode, framework, extra)
                if one:
                    made.append(one)
            CHECKS[framework](directory, made)
            print(f"{framework}: {len(made)} of {len(cases)} plans written and read back")


if __name__ == "__main__":
    main()

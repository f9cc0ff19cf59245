#!/usr/bin/env python3
"""What the authors' scheduler of V-Min and V-Half makes, for the table in pp-schedule.t.

usage: v-shapes.py ZBV_GREEDY

ZBV_GREEDY is megatron/core/pipeline_parallel/zerobubble/scheduler/zbv_greedy.py of
github.com/sail-sg/zero-bubble-pipeline-parallelism.  A line is stages, micro-batches, and of both shapes the longest
span and the chunks held, in passes of one step.
"""
import sys
import types

source = [line for line in open(sys.argv[1]) if not line.startswith("from megatron")]
module = types.ModuleType("zbv_greedy")
module.__dict__.update(ScheduledNode=None, B="B", W="W", F="F", FuncType=str)
exec(compile("".join(source), sys.argv[1], "exec"), module.__dict__)


def held(passes):
    count = most = 0
    for kind, _ in passes:
        count += (kind < 2) - (kind >= 4)
        most = max(most, count)
    return most


for stages, micro_batches in ((2, 8), (3, 9), (4, 4), (4, 8), (4, 16), (5, 10), (6, 12), (7, 14), (8, 8), (8, 24), (8, 64),
                              (12, 24), (16, 48), (32, 96)):
    line = [stages, micro_batches]
    for shape in ("min", "half"):
        graph = module.PipelineGraph(stages, micro_batches, shape, 1, 1, 1, 0)
        blocks = (graph.stable_pattern_v_min if shape == "min" else graph.stable_pattern_v_half)(stages)
        span, _, order = graph.schedule_from_pattern(blocks, micro_batches, [1] * 6)
        line += [span, max(map(held, order))]
    print(*line)

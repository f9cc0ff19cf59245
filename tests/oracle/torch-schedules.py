#!/usr/bin/env python3
"""PyTorch's interleaved schedules, as one table of actions a line of ranks.

tests/data/torch-schedules.txt is what this prints: for each case a line "NAME RANKS
MICRO-BATCHES CHUNKS", and a row of actions for each rank, without steps that wait."""
from torch.distributed.pipelining import schedules

CASES = [
    ("interleaved", schedules.ScheduleInterleaved1F1B, 4, 10, 2),
    ("interleaved", schedules.ScheduleInterleaved1F1B, 2, 3, 2),
    ("interleaved", schedules.ScheduleInterleaved1F1B, 3, 8, 3),
    ("interleaved", schedules.ScheduleInterleaved1F1B, 4, 8, 2),
    ("interleaved", schedules.ScheduleInterleaved1F1B, 4, 2, 2),
    ("zb-interleaved", schedules.ScheduleInterleavedZeroBubble, 4, 8, 2),
    ("zb-interleaved", schedules.ScheduleInterleavedZeroBubble, 4, 10, 2),
    ("zb-interleaved", schedules.ScheduleInterleavedZeroBubble, 3, 6, 3),
    ("zb-interleaved", schedules.ScheduleInterleavedZeroBubble, 2, 6, 2),
]

for name, kind, ranks, count, chunks in CASES:
    s = object.__new__(kind)
    s.n_local_stages, s.pp_group_size, s._n_microbatches = chunks, ranks, count
    s.number_of_rounds = max(1, count // ranks)
    assert count % s.number_of_rounds == 0
    s.microbatches_per_round = count // s.number_of_rounds
    print(name, ranks, count, chunks)
    for rank in range(ranks):
        actions = s._calculate_single_rank_operations(rank)
        print(",".join(repr(a) for a in actions if a is not None))

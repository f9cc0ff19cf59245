"""time-sdpa.py TOKENS HEADS KV_HEADS HEAD_DIM TIMES - seconds of PyTorch's causal attention in bf16"""

import sys
import time

import torch

tokens, heads, kv_heads, dim, times = map(int, sys.argv[1:])
q = torch.randn(1, heads, tokens, dim, device="cuda", dtype=torch.bfloat16)
k, v = (
    torch.randn(1, kv_heads, tokens, dim, device="cuda", dtype=torch.bfloat16)
    .repeat_interleave(heads // kv_heads, 1)
    for _ in range(2)
)
for i in range(times + 1):  # the first warms up
    if i == 1:
        torch.cuda.synchronize()
        start = time.perf_counter()
    torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.125)
torch.cuda.synchronize()
print((time.perf_counter() - start) / times)

"""Causal attention by PyTorch on a GPU, forward and backward, to compare with `piton bench attention --kernels cuda`.

    python bench/compare/attention_cuda.py

Prints one JSON object for each shape (samples, heads, queries, channels) and back end of
scaled_dot_product_attention (cuDNN's, FlashAttention-2): the best of seven times in bf16, in milliseconds.
"""
import json

import torch
import torch.nn.functional as functional
from torch.nn.attention import SDPBackend, sdpa_kernel

SHAPES = [(1, 16, 16384, 128), (32, 12, 1024, 64), (8, 32, 2048, 64)]
BACK_ENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


def best_of_seven(work):
    for _ in range(2):
        work()
    torch.cuda.synchronize()
    times = []
    for _ in range(7):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return min(times)


def measure(shape):
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    gradient = torch.randn(shape, device="cuda", dtype=torch.bfloat16)

    def forward():
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    return {"forward_ms": best_of_seven(forward), "both_ms": best_of_seven(lambda: forward().backward(gradient))}


def main():
    for shape in SHAPES:
        for name, back_end in BACK_ENDS.items():
            with sdpa_kernel(back_end):
                print(json.dumps({"shape": shape, "backend": name, **measure(shape)}), flush=True)


if __name__ == "__main__":
    main()

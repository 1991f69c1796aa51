"""Trains a small network and prints PyTorch's own figures; `profiler` runs torch.profiler over some steps."""

import json
import sys
import time

import torch


def step(model, optimizer, data):
    optimizer.zero_grad(set_to_none=True)
    loss = model(data).square().mean()
    loss.backward()
    optimizer.step()


def build():
    layers = [torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True) for _ in range(6)]
    model = torch.nn.Sequential(*layers).cuda()
    return model, torch.optim.AdamW(model.parameters()), torch.randn(16, 256, 512, device="cuda")


def main(what):
    free_before, _ = torch.cuda.mem_get_info()
    reserved_before = torch.cuda.memory_reserved()
    model, optimizer, data = build()
    for _ in range(5):
        step(model, optimizer, data)
    torch.cuda.synchronize()
    free_after, _ = torch.cuda.mem_get_info()
    figures = {
        "max_reserved": torch.cuda.max_memory_reserved(),
        "max_allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "reserved_change": torch.cuda.memory_reserved() - reserved_before,
        "driver_change": free_before - free_after,
        "profiler_kernels": None,
        "step_ms": None,
    }
    if what == "profiler":
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            step(model, optimizer, data)
            torch.cuda.synchronize()
        averages = profiler.key_averages()
        figures["profiler_kernels"] = sum(1 for entry in averages if str(entry.device_type).endswith("CUDA"))
    if what == "steps":
        for _ in range(30):
            step(model, optimizer, data)
        torch.cuda.synchronize()
        figures["step_ms"] = []
        for _ in range(20):
            begin = time.perf_counter()
            for _ in range(10):
                step(model, optimizer, data)
            torch.cuda.synchronize()
            figures["step_ms"].append((time.perf_counter() - begin) * 100)
    print("FIGURES " + json.dumps(figures))


main(sys.argv[1] if len(sys.argv) > 1 else "")

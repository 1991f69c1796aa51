"""Runs out of memory with PyTorch: `exhausted` holds more and more, `fragmented` holds a little of every segment."""

import sys

import torch

GIB = 1 << 30
MIB = 1 << 20


def ballast(leave):
    """Takes all of the device but some bytes, so that the rest is quickly used up."""
    free, _ = torch.cuda.mem_get_info()
    return torch.empty(free - leave, dtype=torch.uint8, device="cuda")


def keep_activations(kept):
    kept.append(torch.empty(256 * MIB, dtype=torch.uint8, device="cuda"))


def load_batches():
    """Segments of 20 MiB with ten tensors of 2 MiB, of which one is kept."""
    small = [torch.empty(2 * MIB, dtype=torch.uint8, device="cuda") for _ in range(3500)]
    return small[::10]


def ask_for_much():
    return torch.empty(3 * GIB, dtype=torch.uint8, device="cuda")


def main(what):
    held = ballast(8 * GIB)
    kept = []
    try:
        if what == "exhausted":
            while True:
                keep_activations(kept)
        kept = load_batches()
        ask_for_much()
        raise SystemExit("there was enough memory")
    except torch.OutOfMemoryError as error:
        print(error)
    print(f"FIGURES {len(kept)} {held.numel()}")


main(sys.argv[1])

# Allocates blocks of sizes that tell them apart through calls between Python and C, and prints the stack of each as Python
# itself sees it: the size that malloc gets, then functions with their lines, innermost first.
import functools
import os
import sys

kept = []


def allocate():
    size = 40_000 + len(kept)
    # The block is allocated some lines below.
    frame, names = sys._getframe(1), [f"allocate:{sys._getframe().f_lineno + 5}"]
    while frame:
        names.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    print(size + 1, "\t".join(names), sep="\t", flush=True)
    kept.append(bytearray(size))


class Compared:
    def __lt__(self, other):
        allocate()
        return False


def deep(depth):
    return deep(depth - 1) if depth else allocate()


def generator():
    yield allocate()


allocate()
deep(5)
sorted([Compared(), Compared()])
functools.partial(deep, 2)()
list(map(lambda _: allocate(), [1]))
[list(generator()) for _ in range(1)]
# The blocks are left live.
os._exit(0)

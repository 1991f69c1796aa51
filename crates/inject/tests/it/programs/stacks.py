# Allocates blocks of sizes that tell them apart, and prints the stack of each as Python itself sees it: the size, then
# functions with their lines, innermost first.
import asyncio
import functools
import sys
import threading

kept = []


def seen_by_python():
    frame, names = sys._getframe(1), []
    while frame:
        names.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return names


def allocate():
    size = 1_000_000 + len(kept)
    stack, block = seen_by_python(), bytearray(size)
    kept.append(block)
    print(size, "\t".join(stack), sep="\t")


class Holder:
    allocate()

    def method(self):
        return allocate()

    def __lt__(self, other):
        allocate()
        return False

    def __del__(self):
        allocate()


def deep(depth):
    return deep(depth - 1) if depth else allocate()


def generator():
    yield allocate()
    yield from inner_generator()


def inner_generator():
    yield allocate()


def closure():
    def inner():
        allocate()

    return inner


def raises():
    try:
        raise ValueError
    except ValueError:
        allocate()
    finally:
        allocate()


async def outer_task():
    await inner_task()
    await asyncio.gather(inner_task(), inner_task())


async def inner_task():
    await asyncio.sleep(0)
    allocate()


allocate()
holder = Holder()
holder.method()
del holder
deep(0)
deep(40)
list(generator())
[allocate() for _ in range(2)]
list(allocate() for _ in range(2))
list(map(lambda _: allocate(), [1]))
closure()()
raises()
functools.partial(deep, 2)()
sorted([Holder(), Holder()])
sorted([2, 1], key=lambda _: deep(1) or 0)
exec("def made():\n    allocate()\nmade()")
for number in range(20):
    # Code objects that take each other's places in memory.
    exec(f"def made_{number}():\n    allocate()\nmade_{number}()\ndel made_{number}")
thread = threading.Thread(target=lambda: deep(3))
thread.start()
thread.join()
asyncio.run(outer_task())

# As heartbeat.c, in Python: heartbeat.py THREADS FILE.
import sys
import threading
import time

gaps = []
over = threading.Event()


def deep(n):
    if n:
        return deep(n - 1)
    over.wait()


def heartbeat():
    before = time.monotonic_ns()
    while not over.is_set():
        at = time.monotonic_ns()
        if at - before > 10_000:
            gaps.append((before, at - before))
        before = at


threads = [threading.Thread(target=deep, args=(20,)) for _ in range(int(sys.argv[1]) - 2)]
threads.append(threading.Thread(target=heartbeat))
for thread in threads:
    thread.start()
time.sleep(0.1)
print("ready", flush=True)
sys.stdin.buffer.read()
over.set()
for thread in threads:
    thread.join()
with open(sys.argv[2], "w") as file:
    file.writelines(f"{begin} {length}\n" for begin, length in gaps)

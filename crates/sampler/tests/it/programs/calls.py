# Threads in functions of Python, some of them called through C. Says where it is, ends with its input.
import sys
import threading


def leaf(event):
    event.wait()


def inner(n, event):
    if n:
        return inner(n - 1, event)
    # Through C: map and list are no functions of Python.
    return list(map(leaf, [event]))


class Worker(threading.Thread):
    def run(self):
        inner(3, done)


def read_until_the_end():
    return sys.stdin.buffer.read()


def main():
    workers = [Worker() for _ in range(3)]
    for worker in workers:
        worker.start()
    while not all(worker.is_alive() for worker in workers):
        pass
    print(*[worker.native_id for worker in workers], flush=True)
    read_until_the_end()
    done.set()


done = threading.Event()
main()

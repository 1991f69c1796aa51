// Walks of many shapes: recursion, functions with aligned stacks, calls through pointers, alloca, exceptions, threads.
#include <alloca.h>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

static void *volatile sink;
__attribute__((noinline)) static void leaf(unsigned seed) {
    sink = malloc(16 + seed % 64);
    free(sink);
}
__attribute__((noinline)) static void aligned(unsigned seed, int depth);
__attribute__((noinline)) static void moving(unsigned seed, int depth) {
    char *volatile room = (char *)alloca(8 + seed % 200);
    room[0] = 1;
    if (depth > 0) aligned(seed * 1103515245 + 12345, depth - 1);
    leaf(seed);
}
__attribute__((noinline)) static void aligned(unsigned seed, int depth) {
    alignas(64) volatile char room[128];
    room[seed % 128] = 1;
    std::function<void()> next = [=] {
        if (seed % 3 == 0) moving(seed / 3, depth - 1);
        else leaf(seed);
    };
    if (depth > 0) next();
    if (seed % 5 == 0 && depth > 0) {
        try {
            std::vector<int> numbers(seed % 50 + 1);
            if (seed % 7 == 0) throw std::runtime_error("one");
            moving(seed + numbers.size(), depth - 1);
        } catch (const std::exception &) {
            leaf(seed + 1);
        }
    }
    leaf(seed + 2);
}
__attribute__((noinline)) static int recurse(int depth) {
    leaf(depth);
    int below = depth > 0 ? recurse(depth - 1) : 0;
    leaf(depth + 1);
    return below + 1;
}
int main() {
    auto work = [] {
        for (unsigned round = 0; round < 300; round++) moving(round * 7919, 12);
        sink = (void *)(long)recurse(100);
        sink = (void *)(long)recurse(700);
    };
    std::thread other(work);
    work();
    other.join();
    return 0;
}

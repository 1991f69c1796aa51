// Four threads in a ring: each allocates and hands the block to the next one, which frees it: cross_free COUNT
#include <array>
#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

constexpr int THREADS = 4;

struct Queue {
    std::array<std::atomic<void *>, 1024> slots{};
    alignas(64) size_t head = 0;
    alignas(64) size_t tail = 0;
};

static std::array<Queue, THREADS> queues;

static bool send(Queue &queue, unsigned &random, long &left) {
    bool has_sent = false;
    for (int i = 0; i < 256 && left > 0; i++) {
        auto &slot = queue.slots[queue.tail & 1023];
        if (slot.load(std::memory_order_acquire)) break;
        random = random * 1664525 + 1013904223;
        char *block = static_cast<char *>(malloc(16 + (random >> 20) % 500));
        *block = 1;
        slot.store(block, std::memory_order_release);
        queue.tail++, left--, has_sent = true;
    }
    return has_sent;
}

static bool receive(Queue &queue, long &left) {
    bool has_received = false;
    for (int i = 0; i < 256 && left > 0; i++) {
        auto &slot = queue.slots[queue.head & 1023];
        void *block = slot.load(std::memory_order_acquire);
        if (!block) break;
        slot.store(nullptr, std::memory_order_release);
        free(block);
        queue.head++, left--, has_received = true;
    }
    return has_received;
}

int main(int argc, char **argv) {
    const long count = argc > 1 ? atol(argv[1]) : 1000000;
    std::vector<std::thread> threads;
    for (int i = 0; i < THREADS; i++) {
        threads.emplace_back([=] {
            unsigned random = 12345 + i;
            long to_send = count, to_receive = count;
            while (to_send > 0 || to_receive > 0) {
                bool has_sent = send(queues[i], random, to_send);
                bool has_received = receive(queues[(i + THREADS - 1) % THREADS], to_receive);
                if (!has_sent && !has_received) std::this_thread::yield();
            }
        });
    }
    for (auto &thread : threads) thread.join();
}

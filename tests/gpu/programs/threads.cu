// Eight threads with eight streams each allocate and free; the program ends as its argument says. Prints what it did before.
#include <cuda_runtime.h>

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#define CHECK(call) \
  do { cudaError_t error_ = (call); if (error_ != cudaSuccess) { std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error_)); std::exit(1); } } while (0)

constexpr int THREADS = 8, STREAMS = 8, ROUNDS = 1000, KEPT = 3;

static void work(int thread)
{
  cudaStream_t streams[STREAMS];
  for (auto &stream : streams) { CHECK(cudaStreamCreate(&stream)); }
  for (int round = 0; round < ROUNDS; round++) {
    void *blocks[STREAMS];
    for (int at = 0; at < STREAMS; at++) {
      CHECK(cudaMallocAsync(&blocks[at], 512 * (1 + (thread + round + at) % 16), streams[at]));
    }
    for (int at = 0; at < STREAMS; at++) { CHECK(cudaFreeAsync(blocks[at], streams[at])); }
  }
  for (int kept = 0; kept < KEPT; kept++) {
    void *block;
    CHECK(cudaMalloc(&block, 1 << 20));
  }
}

int main(int, char **arguments)
{
  std::string const end = arguments[1];
  std::vector<std::thread> threads;
  for (int thread = 0; thread < THREADS; thread++) { threads.emplace_back(work, thread); }
  for (auto &thread : threads) { thread.join(); }
  std::printf("{\"allocations\": %d, \"frees\": %d, \"left\": %d}\n", THREADS * (ROUNDS * STREAMS + KEPT),
              THREADS * ROUNDS * STREAMS, THREADS * KEPT);
  std::fflush(stdout);
  if (end == "_exit") { _exit(0); }
  if (end == "abort") { abort(); }
  if (end == "kill") { kill(getpid(), SIGKILL); }
}

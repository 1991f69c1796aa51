// What a pair of cudaMallocAsync and cudaFreeAsync costs from a pool that has the memory already: prints nanoseconds per
// pair, a line for each batch.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#define CHECK(call) \
  do { cudaError_t error_ = (call); if (error_ != cudaSuccess) { std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error_)); std::exit(1); } } while (0)

__attribute__((noinline)) static void pair(cudaStream_t stream)
{
  void *block;
  CHECK(cudaMallocAsync(&block, 4096, stream));
  CHECK(cudaFreeAsync(block, stream));
}

int main(int count, char **arguments)
{
  int const batches = count > 1 ? std::atoi(arguments[1]) : 15, pairs = 20000;
  cudaMemPool_t pool;
  CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
  std::uint64_t keep = UINT64_MAX;
  CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  for (int i = 0; i < pairs; i++) { pair(stream); }
  CHECK(cudaStreamSynchronize(stream));
  for (int batch = 0; batch < batches; batch++) {
    auto const begin = std::chrono::steady_clock::now();
    for (int i = 0; i < pairs; i++) { pair(stream); }
    std::chrono::duration<double, std::nano> const took = std::chrono::steady_clock::now() - begin;
    CHECK(cudaStreamSynchronize(stream));
    std::printf("%.1f\n", took.count() / pairs);
  }
}

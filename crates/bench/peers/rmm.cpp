// The loops of src/resources.rs on RMM's resources, with the same random numbers.
// Usage: rmm OPERATIONS REPEAT; prints `name<TAB>pair<TAB>random 1,000<TAB>random 10,000<TAB>4 threads`
// in ns per operation, one line per resource and repetition.
#include <rmm/cuda_stream.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/logging_resource_adaptor.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <rmm/mr/tracking_resource_adaptor.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

namespace {

using clock_type = std::chrono::steady_clock;
constexpr std::size_t alignment = 256;
constexpr std::size_t size = std::size_t{40} << 30;

double ns_since(clock_type::time_point begin)
{
  return std::chrono::duration<double, std::nano>(clock_type::now() - begin).count();
}

struct split_mix {
  std::uint64_t state;
  std::uint64_t next()
  {
    std::uint64_t mixed = (state += 0x9e3779b97f4a7c15ull);
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ull;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebull;
    return mixed ^ (mixed >> 31);
  }
};

template <typename Resource>
double pairs(Resource& resource, rmm::cuda_stream_view stream, std::size_t operations)
{
  auto const begin = clock_type::now();
  for (std::size_t i = 0; i < operations; ++i) {
    void* block = resource.allocate(stream, 1024, alignment);
    resource.deallocate(stream, block, 1024, alignment);
  }
  return ns_since(begin) / (2.0 * operations);
}

template <typename Resource>
double random_set(Resource& resource, rmm::cuda_stream_view stream, std::size_t operations, std::size_t most, std::uint64_t seed)
{
  split_mix random{seed};
  std::vector<std::pair<std::uint64_t, std::uint64_t>> numbers(operations);
  for (auto& [choice, number] : numbers) {
    choice = random.next();
    number = random.next();
  }
  std::vector<std::pair<void*, std::size_t>> live;
  live.reserve(most);
  auto const begin = clock_type::now();
  for (auto const& [choice, number] : numbers) {
    if (live.size() < most && (live.empty() || (choice & 1) == 1)) {
      std::size_t const bytes = 256 + number % (1u << 20);
      live.emplace_back(resource.allocate(stream, bytes, alignment), bytes);
    } else {
      std::size_t const which = number % live.size();
      auto const [block, bytes] = live[which];
      live[which] = live.back();
      live.pop_back();
      resource.deallocate(stream, block, bytes, alignment);
    }
  }
  double const ns = ns_since(begin) / operations;
  for (auto const& [block, bytes] : live) { resource.deallocate(stream, block, bytes, alignment); }
  return ns;
}

template <typename Resource>
void row(char const* name, Resource& resource, std::size_t operations, int repeat)
{
  rmm::cuda_stream stream;
  std::vector<rmm::cuda_stream> streams(4);
  pairs(resource, stream, operations / 10 + 10);
  for (int i = 0; i < repeat; ++i) {
    double const pair = pairs(resource, stream, operations);
    double const thousand = random_set(resource, stream, operations, 1'000, 7);
    double const ten_thousand = random_set(resource, stream, operations, 10'000, 7);
    auto const begin = clock_type::now();
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < streams.size(); ++t) {
      threads.emplace_back([&, t] { random_set(resource, streams[t], operations, 1'000, 11 + t); });
    }
    for (auto& thread : threads) { thread.join(); }
    double const together = ns_since(begin) / (streams.size() * operations);
    std::printf("%s\t%.2f\t%.2f\t%.2f\t%.2f\n", name, pair, thousand, ten_thousand, together);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv)
{
  std::size_t const operations = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 100'000;
  int const repeat = argc > 2 ? std::atoi(argv[2]) : 3;
  cudaFree(nullptr);
  rmm::mr::cuda_memory_resource device;
  row("cuda", device, operations / 100, repeat);
  {
    rmm::mr::cuda_async_memory_resource resource;
    row("cuda_async", resource, operations / 4, repeat);
  }
  {
    rmm::mr::pool_memory_resource pool{device, size};
    row("pool", pool, operations, repeat);
  }
  {
    rmm::mr::arena_memory_resource arena{device, size};
    row("arena", arena, operations, repeat);
  }
  {
    rmm::mr::pool_memory_resource pool{device, size};
    rmm::mr::statistics_resource_adaptor resource{pool};
    row("statistics(pool)", resource, operations, repeat);
  }
  {
    rmm::mr::pool_memory_resource pool{device, size};
    rmm::mr::logging_resource_adaptor resource{pool, "/tmp/rmm_peer.csv"};
    row("logging(pool)", resource, operations, repeat);
  }
  {
    rmm::mr::pool_memory_resource pool{device, size};
    rmm::mr::tracking_resource_adaptor resource{pool, false};
    row("tracking(pool)", resource, operations, repeat);
  }
  {
    rmm::mr::pool_memory_resource pool{device, size};
    rmm::mr::tracking_resource_adaptor resource{pool, true};
    row("tracking with stacks(pool)", resource, operations / 10, repeat);
  }
}

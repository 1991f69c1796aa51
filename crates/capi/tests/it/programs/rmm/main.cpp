// Records an RMM resource through the adaptor; the argument is the trace.
#include <floodmark_rmm.hpp>

#include <cstdint>
#include <new>

struct upstream_resource {
  void *allocate(cuda::stream_ref, std::size_t bytes, std::size_t)
  {
    if (bytes > 1000) { throw std::bad_alloc{}; }
    return reinterpret_cast<void *>(std::uintptr_t{0x1000});
  }
  void deallocate(cuda::stream_ref, void *, std::size_t, std::size_t) noexcept { ++freed; }
  void *allocate_sync(std::size_t, std::size_t) { return reinterpret_cast<void *>(std::uintptr_t{0x2000}); }
  void deallocate_sync(void *, std::size_t, std::size_t) noexcept { ++freed; }
  int freed{0};
};

int main(int count, char **arguments)
{
  if (count != 2 || floodmark_start_global(arguments[1], nullptr) != FLOODMARK_OK) { return 1; }
  upstream_resource upstream;
  floodmark::rmm_adaptor<upstream_resource> recorded{upstream, "my pool"};
  auto const stream = cuda::stream_ref{reinterpret_cast<cudaStream_t>(std::uintptr_t{0x77})};
  void *block       = recorded.allocate(stream, 100);
  recorded.deallocate(stream, block, 100);
  void *other = recorded.allocate_sync(200);
  recorded.deallocate_sync(other, 200);
  bool is_thrown = false;
  try {
    recorded.allocate(stream, 5000);
  } catch (std::bad_alloc const &) {
    is_thrown = true;
  }
  floodmark_stop_global();
  // Without a recording calls are passed on.
  recorded.deallocate(stream, recorded.allocate(stream, 1), 1);
  return is_thrown && upstream.freed == 3 && recorded == recorded ? 0 : 1;
}

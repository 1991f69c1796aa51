/*
 * floodmark_rmm.hpp - record the memory of any RMM resource with Floodmark
 *
 * An adaptor around a resource of RMM, header only, over the C interface in floodmark.h:
 *
 *     #include <floodmark_rmm.hpp>
 *     #include <rmm/mr/cuda_async_memory_resource.hpp>
 *
 *     floodmark_start_global("run.flood", nullptr);
 *     rmm::mr::cuda_async_memory_resource upstream;
 *     floodmark::rmm_adaptor recorded{upstream, "my pool"};
 *     rmm::device_buffer buffer(1000, stream, recorded);
 *
 * Then: `floodmark watermark run.flood`. The resource has to outlive the adaptor and its copies. What is freed is recorded
 * before the resource gets it back, and an allocation after it succeeded; one that throws is recorded as a failure, and the
 * exception goes on. Recording needs no lock and never throws; while nothing is recorded, calls are passed on.
 *
 * With RMM 25.12 and later the adaptor is a resource by its functions (cuda::mr::resource), before it is derived from
 * rmm::mr::device_memory_resource. C++17 or later. Link as floodmark.h says.
 */
#ifndef FLOODMARK_RMM_HPP
#define FLOODMARK_RMM_HPP

#include "floodmark.h"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#if defined(__has_include) && __has_include(<rmm/mr/device/device_memory_resource.hpp>)
#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/device/device_memory_resource.hpp>
#define FLOODMARK_RMM_IS_DERIVED 1
#else
#include <rmm/aligned.hpp>
#include <rmm/resource_ref.hpp>

#include <cuda/memory_resource>
#endif

namespace floodmark {

/* What all adaptors of one resource record into. */
class rmm_recorder {
 public:
  rmm_recorder(std::string name, floodmark_kind kind, floodmark_recorder recorder)
    : name_{std::move(name)}, kind_{kind}, recorder_{recorder}
  {
  }

  void allocated(void const* block, std::size_t bytes, cudaStream_t stream) const noexcept
  {
    auto const domain = domain_of(stream);
    floodmark_alloc(recorder_, FLOODMARK_ADDRESS(block), bytes, &domain, FLOODMARK_NO_STACK);
  }

  void freed(void const* block, std::size_t bytes, cudaStream_t stream) const noexcept
  {
    auto const domain = domain_of(stream);
    floodmark_free(recorder_, FLOODMARK_ADDRESS(block), bytes, &domain);
  }

  void failed(std::size_t bytes, cudaStream_t stream) const noexcept
  {
    auto const domain = domain_of(stream);
    floodmark_failure(recorder_, bytes, &domain, FLOODMARK_NO_STACK);
  }

  bool operator==(rmm_recorder const& other) const noexcept
  {
    return name_ == other.name_ && kind_ == other.kind_ && recorder_ == other.recorder_;
  }

 private:
  floodmark_domain domain_of(cudaStream_t stream) const noexcept
  {
    floodmark_domain domain = FLOODMARK_DOMAIN_INIT;
    if (!floodmark_is_recording(recorder_)) { return domain; }
    int device = FLOODMARK_NO_DEVICE;
    if (cudaGetDevice(&device) != cudaSuccess) { device = FLOODMARK_NO_DEVICE; }
    domain.device   = device;
    domain.kind     = kind_;
    domain.stream   = FLOODMARK_ADDRESS(stream);
    domain.resource = floodmark_intern(recorder_, name_.c_str());
    return domain;
  }

  std::string name_;
  floodmark_kind kind_;
  floodmark_recorder recorder_;
};

#ifdef FLOODMARK_RMM_IS_DERIVED

/* Records what a resource does. */
template <typename Upstream>
class rmm_adaptor final : public rmm::mr::device_memory_resource {
 public:
  explicit rmm_adaptor(Upstream& upstream,
                       std::string name            = "rmm",
                       floodmark_kind kind         = FLOODMARK_KIND_DEVICE,
                       floodmark_recorder recorder = FLOODMARK_GLOBAL)
    : upstream_{&upstream}, recorder_{std::move(name), kind, recorder}
  {
  }

 private:
  void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    void* block = nullptr;
    try {
      block = upstream_->allocate(bytes, stream);
    } catch (...) {
      recorder_.failed(bytes, stream.value());
      throw;
    }
    recorder_.allocated(block, bytes, stream.value());
    return block;
  }

  void do_deallocate(void* block, std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    recorder_.freed(block, bytes, stream.value());
    upstream_->deallocate(block, bytes, stream);
  }

  bool do_is_equal(rmm::mr::device_memory_resource const& other) const noexcept override
  {
    auto const* same = dynamic_cast<rmm_adaptor const*>(&other);
    return same != nullptr && same->upstream_ == upstream_ && same->recorder_ == recorder_;
  }

  Upstream* upstream_;
  rmm_recorder recorder_;
};

#else

/* Records what a resource does. */
template <typename Upstream>
class rmm_adaptor {
 public:
  explicit rmm_adaptor(Upstream& upstream,
                       std::string name            = "rmm",
                       floodmark_kind kind         = FLOODMARK_KIND_DEVICE,
                       floodmark_recorder recorder = FLOODMARK_GLOBAL)
    : upstream_{&upstream}, recorder_{std::move(name), kind, recorder}
  {
  }

  void* allocate(cuda::stream_ref stream,
                 std::size_t bytes,
                 std::size_t alignment = rmm::CUDA_ALLOCATION_ALIGNMENT)
  {
    return recorded(bytes, stream.get(), [&] { return upstream_->allocate(stream, bytes, alignment); });
  }

  void deallocate(cuda::stream_ref stream,
                  void* block,
                  std::size_t bytes,
                  std::size_t alignment = rmm::CUDA_ALLOCATION_ALIGNMENT) noexcept
  {
    recorder_.freed(block, bytes, stream.get());
    upstream_->deallocate(stream, block, bytes, alignment);
  }

  void* allocate_sync(std::size_t bytes, std::size_t alignment = rmm::CUDA_ALLOCATION_ALIGNMENT)
  {
    return recorded(bytes, cudaStream_t{}, [&] { return upstream_->allocate_sync(bytes, alignment); });
  }

  void deallocate_sync(void* block,
                       std::size_t bytes,
                       std::size_t alignment = rmm::CUDA_ALLOCATION_ALIGNMENT) noexcept
  {
    recorder_.freed(block, bytes, cudaStream_t{});
    upstream_->deallocate_sync(block, bytes, alignment);
  }

  bool operator==(rmm_adaptor const& other) const noexcept
  {
    return upstream_ == other.upstream_ && recorder_ == other.recorder_;
  }

  bool operator!=(rmm_adaptor const& other) const noexcept { return !(*this == other); }

  friend void get_property(rmm_adaptor const&, cuda::mr::device_accessible) noexcept {}

 private:
  template <typename Allocate>
  void* recorded(std::size_t bytes, cudaStream_t stream, Allocate&& allocate)
  {
    void* block = nullptr;
    try {
      block = allocate();
    } catch (...) {
      recorder_.failed(bytes, stream);
      throw;
    }
    recorder_.allocated(block, bytes, stream);
    return block;
  }

  Upstream* upstream_;
  rmm_recorder recorder_;
};

#endif

}  // namespace floodmark

#endif

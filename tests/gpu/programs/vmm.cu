// Virtual memory management: physical memory that is made, mapped, and released. Prints bytes held at the peak by its own
// count and by the change of cuMemGetInfo, and bytes left at the end.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call) \
  do { CUresult error_ = (call); if (error_ != CUDA_SUCCESS) { std::fprintf(stderr, "%s: %d\n", #call, error_); std::exit(1); } } while (0)

static std::size_t free_bytes()
{
  std::size_t free, total;
  CHECK(cuMemGetInfo(&free, &total));
  return free;
}

int main()
{
  CUdevice device;
  CUcontext context;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  CUmemAllocationProp props = {};
  props.type                = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location            = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  std::size_t granularity;
  CHECK(cuMemGetAllocationGranularity(&granularity, &props, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  std::size_t const bytes = 64 * granularity;
  CUdeviceptr base;
  CHECK(cuMemAddressReserve(&base, 16 * bytes, 0, 0, 0));
  std::size_t const before = free_bytes();
  std::vector<CUmemGenericAllocationHandle> handles;
  for (int i = 0; i < 8; i++) {
    CUmemGenericAllocationHandle handle;
    CHECK(cuMemCreate(&handle, bytes, &props, 0));
    CHECK(cuMemMap(base + i * bytes, bytes, 0, handle, 0));
    handles.push_back(handle);
  }
  CUmemAccessDesc access = {props.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CHECK(cuMemSetAccess(base, 8 * bytes, &access, 1));
  std::size_t const at_peak = before - free_bytes();
  // Handles go first, mappings later; the memory goes with the later of both.
  for (auto handle : handles) { CHECK(cuMemRelease(handle)); }
  CHECK(cuMemUnmap(base, 5 * bytes));
  std::size_t const at_end = before - free_bytes();
  std::printf("{\"own_peak\": %zu, \"driver_peak\": %zu, \"own_end\": %zu, \"driver_end\": %zu}\n", 8 * bytes, at_peak,
              3 * bytes, at_end);
}

/* Stands for libc10_cuda.so of PyTorch: a cache that gets a segment from the driver and hands parts of it out. */
#define _GNU_SOURCE
#include "driver.h"
#include <dlfcn.h>
#include <stdlib.h>

enum { MIB = 1 << 20 };
static CUdeviceptr segment;
static size_t used;

void report_usage(void *block, long bytes, size_t allocated, size_t reserved, unsigned short device)
  __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
void report_failure(long bytes, size_t allocated, size_t reserved, unsigned short device)
  __asm__("_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE");

static void *driver(const char *name) { return dlsym(dlopen("libcuda.so.1", RTLD_NOW), name); }
#define CALL(name, ...) do { CUresult (*call)() = driver(#name); if (call(__VA_ARGS__)) abort(); } while (0)

/* Device 0 of the sort that CUDA is. */
enum { DEVICE = 1 };

__attribute__((noinline)) CUdeviceptr cache_alloc(size_t bytes, unsigned short device) {
  if (!segment) CALL(cuMemAlloc_v2, &segment, (size_t)20 * MIB);
  CUdeviceptr block = segment + used;
  used += bytes;
  report_usage((void *)block, (long)bytes, used, (size_t)20 * MIB, device);
  return block;
}

void cache_free(CUdeviceptr block, size_t bytes) {
  used -= bytes;
  report_usage((void *)block, -(long)bytes, used, (size_t)20 * MIB, DEVICE);
}

/* As with expandable segments: physical memory, mapped into reserved addresses. */
void cache_expand(void) {
  CUdeviceptr at;
  CUmemAllocationProp props = {.type = 1, .location = {1, 0}};
  CUmemGenericAllocationHandle handle;
  CALL(cuMemAddressReserve, &at, (size_t)64 * MIB, (size_t)0, (CUdeviceptr)0, 0ULL);
  CALL(cuMemCreate, &handle, (size_t)6 * MIB, &props, 0ULL);
  CALL(cuMemMap, at, (size_t)6 * MIB, (size_t)0, handle, 0ULL);
}

void cache_fail(void) { report_failure(77 * MIB, used, (size_t)20 * MIB, DEVICE); }

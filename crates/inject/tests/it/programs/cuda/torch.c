/* Uses a cache of device memory as a Python program uses that of PyTorch: its libraries are opened at run time, for
   nothing else to see. Prints how often the cache reported, and the sum of what it said. */
#define _GNU_SOURCE
#include "driver.h"
#include <dlfcn.h>
#include <stdio.h>

enum { MIB = 1 << 20 };

int main(void) {
  void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *cache = dlopen("libc10_cuda.so", RTLD_NOW | RTLD_LOCAL);
  if (!cuda || !cache) { fprintf(stderr, "%s\n", dlerror()); return 3; }
  CUcontext context;
  CUdeviceptr own;
  CUresult (*init)(unsigned) = dlsym(cuda, "cuInit");
  CUresult (*retain)(CUcontext *, CUdevice) = dlsym(cuda, "cuDevicePrimaryCtxRetain");
  CUresult (*set)(CUcontext) = dlsym(cuda, "cuCtxSetCurrent");
  CUresult (*alloc)(CUdeviceptr *, size_t) = dlsym(cuda, "cuMemAlloc_v2");
  CUdeviceptr (*cache_alloc)(size_t, unsigned short) = dlsym(cache, "cache_alloc");
  void (*cache_free)(CUdeviceptr, size_t) = dlsym(cache, "cache_free");
  void (*cache_expand)(void) = dlsym(cache, "cache_expand"), (*cache_fail)(void) = dlsym(cache, "cache_fail");
  if (init(0) || retain(&context, 0) || set(context)) return 4;
  CUdeviceptr first = cache_alloc(3 * MIB, 1);
  cache_alloc(2 * MIB, 1);
  /* Memory of the host is another sort. */
  cache_alloc(1 * MIB, 0);
  /* Another library than the cache. */
  if (alloc(&own, 5 * MIB)) return 5;
  cache_free(first, 3 * MIB);
  cache_expand();
  cache_fail();
  void *c10 = dlopen("libc10.so", RTLD_NOW | RTLD_NOLOAD);
  printf("%ld %ld %ld\n", *(long *)dlsym(c10, "c10_calls"), *(long *)dlsym(c10, "c10_failures"), *(long *)dlsym(c10, "c10_sum"));
  return 0;
}

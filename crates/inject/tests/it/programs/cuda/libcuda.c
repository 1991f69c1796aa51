/* A driver without a device, for tests: memory is numbers. Addresses that were freed are given out again at once, as a
   driver does, and calls are told to a tool as the real driver tells them to CUPTI: before and after, with arguments and
   result. STUB_TOTAL is the memory of each of its two devices. */
#define _GNU_SOURCE
#include "driver.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void (*Hook)(int site, unsigned cbid, const char *name, const void *params, CUresult *result, void *ctx);
static Hook hook;
void stub_set_hook(Hook new_hook) { hook = new_hook; }
typedef void (*ContextHook)(void *ctx);
static ContextHook context_hook;
void stub_set_context_hook(ContextHook new_hook) { context_hook = new_hook; }

enum { SUCCESS = 0, INVALID = 1, NO_MEMORY = 2, NOT_INITIALIZED = 3 };
struct ctx { int device, is_live; };
static struct ctx primary[2] = {{0, 0}, {1, 0}};
static int retained[2];
static __thread CUcontext current;
static int initialized;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

enum { MOST = 1 << 16 };
struct block { CUdeviceptr at; size_t bytes; CUcontext ctx; int device, refs, maps; CUdeviceptr of; char type; };
static struct block blocks[MOST];
static int count;
static size_t used[2];
static CUdeviceptr next = 0x7f0000000000ull;

static size_t total(void) {
  const char *text = getenv("STUB_TOTAL");
  return text ? strtoull(text, 0, 10) : (size_t)1 << 30;
}

/* type: d device, m managed, h host, a array, p physical, r reservation, v mapping, i imported, g graph */
static int counts(char type) { return type == 'd' || type == 'a' || type == 'p' || type == 'm'; }

static CUresult add(char type, CUdeviceptr at, size_t bytes, int device, CUdeviceptr *out, CUdeviceptr of) {
  CUresult result = NO_MEMORY;
  pthread_mutex_lock(&lock);
  if (count < MOST && (!counts(type) || (bytes <= total() && used[device] + bytes <= total()))) {
    if (!at) {
      /* The lowest address that is free, in steps of 2 MiB. */
      at = next;
      for (int again = 1; again;) {
        again = 0;
        for (int i = 0; i < count; i++)
          if (blocks[i].type != 'v' && at < blocks[i].at + (blocks[i].bytes | 1) && blocks[i].at < at + (bytes | 1)) {
            at = (blocks[i].at + blocks[i].bytes + 0x200000) & ~0x1fffffull;
            again = 1;
          }
      }
    }
    blocks[count++] = (struct block){at, bytes, current, device, 1, 0, of, type};
    if (counts(type)) used[device] += bytes;
    if (out) *out = at;
    result = SUCCESS;
  }
  pthread_mutex_unlock(&lock);
  return result;
}

static void drop(int i) {
  if (counts(blocks[i].type)) used[blocks[i].device] -= blocks[i].bytes;
  blocks[i] = blocks[--count];
}

static CUresult take(CUdeviceptr at, const char *types) {
  CUresult result = INVALID;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < count; i++)
    if (blocks[i].at == at && strchr(types, blocks[i].type)) {
      drop(i);
      result = SUCCESS;
      break;
    }
  pthread_mutex_unlock(&lock);
  return result;
}

static void end_context(CUcontext ctx) {
  if (context_hook && ctx->is_live) context_hook(ctx);
  pthread_mutex_lock(&lock);
  for (int i = 0; i < count;)
    if (blocks[i].ctx == ctx && strchr("dmhaig", blocks[i].type)) drop(i);
    else i++;
  pthread_mutex_unlock(&lock);
  ctx->is_live = 0;
}

/* Tells a call: P is the structure of its arguments as CUPTI gives it. */
#define TOLD(cbid, name, body, ...) \
  struct { __VA_ARGS__ } p
#define ENTER(cbid, name) if (hook) hook(0, cbid, name, &p, 0, current)
#define LEAVE(cbid, name, result) do { CUresult r_ = (result); if (hook) hook(1, cbid, name, &p, &r_, current); return r_; } while (0)
#define NEED() if (!initialized) return NOT_INITIALIZED; if (!current) return 201
#define WORD(type, field) _Alignas(8) type field;

CUresult cuInit(unsigned flags) {
  (void)flags;
  if (initialized) return SUCCESS;
  initialized = 1;
  const char *path = getenv("CUDA_INJECTION64_PATH");
  if (path) {
    void *library = dlopen(path, RTLD_NOW);
    int (*injected)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : 0;
    if (injected) injected();
  }
  return SUCCESS;
}
CUresult cuDriverGetVersion(int *version) { *version = 13000; return SUCCESS; }
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) { memset(uuid, 0x10 + device, sizeof *uuid); return SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext ctx) { current = ctx; return SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext *ctx) { *ctx = current; return SUCCESS; }
CUresult cuCtxGetDevice(CUdevice *device) { if (!current) return 201; *device = current->device; return SUCCESS; }
CUresult cuMemGetInfo_v2(size_t *free, size_t *all) { if (!current) return 201; *all = total(); *free = *all - used[current->device]; return SUCCESS; }
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr at) {
  for (int i = 0; i < count; i++)
    if (blocks[i].at == at) { *base = at; *bytes = blocks[i].bytes; return SUCCESS; }
  return INVALID;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device) {
  struct { WORD(CUcontext *, ctx) WORD(CUdevice, device) } p = {ctx, device};
  if (!initialized) return NOT_INITIALIZED;
  if (device < 0 || device > 1) return INVALID;
  ENTER(386, "cuDevicePrimaryCtxRetain");
  retained[device]++;
  primary[device].is_live = 1;
  *ctx = &primary[device];
  LEAVE(386, "cuDevicePrimaryCtxRetain", SUCCESS);
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  struct { WORD(CUdevice, device) } p = {device};
  ENTER(544, "cuDevicePrimaryCtxRelease_v2");
  if (retained[device] > 0 && --retained[device] == 0) end_context(&primary[device]);
  LEAVE(544, "cuDevicePrimaryCtxRelease_v2", SUCCESS);
}
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  struct { WORD(CUdevice, device) } p = {device};
  ENTER(545, "cuDevicePrimaryCtxReset_v2");
  end_context(&primary[device]);
  retained[device] = 0;
  LEAVE(545, "cuDevicePrimaryCtxReset_v2", SUCCESS);
}
CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned flags, CUdevice device) {
  (void)flags;
  *ctx = calloc(1, sizeof **ctx);
  (*ctx)->device = device;
  (*ctx)->is_live = 1;
  current = *ctx;
  return SUCCESS;
}
CUresult cuCtxDestroy_v2(CUcontext ctx) {
  struct { WORD(CUcontext, ctx) } p = {ctx};
  ENTER(322, "cuCtxDestroy_v2");
  end_context(ctx);
  if (current == ctx) current = 0;
  LEAVE(322, "cuCtxDestroy_v2", SUCCESS);
}

#define ALLOC(name, cbid, type) \
  ENTER(cbid, #name); \
  CUdeviceptr at_ = 0; \
  CUresult result = bytes ? add(type, 0, bytes, current->device, &at_, 0) : INVALID; \
  if (result == SUCCESS) *p.dptr = at_; \
  LEAVE(cbid, #name, result)

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytes) {
  struct { CUdeviceptr *dptr; size_t bytes; } p = {dptr, bytes};
  NEED();
  ALLOC(cuMemAlloc_v2, 243, 'd');
}
CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height, unsigned element) {
  struct { CUdeviceptr *dptr; size_t *pitch, width, height; unsigned element; } p = {dptr, pitch, width, height, element};
  NEED();
  *pitch = (width + 511) & ~511ul;
  size_t bytes = *pitch * height;
  ALLOC(cuMemAllocPitch_v2, 244, 'd');
}
CUresult cuMemFree_v2(CUdeviceptr dptr) {
  struct { CUdeviceptr dptr; } p = {dptr};
  NEED();
  ENTER(245, "cuMemFree_v2");
  CUresult result = dptr ? take(dptr, "dmg") : SUCCESS;
  LEAVE(245, "cuMemFree_v2", result);
}
CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytes, unsigned flags) {
  struct { CUdeviceptr *dptr; size_t bytes; unsigned flags; } p = {dptr, bytes, flags};
  NEED();
  ALLOC(cuMemAllocManaged, 371, 'm');
}
CUresult cuMemAllocHost_v2(void **dptr, size_t bytes) {
  struct { CUdeviceptr *dptr; size_t bytes; } p = {(CUdeviceptr *)dptr, bytes};
  NEED();
  ALLOC(cuMemAllocHost_v2, 294, 'h');
}
CUresult cuMemHostAlloc(void **dptr, size_t bytes, unsigned flags) {
  struct { CUdeviceptr *dptr; size_t bytes; unsigned flags; } p = {(CUdeviceptr *)dptr, bytes, flags};
  NEED();
  ALLOC(cuMemHostAlloc, 39, 'h');
}
CUresult cuMemFreeHost(void *pointer) {
  struct { void *pointer; } p = {pointer};
  NEED();
  ENTER(38, "cuMemFreeHost");
  CUresult result = take((CUdeviceptr)pointer, "h");
  LEAVE(38, "cuMemFreeHost", result);
}
CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags) {
  struct { void *pointer; size_t bytes; unsigned flags; } p = {pointer, bytes, flags};
  NEED();
  ENTER(379, "cuMemHostRegister_v2");
  CUresult result = add('h', (CUdeviceptr)pointer, bytes, current->device, 0, 0);
  LEAVE(379, "cuMemHostRegister_v2", result);
}
CUresult cuMemHostUnregister(void *pointer) {
  struct { void *pointer; } p = {pointer};
  NEED();
  ENTER(302, "cuMemHostUnregister");
  CUresult result = take((CUdeviceptr)pointer, "h");
  LEAVE(302, "cuMemHostUnregister", result);
}
CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytes, CUstream stream) {
  struct { CUdeviceptr *dptr; size_t bytes; CUstream stream; } p = {dptr, bytes, stream};
  NEED();
  ALLOC(cuMemAllocAsync, 598, 'd');
}
CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream stream) {
  struct { CUdeviceptr dptr; CUstream stream; } p = {dptr, stream};
  NEED();
  ENTER(600, "cuMemFreeAsync");
  CUresult result = take(dptr, "dg");
  LEAVE(600, "cuMemFreeAsync", result);
}
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream) {
  struct { CUdeviceptr *dptr; size_t bytes; CUmemoryPool pool; CUstream stream; } p = {dptr, bytes, pool, stream};
  NEED();
  ALLOC(cuMemAllocFromPoolAsync, 611, 'd');
}
CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props) {
  struct { CUmemoryPool *pool; const CUmemPoolProps *props; } p = {pool, props};
  ENTER(607, "cuMemPoolCreate");
  *pool = malloc(8);
  LEAVE(607, "cuMemPoolCreate", SUCCESS);
}
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  struct { CUmemoryPool pool; } p = {pool};
  ENTER(608, "cuMemPoolDestroy");
  free(pool);
  LEAVE(608, "cuMemPoolDestroy", SUCCESS);
}
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  struct { CUmemoryPool pool; size_t keep; } p = {pool, keep};
  ENTER(602, "cuMemPoolTrimTo");
  LEAVE(602, "cuMemPoolTrimTo", SUCCESS);
}
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value) {
  (void)pool;
  *(uint64_t *)value = attribute == 5 ? 64 << 20 : 3 << 20;
  return SUCCESS;
}
CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) {
  static char pools[2];
  *pool = (CUmemoryPool)&pools[device];
  return SUCCESS;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags) {
  struct { CUmemGenericAllocationHandle *handle; size_t bytes; const CUmemAllocationProp *prop; unsigned long long flags; } p = {handle, bytes, prop, flags};
  if (!initialized) return NOT_INITIALIZED;
  ENTER(549, "cuMemCreate");
  CUresult result = add('p', 0, bytes, prop->location.id, handle, 0);
  LEAVE(549, "cuMemCreate", result);
}
static void unused(int i) { if (blocks[i].refs <= 0 && blocks[i].maps <= 0) drop(i); }
static int find(CUdeviceptr at, char type) {
  for (int i = 0; i < count; i++) if (blocks[i].at == at && blocks[i].type == type) return i;
  return -1;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  struct { CUmemGenericAllocationHandle handle; } p = {handle};
  ENTER(550, "cuMemRelease");
  int i = find(handle, 'p');
  if (i >= 0) { blocks[i].refs--; unused(i); }
  LEAVE(550, "cuMemRelease", i < 0 ? INVALID : SUCCESS);
}
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
  struct { CUmemGenericAllocationHandle *handle; void *address; } p = {handle, address};
  ENTER(565, "cuMemRetainAllocationHandle");
  int i = find((CUdeviceptr)address, 'v');
  int of = i < 0 ? -1 : find(blocks[i].of, 'p');
  if (of >= 0) { blocks[of].refs++; *handle = blocks[of].at; }
  LEAVE(565, "cuMemRetainAllocationHandle", of < 0 ? INVALID : SUCCESS);
}
CUresult cuMemAddressReserve(CUdeviceptr *dptr, size_t bytes, size_t alignment, CUdeviceptr at, unsigned long long flags) {
  struct { CUdeviceptr *dptr; size_t bytes, alignment; CUdeviceptr at; unsigned long long flags; } p = {dptr, bytes, alignment, at, flags};
  ENTER(547, "cuMemAddressReserve");
  CUresult result = add('r', 0, bytes, 0, dptr, 0);
  LEAVE(547, "cuMemAddressReserve", result);
}
CUresult cuMemAddressFree(CUdeviceptr dptr, size_t bytes) {
  struct { CUdeviceptr dptr; size_t bytes; } p = {dptr, bytes};
  ENTER(548, "cuMemAddressFree");
  CUresult result = take(dptr, "r");
  LEAVE(548, "cuMemAddressFree", result);
}
CUresult cuMemMap(CUdeviceptr dptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags) {
  struct { CUdeviceptr dptr; size_t bytes, offset; CUmemGenericAllocationHandle handle; unsigned long long flags; } p = {dptr, bytes, offset, handle, flags};
  ENTER(551, "cuMemMap");
  int i = find(handle, 'p');
  if (i >= 0) blocks[i].maps++;
  CUresult result = i < 0 ? INVALID : add('v', dptr, bytes, blocks[i].device, 0, handle);
  LEAVE(551, "cuMemMap", result);
}
CUresult cuMemUnmap(CUdeviceptr dptr, size_t bytes) {
  struct { CUdeviceptr dptr; size_t bytes; } p = {dptr, bytes};
  ENTER(552, "cuMemUnmap");
  for (int i = 0; i < count;)
    if (blocks[i].type == 'v' && blocks[i].at >= dptr && blocks[i].at < dptr + bytes) {
      CUdeviceptr of = blocks[i].of;
      drop(i);
      int physical = find(of, 'p');
      if (physical >= 0) { blocks[physical].maps--; unused(physical); }
      i = 0;
    } else i++;
  LEAVE(552, "cuMemUnmap", SUCCESS);
}
CUresult cuArrayCreate_v2(CUarray *dptr, const ArrayDescriptor *descriptor) {
  struct { CUdeviceptr *dptr; const ArrayDescriptor *descriptor; } p = {(CUdeviceptr *)dptr, descriptor};
  NEED();
  size_t bytes = descriptor->width * (descriptor->height ? descriptor->height : 1) * descriptor->channels * 4;
  ALLOC(cuArrayCreate_v2, 272, 'a');
}
CUresult cuArray3DCreate_v2(CUarray *dptr, const Array3dDescriptor *descriptor) {
  struct { CUdeviceptr *dptr; const Array3dDescriptor *descriptor; } p = {(CUdeviceptr *)dptr, descriptor};
  NEED();
  size_t bytes = 4096;
  ALLOC(cuArray3DCreate_v2, 274, 'a');
}
CUresult cuArrayDestroy(CUarray array) {
  struct { CUarray array; } p = {array};
  ENTER(89, "cuArrayDestroy");
  CUresult result = take((CUdeviceptr)array, "a");
  LEAVE(89, "cuArrayDestroy", result);
}
CUresult cuGraphCreate(CUgraph *graph, unsigned flags) { (void)flags; *graph = malloc(8); return SUCCESS; }
CUresult cuGraphDestroy(CUgraph graph) {
  struct { CUgraph graph; } p = {graph};
  ENTER(517, "cuGraphDestroy");
  free(graph);
  LEAVE(517, "cuGraphDestroy", SUCCESS);
}
CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t n, AllocNode *params) {
  struct { CUgraphNode *node; CUgraph graph; const CUgraphNode *dependencies; size_t n; AllocNode *params; } p = {node, graph, dependencies, n, params};
  ENTER(638, "cuGraphAddMemAllocNode");
  CUresult result = add('g', 0, params->bytesize, params->pool.location.id, &params->dptr, 0);
  LEAVE(638, "cuGraphAddMemAllocNode", result);
}
CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr dptr) {
  memset(handle, 0, sizeof *handle);
  memcpy(handle, &dptr, sizeof dptr);
  handle->bytes[63] = 0x5a;
  return SUCCESS;
}
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *dptr, CUipcMemHandle handle, unsigned flags) {
  struct { CUdeviceptr *dptr; CUipcMemHandle handle; unsigned flags; } p = {dptr, handle, flags};
  NEED();
  if (handle.bytes[63] != 0x5a || flags != 1) return INVALID;
  ENTER(567, "cuIpcOpenMemHandle_v2");
  CUresult result = add('i', 0, 5 << 20, current->device, dptr, 0);
  LEAVE(567, "cuIpcOpenMemHandle_v2", result);
}
CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
  struct { CUdeviceptr dptr; } p = {dptr};
  ENTER(330, "cuIpcCloseMemHandle");
  CUresult result = take(dptr, "i");
  LEAVE(330, "cuIpcCloseMemHandle", result);
}

static const struct { const char *name; void *function; } names[] = {
#define NAME(name, base, arguments) {#base, (void *)name},
  FUNCTIONS(NAME)
  {"cuGetProcAddress", (void *)cuGetProcAddress_v2},
};
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, unsigned long long flags, int *status) {
  (void)version, (void)flags;
  if (status) *status = 0;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(names[i].name, symbol)) { *function = names[i].function; return SUCCESS; }
  *function = 0;
  return 500;
}

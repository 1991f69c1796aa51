/* A stand-in for NVIDIA's driver on machines without a GPU: it answers the calls that Floodmark makes,
   with memory of the host. Nothing runs later than it was enqueued. It refuses what the real one refuses:
   calls without a current context, and handles that have ended. Memory may be taken and given by many threads.

   Switches: STUB_DEVICES=n, STUB_OLD (a driver of CUDA 11.1), STUB_WITHOUT_ALLOC (lacks a function),
   STUB_NO_DEVICE (finds no device), STUB_SKEWED (pinned memory is badly aligned). */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef STUB_DEVICES
#define STUB_DEVICES 1
#endif
#define TOTAL (64ul << 20)
#define UNLUCKY 666 /* a request of so many bytes fails as after a bad kernel */
enum { OK = 0, INVALID = 1, NO_MEMORY = 2, NO_DEVICE = 100, NO_CONTEXT = 201, NOT_READY = 600, ILLEGAL = 700 };
typedef uintptr_t handle;
typedef uint64_t address;

/* What a test may ask for with stub_count. */
enum { LIVE_BYTES, STREAMS, EVENTS, WAITS, POOLS, RETAINED, PREFETCHES, LAUNCHES, THRESHOLD, SECOND_BYTES, COUNTS };
static long counts[COUNTS];
static void count(int what, long change) { __atomic_fetch_add(&counts[what], change, __ATOMIC_RELAXED); }
long stub_count(int what) { return counts[what]; }

enum { FIRST_CONTEXT = 0x1000 };
static _Thread_local handle current;
#define NEED_CONTEXT if (current == 0) return NO_CONTEXT

int cuInit(unsigned flags) {
#ifdef STUB_NO_DEVICE
    return NO_DEVICE;
#endif
    return flags == 0 ? OK : INVALID;
}
#ifdef STUB_OLD
int cuDriverGetVersion(int *version) { return *version = 11010, OK; }
#else
int cuDriverGetVersion(int *version) { return *version = 13000, OK; }
#endif
int cuGetErrorName(int status, const char **name) {
    *name = status == NO_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : status == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE"
          : status == ILLEGAL ? "CUDA_ERROR_ILLEGAL_ADDRESS" : status == INVALID ? "CUDA_ERROR_INVALID_VALUE" : NULL;
    return *name == NULL ? INVALID : OK;
}
int cuGetErrorString(int status, const char **text) {
    *text = status == NO_MEMORY ? "out of memory" : status == NO_DEVICE ? "no CUDA-capable device is detected"
          : status == ILLEGAL ? "an illegal memory access was encountered" : "invalid argument";
    return OK;
}
int cuDeviceGetCount(int *count) { return *count = STUB_DEVICES, OK; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, OK; }
int cuDeviceGetName(char *name, int size, int device) { return strncpy(name, "Stand-in", size), device < 0; }
int cuDeviceGetUuid(char *uuid, int device) {
    for (int i = 0; i < 16; i++) uuid[i] = (char)(i + 16 * device);
    return OK;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) { return *value = attribute == 115, device < 0; }
int cuDeviceTotalMem_v2(size_t *total, int device) { return *total = TOTAL, device < 0; }
int cuDevicePrimaryCtxRetain(handle *context, int device) { return count(RETAINED, 1), *context = FIRST_CONTEXT + device, OK; }
int cuDevicePrimaryCtxRelease_v2(int device) { return count(RETAINED, -1), device < 0; }
int cuCtxSetCurrent(handle context) { return current = context, OK; }
int cuCtxGetCurrent(handle *context) { return *context = current, OK; }
int cuCtxSynchronize(void) { NEED_CONTEXT; return OK; }
int cuMemGetInfo_v2(size_t *free, size_t *total) {
    NEED_CONTEXT;
    return *total = TOTAL, *free = TOTAL - counts[LIVE_BYTES], OK;
}

/* What is known of a block, 256 bytes before it begins. */
struct pool;
struct head { size_t bytes; handle context; struct pool *pool; };
static struct head *head(uintptr_t block) { return (struct head *)(block - 256); }

/* Blocks are as well aligned as the driver's, or 16 bytes off. */
static int take(void **block, size_t bytes, size_t skew) {
    NEED_CONTEXT;
    if (bytes == 0) return INVALID;
    if (bytes == UNLUCKY) return ILLEGAL;
    if (bytes > TOTAL || counts[LIVE_BYTES] + bytes > TOTAL) return NO_MEMORY;
    char *raw = aligned_alloc(256, (bytes + skew + 511) / 256 * 256);
    *block = raw + 256 + skew;
    *head((uintptr_t)*block) = (struct head){bytes, current, NULL};
    count(LIVE_BYTES, (long)bytes);
    if (current == FIRST_CONTEXT + 1) count(SECOND_BYTES, (long)bytes);
    return OK;
}
static int give(uintptr_t block) {
    NEED_CONTEXT;
    if (block == 0) return INVALID;
    count(LIVE_BYTES, -(long)head(block)->bytes);
    if (head(block)->context == FIRST_CONTEXT + 1) count(SECOND_BYTES, -(long)head(block)->bytes);
    return free((void *)((block - 256) & ~(uintptr_t)255)), OK;
}
#ifndef STUB_WITHOUT_ALLOC
int cuMemAlloc_v2(address *block, size_t bytes) { return take((void **)block, bytes, 0); }
#endif
int cuMemAllocManaged(address *block, size_t bytes, unsigned flags) {
    return flags == 1 ? take((void **)block, bytes, 0) : INVALID;
}
int cuMemFree_v2(address block) { return give(block); }
int cuMemHostAlloc(void **block, size_t bytes, unsigned flags) {
#ifdef STUB_SKEWED
    return flags > 7 ? INVALID : take(block, bytes, 16);
#endif
    return flags > 7 ? INVALID : take(block, bytes, 0);
}
int cuMemFreeHost(void *block) { return give((uintptr_t)block); }

/* Handles are places in this table, so that one is used again as soon as its stream has ended. */
static uint64_t stream_ids[16], next_id = 10;
static int bad(handle stream) { return stream > 2 && (stream < 16 || stream >= 32 || stream_ids[stream - 16] == 0); }
int cuStreamCreate(handle *stream, unsigned flags) {
    NEED_CONTEXT;
    for (int i = 0; flags <= 1 && i < 16; i++)
        if (stream_ids[i] == 0) return stream_ids[i] = next_id++, count(STREAMS, 1), *stream = 16 + i, OK;
    return INVALID;
}
int cuStreamDestroy_v2(handle stream) {
    if (current == 0 || stream <= 2 || bad(stream)) return INVALID;
    return stream_ids[stream - 16] = 0, count(STREAMS, -1), OK;
}
int cuStreamSynchronize(handle stream) { NEED_CONTEXT; return bad(stream); }
int cuStreamWaitEvent(handle stream, handle event, unsigned flags) {
    NEED_CONTEXT;
    return count(WAITS, 1), bad(stream) || event == 0 || flags != 0;
}
int cuEventCreate(handle *event, unsigned flags) {
    NEED_CONTEXT;
    return *event = (handle)calloc(1, sizeof(handle)), count(EVENTS, 1), flags != 2;
}
int cuEventDestroy_v2(handle event) { return free((void *)event), count(EVENTS, -1), OK; }
int cuEventRecord(handle event, handle stream) {
    NEED_CONTEXT;
    return bad(stream) ? INVALID : (*(handle *)event = stream + 1, OK);
}
int cuEventQuery(handle event) { return *(handle *)event == 0 ? NOT_READY : OK; }
int cuEventSynchronize(handle event) { return *(handle *)event == 0 ? INVALID : OK; }

int cuMemcpyAsync(address to, address from, size_t bytes, handle stream) {
    NEED_CONTEXT;
    return memcpy((void *)to, (void *)from, bytes), bad(stream);
}
int cuMemsetD8Async(address at, unsigned char value, size_t bytes, handle stream) {
    NEED_CONTEXT;
    return memset((void *)at, value, bytes), bad(stream);
}
int cuMemsetD32Async(address at, unsigned value, size_t words, handle stream) {
    NEED_CONTEXT;
    for (size_t i = 0; i < words; i++) ((unsigned *)at)[i] = value;
    return bad(stream);
}
int cuMemPrefetchAsync(address at, size_t bytes, int device, handle stream) {
    NEED_CONTEXT;
    return count(PREFETCHES, (long)bytes), at == 0 || device != 0 || bad(stream);
}
int cuModuleLoadData(handle *module, const char *ptx) { NEED_CONTEXT; return *module = 7, ptx[0] != '.'; }
int cuModuleUnload(handle module) { return module != 7; }
int cuModuleGetFunction(handle *function, handle module, const char *name) {
    return *function = 8, module != 7 || strcmp(name, "spin") != 0;
}
int cuLaunchKernel(handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, handle stream, void **parameters, void **extra) {
    NEED_CONTEXT;
    if (function != 8 || gx * gy * gz == 0 || bx * by * bz == 0 || shared != 0 || extra != NULL) return INVALID;
    return count(LAUNCHES, *(long *)parameters[0]), bad(stream);
}

#ifndef STUB_OLD
struct location { int kind, id; };
int cuMemPrefetchAsync_v2(address at, size_t bytes, struct location to, unsigned flags, handle stream) {
    return to.kind != 1 || flags != 0 ? INVALID : cuMemPrefetchAsync(at, bytes, to.id, stream);
}
int cuStreamGetId(handle stream, uint64_t *id) {
    return bad(stream) ? INVALID : (*id = stream <= 2 ? stream + 1 : stream_ids[stream - 16], OK);
}
/* A pool: threshold, reserved now and at most, used now and at most, at the driver's own numbers. */
struct pool { uint64_t attributes[9]; };
struct props { int allocation, shared; struct location location; void *security; size_t most; char rest[56]; };
int cuMemPoolCreate(struct pool **pool, const struct props *props) {
    NEED_CONTEXT;
    if (props->allocation != 1 || props->location.kind != 1 || props->most != 0) return INVALID;
    return *pool = calloc(1, sizeof **pool), count(POOLS, 1), OK;
}
int cuMemPoolDestroy(struct pool *pool) { return free(pool), count(POOLS, -1), OK; }
int cuMemPoolSetAttribute(struct pool *pool, int attribute, uint64_t *value) {
    return pool->attributes[attribute] = *value, counts[THRESHOLD] = (long)*value, attribute != 4;
}
int cuMemPoolGetAttribute(struct pool *pool, int attribute, uint64_t *value) {
    return *value = pool->attributes[attribute], OK;
}
int cuMemPoolTrimTo(struct pool *pool, size_t keep) {
    uint64_t least = keep > pool->attributes[7] ? keep : pool->attributes[7];
    return pool->attributes[5] = pool->attributes[5] < least ? pool->attributes[5] : least, OK;
}
int cuMemAllocFromPoolAsync(address *block, size_t bytes, struct pool *pool, handle stream) {
    int status = bad(stream) ? INVALID : take((void **)block, bytes, 0);
    if (status != OK) return status;
    head(*block)->pool = pool;
    uint64_t *a = pool->attributes;
    __atomic_fetch_add(a + 7, bytes, __ATOMIC_RELAXED);
    if (a[8] < a[7]) a[8] = a[7];
    if (a[5] < a[7]) a[5] = a[7];
    if (a[6] < a[5]) a[6] = a[5];
    return OK;
}
int cuMemFreeAsync(address block, handle stream) {
    if (bad(stream)) return INVALID;
    __atomic_fetch_sub(head(block)->pool->attributes + 7, head(block)->bytes, __ATOMIC_RELAXED);
    return give(block);
}
#endif

/* Calls the CUDA driver. `program HOW WHAT`: HOW it finds the driver's functions (link, dlsym, proc), WHAT it does with
   them. Runs with the real driver as with the stub. */
#define _GNU_SOURCE
#include "driver.h"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define POINTER(name, base, arguments) static CUresult (*p_##name) arguments;
FUNCTIONS(POINTER)

#define CHECK(call) do { CUresult result_ = (call); if (result_) { fprintf(stderr, "%s: %d\n", #call, result_); exit(1); } } while (0)
enum { MIB = 1 << 20 };

static void find_functions(const char *how) {
  void *library = strcmp(how, "link") ? dlopen("libcuda.so.1", RTLD_NOW) : 0;
  CUresult (*get)(const char *, void **, int, unsigned long long, int *) = 0;
  if (!strcmp(how, "proc")) {
    get = dlsym(library, "cuGetProcAddress_v2");
    void *again = 0;
    /* As the runtime library does: ask for the function that is asked. */
    if (get("cuGetProcAddress", &again, 12090, 0, 0) == 0) get = again;
  }
#define FIND(name, base, arguments) \
  if (!strcmp(how, "link")) p_##name = name; \
  else if (get) { if (get(#base, (void **)&p_##name, 12090, 0, 0)) exit(3); } \
  else p_##name = dlsym(library, #name);
  FUNCTIONS(FIND)
}

static CUcontext retain(int device) {
  CUcontext ctx;
  CHECK(p_cuDevicePrimaryCtxRetain(&ctx, device));
  CHECK(p_cuCtxSetCurrent(ctx));
  return ctx;
}

__attribute__((noinline)) static CUdeviceptr allocate(size_t bytes) {
  CUdeviceptr at = 0;
  CHECK(p_cuMemAlloc_v2(&at, bytes));
  return at;
}

__attribute__((noinline)) static void leak_five(void) {
  for (int i = 0; i < 5; i++) allocate(3 * MIB);
}

/* Every function that is recorded; at the end 15 MiB of five blocks are left. */
static void everything(void) {
  CUdeviceptr at, other;
  size_t pitch;
  void *host, *registered = aligned_alloc(4096, 4 * MIB);
  CUstream stream = 0;
  at = allocate(10 * MIB);
  CHECK(p_cuMemFree_v2(at));
  CHECK(p_cuMemAllocPitch_v2(&at, &pitch, 1000, 100, 4));
  CHECK(p_cuMemFree_v2(at));
  CHECK(p_cuMemAllocManaged(&at, 7 * MIB, 1));
  CHECK(p_cuMemFree_v2(at));
  CHECK(p_cuMemAllocHost_v2(&host, 2 * MIB));
  CHECK(p_cuMemFreeHost(host));
  CHECK(p_cuMemHostAlloc(&host, MIB, 0));
  CHECK(p_cuMemFreeHost(host));
  CHECK(p_cuMemHostRegister_v2(registered, 4 * MIB, 0));
  CHECK(p_cuMemHostUnregister(registered));
  CHECK(p_cuMemAllocAsync(&at, 6 * MIB, stream));
  CHECK(p_cuMemFreeAsync(at, stream));
  CHECK(p_cuMemAllocAsync(&at, 6 * MIB, stream));
  CHECK(p_cuMemFree_v2(at));
  CUmemPoolProps props = {.type = 1, .location = {1, 0}};
  CUmemoryPool pool;
  CHECK(p_cuMemPoolCreate(&pool, &props));
  CHECK(p_cuMemAllocFromPoolAsync(&at, 5 * MIB, pool, stream));
  CHECK(p_cuMemFreeAsync(at, stream));
  CHECK(p_cuMemPoolTrimTo(pool, 0));
  CHECK(p_cuMemPoolDestroy(pool));
  ArrayDescriptor flat = {64, 32, 0x20, 4};
  CUarray array;
  CHECK(p_cuArrayCreate_v2(&array, &flat));
  CHECK(p_cuArrayDestroy(array));
  Array3dDescriptor cube = {16, 16, 4, 0x20, 1, 0};
  CHECK(p_cuArray3DCreate_v2(&array, &cube));
  CHECK(p_cuArrayDestroy(array));
  CUgraph graph;
  CUgraphNode node;
  CHECK(p_cuGraphCreate(&graph, 0));
  AllocNode alloc = {.pool = {.type = 1, .location = {1, 0}}, .bytesize = 8 * MIB};
  CHECK(p_cuGraphAddMemAllocNode(&node, graph, 0, 0, &alloc));
  CHECK(p_cuGraphDestroy(graph));
  /* Physical memory is released while it is mapped, and ends when it is not any more. */
  CUmemAllocationProp physical = {.type = 1, .location = {1, 0}};
  CUmemGenericAllocationHandle handle;
  CHECK(p_cuMemAddressReserve(&at, 64 * MIB, 0, 0, 0));
  CHECK(p_cuMemCreate(&handle, 12 * MIB, &physical, 0));
  CHECK(p_cuMemMap(at, 12 * MIB, 0, handle, 0));
  CHECK(p_cuMemRelease(handle));
  CHECK(p_cuMemCreate(&handle, 4 * MIB, &physical, 0));
  CHECK(p_cuMemMap(at + 12 * MIB, 4 * MIB, 0, handle, 0));
  CHECK(p_cuMemUnmap(at, 16 * MIB));
  CHECK(p_cuMemRelease(handle));
  CHECK(p_cuMemAddressFree(at, 64 * MIB));
  other = allocate(MIB);
  CHECK(p_cuMemFree_v2(other));
  /* A free that fails ends nothing, and one of nothing is none. */
  p_cuMemFree_v2(0xdead0000);
  p_cuMemFree_v2(0);
  leak_five();
  free(registered);
}

static void ipc(void) {
  CUdeviceptr at = allocate(5 * MIB), opened;
  CUipcMemHandle handle;
  CHECK(p_cuIpcGetMemHandle(&handle, at));
  CHECK(p_cuIpcOpenMemHandle_v2(&opened, handle, 1));
  CHECK(p_cuIpcCloseMemHandle(opened));
  CHECK(p_cuMemFree_v2(at));
}

/* Asks for more and more until there is no more. */
static void out_of_memory(void) {
  CUdeviceptr at;
  size_t free_bytes, total;
  CHECK(p_cuMemGetInfo_v2(&free_bytes, &total));
  leak_five();
  for (int i = 0; i < 3; i++) allocate(free_bytes / 4);
  CUresult result = p_cuMemAlloc_v2(&at, free_bytes / 2);
  printf("%d %zu\n", result, free_bytes / 2);
}

static void *work(void *argument) {
  CHECK(p_cuCtxSetCurrent(argument));
  for (int i = 0; i < 500; i++) {
    CUdeviceptr at;
    CHECK(p_cuMemAllocAsync(&at, 4096 + i, 0));
    CHECK(p_cuMemFreeAsync(at, 0));
  }
  allocate(MIB);
  return 0;
}

static void threads(CUcontext ctx) {
  pthread_t all[8];
  for (int i = 0; i < 8; i++) pthread_create(&all[i], 0, work, ctx);
  for (int i = 0; i < 8; i++) pthread_join(all[i], 0);
}

int main(int count, char **arguments) {
  if (count < 3) return 2;
  const char *what = arguments[2];
  find_functions(arguments[1]);
  if (!strcmp(what, "fork-before")) {
    /* The child is the one that uses CUDA. */
    if (fork()) { int status; wait(&status); return status != 0; }
  }
  CHECK(p_cuInit(0));
  CUcontext ctx = retain(0);
  if (!strcmp(what, "all")) everything();
  else if (!strcmp(what, "ipc")) ipc();
  else if (!strcmp(what, "leak") || !strcmp(what, "fork-before")) leak_five();
  else if (!strcmp(what, "oom")) out_of_memory();
  else if (!strcmp(what, "threads")) threads(ctx);
  else if (!strcmp(what, "reset")) { leak_five(); CHECK(p_cuDevicePrimaryCtxReset_v2(0)); ctx = retain(0); allocate(MIB); }
  else if (!strcmp(what, "release")) { leak_five(); CHECK(p_cuDevicePrimaryCtxRelease_v2(0)); }
  else if (!strcmp(what, "destroy")) { CHECK(p_cuCtxCreate_v2(&ctx, 0, 0)); leak_five(); CHECK(p_cuCtxDestroy_v2(ctx)); }
  else if (!strcmp(what, "kill")) { leak_five(); kill(getpid(), 9); }
  else if (!strcmp(what, "_exit")) { leak_five(); _exit(0); }
  else if (!strcmp(what, "abort")) { leak_five(); abort(); }
  else if (!strcmp(what, "fork-after")) {
    leak_five();
    pid_t child = fork();
    /* CUDA does not work in the child, and nothing of it is the child's. */
    if (!child) { CUdeviceptr at; p_cuMemFree_v2(0x1234); (void)p_cuMemAlloc_v2(&at, MIB); _exit(0); }
    int status;
    waitpid(child, &status, 0);
    allocate(MIB);
    return status != 0;
  } else if (!strcmp(what, "pairs")) {
    int n = count > 3 ? atoi(arguments[3]) : 1000;
    for (int i = 0; i < n; i++) { CUdeviceptr at; CHECK(p_cuMemAllocAsync(&at, 4096, 0)); CHECK(p_cuMemFreeAsync(at, 0)); }
  } else return 2;
  return 0;
}

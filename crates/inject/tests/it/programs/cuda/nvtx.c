/* Ranges of NVTX around allocations. NVTX is a header that loads the tool which the environment names; this is what it
   does, after its documentation, with REAL_NVTX the header itself. */
#define _GNU_SOURCE
#include "driver.h"
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#ifdef REAL_NVTX
#include <nvtx3/nvToolsExt.h>
#else
typedef struct { uint16_t version, size; uint32_t category; int32_t colorType; uint32_t color; int32_t payloadType, reserved0; uint64_t payload; int32_t messageType; union { const char *ascii; const wchar_t *unicode; const void *registered; } message; } nvtxEventAttributes_t;
typedef void (*Function)(void);
static Function core[17], core2[17], *core_slots[17], *core2_slots[17];
static int functions(uint32_t module, Function ***table, unsigned *size) {
  *table = module == 1 ? core_slots : module == 5 ? core2_slots : 0;
  *size = 16;
  return *table != 0;
}
static struct { size_t size; int (*functions)(uint32_t, Function ***, unsigned *); } callbacks = {sizeof callbacks, functions};
static const void *export_table(uint32_t id) { return id == 1 ? &callbacks : 0; }
static void load(void) {
  for (int i = 1; i < 16; i++) core_slots[i] = &core[i], core2_slots[i] = &core2[i];
  core2_slots[2] = 0;
  void *library = dlopen(getenv("NVTX_INJECTION64_PATH"), RTLD_NOW);
  int (*init)(const void *(*)(uint32_t)) = (int (*)(const void *(*)(uint32_t)))dlsym(library, "InitializeInjectionNvtx2");
  if (init(0) != 0 || init(export_table) != 1) exit(4);
}
#define nvtxRangePushA(text) ((int (*)(const char *))core[9])(text)
#define nvtxRangePushW(text) ((int (*)(const wchar_t *))core[10])(text)
#define nvtxRangePop() ((int (*)(void))core[11])()
#define nvtxRangeStartA(text) ((uint64_t (*)(const char *))core[5])(text)
#define nvtxRangeEnd(range) ((void (*)(uint64_t))core[7])(range)
#define nvtxMarkA(text) ((void (*)(const char *))core[2])(text)
#define nvtxDomainRegisterStringA(domain, text) ((const void *(*)(void *, const char *))core2[10])(domain, text)
#define nvtxDomainRangePushEx(domain, event) ((int (*)(void *, const nvtxEventAttributes_t *))core2[4])(domain, event)
#define nvtxDomainRangePop(domain) ((int (*)(void *))core2[5])(domain)
#endif

static void allocate(size_t bytes) { CUdeviceptr at; if (cuMemAlloc_v2(&at, bytes)) exit(5); }

int main(void) {
  CUcontext ctx;
#ifndef REAL_NVTX
  load();
#endif
  nvtxRangePushA("outer");
  if (cuInit(0) || cuDevicePrimaryCtxRetain(&ctx, 0) || cuCtxSetCurrent(ctx)) return 1;
  allocate(1000);
  nvtxRangePushW(L"größer");
  allocate(2000);
  nvtxRangePop();
  nvtxEventAttributes_t event = {.version = 3, .size = sizeof event, .messageType = 3};
  event.message.registered = (void *)nvtxDomainRegisterStringA(0, "registered");
  nvtxDomainRangePushEx(0, &event);
  allocate(3000);
  nvtxDomainRangePop(0);
  nvtxRangePop();
  nvtxRangePop();
  uint64_t range = nvtxRangeStartA("loose");
  nvtxMarkA("mark");
  allocate(4000);
  nvtxRangeEnd(range);
  nvtxRangePushA(0);
  nvtxRangePop();
  return 0;
}

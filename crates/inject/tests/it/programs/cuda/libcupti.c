/* CUPTI without NVIDIA, for tests: callbacks as the documentation of CUPTI describes them, around calls of the stub of the
   driver. VERSION is the version it claims to be; OLD knows fewer functions, NEW tells the name of another tool.
   STUB_CUPTI: taken (another tool has subscribed), broken (an error), hostile (callbacks with values that no driver gives). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*Callback)(void *user, uint32_t domain, uint32_t cbid, const void *data);
struct data {
  int site;
  const char *function;
  const void *params;
  void *result;
  const char *symbol;
  void *context;
  uint32_t context_uid;
  uint64_t *slot;
  uint32_t correlation;
};
static Callback callback;
static void *user;
static char enabled[8][1024];

struct module { uint32_t id; size_t bytes; const char *file; };
static void module_called(void *ctx, unsigned cbid, struct module *module) {
  void *data[3] = {ctx, 0, module};
  if (callback && enabled[3][cbid]) callback(user, 3, cbid, data);
}

/* Loads the file that STUB_MODULE names as two modules, and unloads one of them. */
static void modules(void *ctx) {
  const char *name = getenv("STUB_MODULE");
  FILE *file = name ? fopen(name, "r") : 0;
  if (!file) return;
  static char bytes[1 << 16];
  struct module first = {1, fread(bytes, 1, sizeof bytes, file), bytes}, second = {2, first.bytes, bytes};
  fclose(file);
  module_called(ctx, 6, &first);
  module_called(ctx, 6, &second);
  module_called(ctx, 7, &second);
}

static void told(int site, unsigned cbid, const char *name, const void *params, int *result, void *ctx) {
  uint64_t slot = 0;
  struct data data = {site, name, params, result, 0, ctx, 1, &slot, 1};
  if (callback && enabled[1][cbid]) callback(user, 1, cbid, &data);
  static int are_loaded;
  if (cbid == 243 && !site && !are_loaded++) modules(ctx);
}
static void context_ends(void *ctx) {
  void *data[3] = {ctx, 0, 0};
  if (callback && enabled[3][2]) callback(user, 3, 2, data);
}

static int is(const char *word) {
  const char *text = getenv("STUB_CUPTI");
  return text && !strcmp(text, word);
}

static void hostile(void) {
  uint64_t arguments[6] = {0, UINT64_MAX, UINT64_MAX, UINT64_MAX, 0, 0};
  uint64_t place = 0x1000, *there = &place;
  int good = 0, bad = 999, memory = 2;
  struct data data = {1, "x", 0, &good, 0, 0, 0, 0, 0};
  for (unsigned cbid = 0; cbid < 1100; cbid++) {
    callback(user, 1, cbid, 0);
    data.params = 0;
    callback(user, 1, cbid, &data);
    data.params = arguments;
    memcpy(arguments, &(uint64_t){0}, 8);
    arguments[1] = arguments[2] = arguments[4] = arguments[5] = 0;
    arguments[3] = UINT64_MAX;
    data.result = 0;
    callback(user, 1, cbid, &data);
    data.result = &bad;
    callback(user, 1, cbid, &data);
    data.result = &good;
    data.site = 7;
    callback(user, 1, cbid, &data);
    data.site = 0;
    callback(user, 1, cbid, &data);
    data.site = 1;
    callback(user, 1, cbid, &data);
  }
  /* A size that no memory has, and one more than that. */
  uint64_t huge[3] = {(uint64_t)(uintptr_t)there, UINT64_MAX - 1, 0};
  data.params = huge;
  callback(user, 1, 243, &data);
  data.result = &memory;
  callback(user, 1, 243, &data);
  callback(user, 1, 0xffffffff, &data);
  callback(user, 99, 243, &data);
  uint64_t freed[2] = {0x1000, 0};
  data.params = freed;
  data.site = 0;
  callback(user, 1, 245, &data);
  void *none[3] = {0, 0, 0};
  callback(user, 3, 2, none);
  callback(user, 3, 2, 0);
  struct module empty = {0, 0, 0}, huge_module = {0, SIZE_MAX, (const char *)there};
  void *with[3] = {0, 0, &empty};
  for (unsigned cbid = 0; cbid < 30; cbid++) {
    callback(user, 3, cbid, none);
    callback(user, 3, cbid, 0);
    callback(user, 3, cbid, with);
    with[2] = cbid == 6 ? &huge_module : &empty;
  }
}

int cuptiSubscribe(void **subscriber, Callback new_callback, void *new_user) {
  if (is("taken")) return 39;
  if (is("broken")) return 15;
  callback = new_callback;
  user = new_user;
  *subscriber = (void *)1;
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  void (*set)(void *) = driver ? (void (*)(void *))dlsym(driver, "stub_set_hook") : 0;
  void (*set_context)(void *) = driver ? (void (*)(void *))dlsym(driver, "stub_set_context_hook") : 0;
  if (set) set((void *)told);
  if (set_context) set_context((void *)context_ends);
  return 0;
}
#ifdef NEW
struct params { size_t bytes; const char *name; char *other; size_t other_bytes; };
int cuptiSubscribe_v2(void **subscriber, Callback new_callback, void *new_user, struct params *params) {
  if (is("taken") && params->bytes >= 32) {
    snprintf(params->other, params->other_bytes, "CUPTI for %s", "Nsight Systems");
    return 39;
  }
  return cuptiSubscribe(subscriber, new_callback, new_user);
}
#endif
#ifndef NO_ENABLE
int cuptiEnableCallback(uint32_t enable, void *subscriber, uint32_t domain, uint32_t cbid) {
#ifdef OLD
  if (domain == 1 && cbid > 600) return 1;
#endif
  if (subscriber != (void *)1 || domain > 7 || cbid > 1023) return 1;
  enabled[domain][cbid] = enable;
  if (is("hostile") && domain == 3) hostile();
  return 0;
}
#endif
int cuptiGetVersion(uint32_t *version) {
  *version = VERSION;
  return 0;
}

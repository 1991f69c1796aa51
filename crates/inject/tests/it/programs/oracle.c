// A second preloaded library, behind the one under test: keeps the live blocks in the simplest way there is, and appends
// "PID LIVE_BLOCKS LIVE_BYTES UNKNOWN_FREES" to the file that ORACLE names when the process exits.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#define SLOTS (1u << 22)
static struct { uintptr_t address; size_t bytes; } table[SLOTS];
static volatile int lock;
static long unknown;

static size_t slot_of(uintptr_t address) {
    size_t at = (address * 0x9e3779b97f4a7c15u) >> 42;
    while (table[at].address != 0 && table[at].address != address) at = (at + 1) % SLOTS;
    return at;
}

static void take(void) { while (__sync_lock_test_and_set(&lock, 1)) sched_yield(); }
static void leave(void) { __sync_lock_release(&lock); }

// A child of a thread that forks while another one holds the lock would wait for it forever.
__attribute__((constructor)) static void survive_forks(void) { pthread_atfork(take, leave, leave); }

static void *add(void *block, size_t bytes) {
    if (!block) return block;
    take();
    size_t at = slot_of((uintptr_t)block);
    table[at].address = (uintptr_t)block;
    table[at].bytes = bytes + 1; // 0 marks a freed block
    leave();
    return block;
}

static void drop(void *block) {
    if (!block) return;
    take();
    size_t at = slot_of((uintptr_t)block);
    if (table[at].address && table[at].bytes) table[at].bytes = 0;
    else unknown++;
    leave();
}

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

void *malloc(size_t bytes) { return add(__libc_malloc(bytes), bytes); }
void *calloc(size_t count, size_t bytes) { return add(__libc_calloc(count, bytes), count * bytes); }
void *memalign(size_t alignment, size_t bytes) { return add(__libc_memalign(alignment, bytes), bytes); }
void *aligned_alloc(size_t alignment, size_t bytes) { return add(__libc_memalign(alignment, bytes), bytes); }
void free(void *block) { drop(block); __libc_free(block); }

void *realloc(void *block, size_t bytes) {
    // The tests that count here do not race for the address of a moved block.
    void *new = __libc_realloc(block, bytes);
    if (new || bytes == 0) drop(block);
    return add(new, bytes);
}

int posix_memalign(void **place, size_t alignment, size_t bytes) {
    void *block = memalign(alignment, bytes);
    if (!block) return ENOMEM;
    *place = block;
    return 0;
}

__attribute__((destructor)) static void report(void) {
    const char *path = getenv("ORACLE");
    if (!path) return;
    size_t blocks = 0, bytes = 0;
    for (size_t at = 0; at < SLOTS; at++)
        if (table[at].address && table[at].bytes) blocks++, bytes += table[at].bytes - 1;
    char text[128];
    int length = snprintf(text, sizeof text, "%d %zu %zu %ld\n", (int)getpid(), blocks, bytes, unknown);
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (file < 0 || write(file, text, length) != length) abort();
    close(file);
}

// An allocator that maps its memory while it holds its lock, as jemalloc does: in the program, or in a library.
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#define BYTES (1ul << 24)
static char *memory;
static size_t used;
static volatile int lock;

static void *give(size_t bytes) {
    while (__sync_lock_test_and_set(&lock, 1)) {}
    if (!memory) memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t at = used;
    used += (bytes + 15) & ~15ul;
    __sync_lock_release(&lock);
    return at + bytes > BYTES ? NULL : memory + at;
}
void *malloc(size_t bytes) { return give(bytes); }
#ifdef NEW
// operator new, which does not call malloc: as in tcmalloc.
void *_Znwm(size_t bytes) { return give(bytes); }
#endif
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t bytes) { return malloc(count * bytes); }
void *realloc(void *block, size_t bytes) {
    void *new = malloc(bytes);
    if (block && new) memcpy(new, block, bytes);
    return new;
}
#ifndef LIBRARY
int main(void) {
    for (int at = 0; at < 100; at++) free(malloc(100));
    return 0;
}
#endif

// Brings an allocator of its own.
#include <stddef.h>
#include <string.h>
static _Alignas(16) char memory[1 << 22];
static size_t used;
void *malloc(size_t bytes) {
    size_t at = __sync_fetch_and_add(&used, (bytes + 15) & ~15ul);
    return at + bytes > sizeof memory ? NULL : memory + at;
}
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

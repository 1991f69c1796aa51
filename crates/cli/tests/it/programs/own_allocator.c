// Brings its own malloc, as programs do that are linked with jemalloc or mimalloc.
#include <stddef.h>
#include <string.h>
#include <unistd.h>

static char memory[1 << 20];
static size_t used;

void *malloc(size_t bytes) {
    char *block = memory + used;
    used += (bytes + 15) / 16 * 16;
    return used <= sizeof memory ? block : NULL;
}
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t bytes) {
    void *block = malloc(count * bytes);
    return block ? memset(block, 0, count * bytes) : NULL;
}
void *realloc(void *old, size_t bytes) {
    void *block = malloc(bytes);
    return block && old ? memcpy(block, old, bytes) : block;
}

int main(void) {
    char *volatile block = malloc(100);
    // Long enough to be seen.
    usleep(200000);
    return block == NULL;
}

// malloc and free at once, as fast as they go, ten calls deep: pairs COUNT
#include <stdint.h>
#include <stdlib.h>

__attribute__((noinline)) static void work(long count) {
    uint64_t random = 88172645463325252u;
    for (long i = 0; i < count; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        char *volatile block = malloc(16 + (random & 255));
        *(volatile char *)block = 1;
        free(block);
    }
}

__attribute__((noinline)) static void deeper(int depth, long count) {
    if (depth == 0) work(count);
    else deeper(depth - 1, count);
    __asm__ volatile("");
}

int main(int count, char **words) {
    deeper(10, count > 1 ? atol(words[1]) : 5000000);
    return 0;
}

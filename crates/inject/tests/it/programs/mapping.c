// Maps, unmaps parts, maps over, remaps; prints the mapped bytes that are left.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ul
static char *map(void *at, size_t pages, int flags) {
    char *new = mmap(at, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (new == MAP_FAILED) _exit(1);
    return new;
}

int main(void) {
    char *a = map(NULL, 16, 0);
    munmap(a + 4 * PAGE, 4 * PAGE);           // 4 + 8 are left
    map(a + 2 * PAGE, 4, MAP_FIXED);          // 2 + 4 + 8
    char *b = map(NULL, 8, 0);                // and 8
    b = mremap(b, 8 * PAGE, 64 * PAGE, MREMAP_MAYMOVE); // or 64
    munmap(b + 60 * PAGE, 100);               // a part of a page is a page: 60 + 3
    if (mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) _exit(2);
    char *c = map(NULL, 3, 0);
    munmap(c, 3 * PAGE);
    if (sbrk(5000) == (void *)-1 || sbrk(-1000) == (void *)-1) _exit(3);
    printf("%lu\n", (2 + 4 + 8 + 63) * PAGE + 4000);
    return 0;
}

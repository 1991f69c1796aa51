// Calls every function of the family, keeps some blocks, and prints the bytes that are live.
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void *keep[16];

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    size_t live = 0;
    keep[0] = malloc(1000), live += 1000;
    keep[1] = calloc(10, 100), live += 1000;
    keep[2] = realloc(NULL, 300), live += 300;
    keep[2] = realloc(keep[2], 300000), live += 300000 - 300;
    keep[3] = reallocarray(NULL, 3, 7), live += 21;
    keep[3] = reallocarray(keep[3], 300, 7), live += 2100 - 21;
    keep[4] = memalign(64, 129), live += 129;
    keep[5] = aligned_alloc(4096, 8192), live += 8192;
    if (posix_memalign(&keep[6], 256, 333)) return 1;
    live += 333;
    keep[7] = valloc(10), live += 10;
    keep[8] = pvalloc(11), live += 11;
    // What fails changes nothing. The pointers are volatile so that the calls stay.
    void *volatile failed = malloc(PTRDIFF_MAX);
    if (failed) return 2;
    failed = realloc(keep[0], PTRDIFF_MAX);
    if (failed) return 3;
    failed = calloc(SIZE_MAX / 2, 4);
    if (failed) return 4;
    failed = reallocarray(keep[0], SIZE_MAX / 2, 4);
    if (failed || errno != ENOMEM) return 5;
    if (posix_memalign((void **)&failed, 3, 10) != EINVAL) return 6;
    free(NULL);
    // realloc to nothing frees.
    void *volatile gone = malloc(77);
    gone = realloc(gone, 0);
    // A free keeps the error number.
    errno = 77;
    free(malloc(50));
    if (errno != 77) return 7;
    if (malloc_usable_size(keep[0]) < 1000) return 8;
    printf("%zu\n", live);
    return 0;
}

// Holds 300 blocks of 1000 bytes from one function and 20 of 5000 from another at its peak, and never frees seven.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SMALL 300
#define LARGE 20

static char *small[SMALL], *large[LARGE];

__attribute__((noinline)) static void *wrapped_malloc(size_t bytes) {
    char *block = malloc(bytes);
    memset(block, 1, bytes);
    return block;
}

__attribute__((noinline)) static void hold_small(void) {
    for (int i = 0; i < SMALL; i++) small[i] = wrapped_malloc(1000);
}

__attribute__((noinline)) static void hold_large(void) {
    for (int i = 0; i < LARGE; i++) large[i] = wrapped_malloc(5000);
}

__attribute__((noinline)) static void lose(void) {
    for (int i = 0; i < 7; i++) large[i] = wrapped_malloc(77);
}

int main(int count, char **words) {
    (void)words;
    hold_small();
    hold_large();
    for (int i = 0; i < SMALL; i++) free(small[i]);
    for (int i = 0; i < LARGE; i++) free(large[i]);
    lose();
    // With an argument it stays for a while.
    if (count > 1) usleep(200000);
    return 0;
}

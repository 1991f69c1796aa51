// Allocates blocks of 40001, 40002 ... bytes from different depths, and frees none of them.
#include <stdlib.h>

static void *blocks[8];

static inline __attribute__((always_inline)) void inlined(int number) { blocks[number] = malloc(40000 + number); }

__attribute__((noinline)) static void deep(int depth, int number) {
    if (depth > 0) deep(depth - 1, number);
    else inlined(number);
    __asm__ volatile("");
}

// Called back by the C library, whose frames have no debug information.
static int compare(const void *one, const void *other) {
    if (!blocks[3]) deep(1, 3);
    return *(const int *)one - *(const int *)other;
}

__attribute__((noinline)) static void sorted(void) {
    int numbers[] = {3, 1, 2};
    qsort(numbers, 3, sizeof *numbers, compare);
    __asm__ volatile("");
}

int main(void) {
    deep(0, 1);
    deep(12, 2);
    sorted();
    // From the same place again, with another depth of the stack.
    for (int i = 0; i < 4; i++) deep(i, 4 + i);
    return 0;
}

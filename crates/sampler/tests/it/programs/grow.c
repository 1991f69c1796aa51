// Grows in steps, in functions with names.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEPT __attribute__((noinline, noclone))

KEPT void hold(char *block, size_t bytes)
{
    memset(block, 1, bytes);
    for (int n = 0; n < 60; n++)
        usleep(10000);
    __asm__ volatile("" : : "r"(block) : "memory");
}

KEPT char *assemble(size_t bytes)
{
    char *block = malloc(bytes);
    if (!block)
        exit(3);
    hold(block, bytes);
    return block;
}

KEPT int solve(void)
{
    int sum = 0;
    for (int n = 0; n < 3; n++)
        sum += assemble((size_t)32 << 20)[n];
    return sum;
}

int main(void)
{
    return solve() == 3 ? 0 : 1;
}

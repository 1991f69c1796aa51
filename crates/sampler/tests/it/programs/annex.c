// A library that is loaded later.
#include <unistd.h>

int annex(void);

__attribute__((noinline, noclone)) static int pantry(void)
{
    char byte;
    int got = (int)read(0, &byte, 1);
    __asm__ volatile("" : "+r"(got) : : "memory");
    return got;
}

int annex(void)
{
    int got = pantry();
    __asm__ volatile("" : "+r"(got) : : "memory");
    return got;
}

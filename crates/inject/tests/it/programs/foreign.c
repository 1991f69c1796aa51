// Blocks that the hooks do not see: allocated by other names of the same functions, freed by the usual one.
#include <stdlib.h>
extern void *__libc_malloc(size_t);
int main(void) {
    for (int at = 0; at < 10; at++) free(__libc_malloc(1234));
    void *volatile kept = malloc(4321);
    return kept ? 0 : 1;
}

// Loaded, called and unloaded by loading.c.
#include <stdlib.h>
#if NUMBER == 2
static char padding[100];
void *pad(void) { return padding; }
#endif
void work(void) {
    void *volatile block = malloc(100 + NUMBER);
    free(block);
}

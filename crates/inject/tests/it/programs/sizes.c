// Allocates blocks of three sizes from three functions, frees every second one, and keeps the rest.
#include <stdlib.h>

#define SITE(name, bytes, count)                           \
    __attribute__((noinline)) static void name(void) {     \
        void *volatile before = NULL;                      \
        for (long at = 0; at < (count); at++) {            \
            void *block = malloc(bytes);                   \
            if (at % 2) free(before);                      \
            before = block;                                \
        }                                                  \
    }
SITE(small, 48, 400000)
SITE(middle, 3000, 20000)
SITE(large, 200000, 400)

int main(void) {
    small(), middle(), large();
    return 0;
}

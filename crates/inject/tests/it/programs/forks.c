// Forks five times, each child from the one before; each allocates first at a place where nothing did before.
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEVEL(name, next)                                  \
    __attribute__((noinline)) static void name(void) {     \
        void *volatile block = malloc(100);                \
        pid_t child = fork();                              \
        if (child == 0) next();                            \
        waitpid(child, NULL, 0);                           \
        free(block);                                       \
        _exit(0);                                          \
    }
static void last(void) {
    void *volatile block = malloc(101);
    free(block);
    _exit(0);
}
LEVEL(fifth, last)
LEVEL(fourth, fifth)
LEVEL(third, fourth)
LEVEL(second, third)
LEVEL(first, second)

int main(void) {
    first();
    return 0;
}

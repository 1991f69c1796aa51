// A signal handler on a stack of its own allocates while the program computes, and while threads record.
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>

static volatile long handled;
static char stack[1 << 16];
static void handler(int signal) {
    (void)signal;
    handled++;
    // Maps: unlike malloc it may be called in a handler, whatever was interrupted.
    munmap(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
}

int main(void) {
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&alternate, NULL);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART | SA_ONSTACK};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, 200}, {0, 200}};
    setitimer(ITIMER_REAL, &timer, NULL);
    while (handled < 300) {
        void *volatile block = malloc(100);
        free(block);
    }
    return 0;
}

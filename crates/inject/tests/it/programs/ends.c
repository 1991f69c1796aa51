// Allocates, frees half, and ends as it is told.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **arguments) {
    (void)count;
    static void *volatile blocks[1000];
    for (int at = 0; at < 1000; at++) blocks[at] = malloc(2048);
    for (int at = 0; at < 1000; at += 2) free(blocks[at]);
    const char *how = arguments[1];
    if (!strcmp(how, "_exit")) _exit(0);
    if (!strcmp(how, "quick_exit")) quick_exit(0);
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(how, "exec")) execl("/bin/true", "true", NULL);
    if (!strcmp(how, "fault")) *(volatile int *)8 = 1;
    return 0;
}

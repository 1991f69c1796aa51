// Every way to make a process, each of which allocates and frees a number of bytes of its own.
#define _GNU_SOURCE
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static volatile int stop;
static void use(size_t bytes) {
    void *volatile block = malloc(bytes);
    free(block);
}
static void *busy(void *unused) {
    (void)unused;
    while (!stop) use(64), use(100000);
    return NULL;
}

int main(int count, char **arguments) {
    if (count > 1) return use(atoi(arguments[1])), 0;
    pthread_t threads[3];
    for (int at = 0; at < 3; at++) pthread_create(&threads[at], NULL, busy, NULL);
    void *kept = malloc(777001);
    // Threads allocate while this one forks.
    for (int at = 0; at < 20; at++)
        if (!fork()) use(777100 + at), free(kept), _exit(0);
    while (wait(NULL) > 0) {}
    if (!vfork()) execl(arguments[0], arguments[0], "777003", NULL), _exit(1);
    wait(NULL);
    if (!fork()) execl(arguments[0], arguments[0], "777004", NULL), _exit(1);
    wait(NULL);
    pid_t pid;
    char *spawned[] = {arguments[0], "777005", NULL};
    if (posix_spawn(&pid, arguments[0], NULL, NULL, spawned, environ)) return 1;
    waitpid(pid, NULL, 0);
    // A daemon: two forks, a session of its own.
    if (!fork()) {
        if (!fork()) setsid(), use(777006), _exit(0);
        _exit(0);
    }
    wait(NULL);
    stop = 1;
    for (int at = 0; at < 3; at++) pthread_join(threads[at], NULL);
    free(kept);
    return 0;
}

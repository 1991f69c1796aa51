// Threads in nested functions with names that say which thread it is.
//
// towers THREADS [LIBRARY]: the first thread is in `gate`, thread n in a tower of functions down to
// `cellar_0` .. `cellar_3` for n modulo 4. They sleep, wait for a lock, read from a pipe, or work. With a
// library, the first thread loads it when a line comes in, and is then in its function `annex`.
// Writes one line when all are where they belong: thread numbers, in order. Ends with its input.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { most = 256 };
static volatile int over;
static int pipes[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile pid_t numbers[most];

#define KEPT __attribute__((noinline, noclone))
// After the call there is something to do, so that it is a call and no jump.
#define AFTER(value) __asm__ volatile("" : "+r"(value) : : "memory")

KEPT long cellar_0(long n)
{
    numbers[n] = (pid_t)syscall(SYS_gettid);
    while (!over)
        usleep(100000);
    return n + 1;
}

KEPT long cellar_1(long n)
{
    numbers[n] = (pid_t)syscall(SYS_gettid);
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    return n + 2;
}

KEPT long cellar_2(long n)
{
    char byte;
    numbers[n] = (pid_t)syscall(SYS_gettid);
    ssize_t got = read(pipes[0], &byte, 1);
    return n + got;
}

KEPT long cellar_3(long n)
{
    volatile long sum = 0;
    numbers[n] = (pid_t)syscall(SYS_gettid);
    while (!over) {
        sum += n;
        // One that works is enough.
        if (n > 3)
            usleep(1000);
    }
    return sum;
}

KEPT long stairs(long n, long depth)
{
    char room[64];
    memset(room, (int)n, sizeof room);
    __asm__ volatile("" : : "r"(room) : "memory");
    long result;
    if (depth > 0)
        result = stairs(n, depth - 1);
    else if (n % 4 == 0)
        result = cellar_0(n);
    else if (n % 4 == 1)
        result = cellar_1(n);
    else if (n % 4 == 2)
        result = cellar_2(n);
    else
        result = cellar_3(n);
    AFTER(result);
    return result + room[depth & 63];
}

KEPT long hall(long n)
{
    long result = stairs(n, n % 8);
    AFTER(result);
    return result;
}

KEPT void *tower(void *argument)
{
    long result = hall((long)argument);
    AFTER(result);
    return (void *)result;
}

static void tell(long threads)
{
    for (long n = 1; n < threads; n++)
        while (!numbers[n])
            usleep(1000);
    // From the number being set to the place itself it is a few instructions.
    usleep(20000);
    printf("%d", getpid());
    for (long n = 1; n < threads; n++)
        printf(" %d", numbers[n]);
    printf("\n");
    fflush(stdout);
}

KEPT int gate(void)
{
    char line[64];
    int got = (int)read(0, line, sizeof line);
    AFTER(got);
    return got;
}

int main(int count, char **words)
{
    long threads = count > 1 ? atol(words[1]) : 8;
    if (threads > most || pipe(pipes))
        return 2;
    pthread_mutex_lock(&lock);
    pthread_t handles[most];
    for (long n = 1; n < threads; n++)
        if (pthread_create(&handles[n], 0, tower, (void *)n))
            return 2;
    tell(threads);
    int left = gate();
    AFTER(left);
#ifndef NO_LIBRARY
    if (left > 0 && count > 2) {
        void *library = dlopen(words[2], RTLD_NOW);
        int (*annex)(void) = library ? (int (*)(void))dlsym(library, "annex") : 0;
        if (!annex)
            return 3;
        printf("loaded\n");
        fflush(stdout);
        left = annex();
        AFTER(left);
    }
#endif
    over = 1;
    pthread_mutex_unlock(&lock);
    close(pipes[1]);
    for (long n = 1; n < threads; n++)
        pthread_join(handles[n], 0);
    return 0;
}

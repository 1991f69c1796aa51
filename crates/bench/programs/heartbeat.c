// Threads asleep in nested calls, and one that looks at the clock all the time: heartbeat THREADS FILE.
// When its input ends, writes every gap between two looks of more than 10 us: begin and length in ns.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { most = 2000000 };
static long begins[most], lengths[most];
static long gaps;
static volatile int over;

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

__attribute__((noinline)) static int deep(int n)
{
    char room[256];
    memset(room, n, sizeof room);
    if (n == 0) {
        while (!over)
            usleep(200000);
        return room[3];
    }
    int result = deep(n - 1);
    return result + room[n & 255];
}

static void *sleeper(void *argument)
{
    deep(20 + (int)(long)argument % 16);
    return 0;
}

static void *heartbeat(void *argument)
{
    long before = now();
    while (!over) {
        long at = now();
        if (at - before > 10000 && gaps < most) {
            begins[gaps] = before;
            lengths[gaps++] = at - before;
        }
        before = at;
    }
    return argument;
}

int main(int count, char **words)
{
    long threads = count > 1 ? atol(words[1]) : 8;
    pthread_t handle, beat;
    for (long n = 2; n < threads; n++)
        if (pthread_create(&handle, 0, sleeper, (void *)n))
            return 2;
    if (pthread_create(&beat, 0, heartbeat, 0))
        return 2;
    usleep(100000);
    printf("ready\n");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    over = 1;
    pthread_join(beat, 0);
    FILE *file = fopen(words[2], "w");
    for (long n = 0; file && n < gaps; n++)
        fprintf(file, "%ld %ld\n", begins[n], lengths[n]);
    return file ? fclose(file) : 3;
}

// Programs whose memory is known, for tests of peaks and totals.
//
// truth forks COUNT MIB            forks COUNT times in a row; the one in the middle takes MIB and ends at once
// truth child MIB                  a child takes MIB for 30 ms, gives it back, and ends 200 ms later
// truth share COUNT SHARED OWN MS  COUNT processes share SHARED MiB, take OWN MiB each, and rest
// truth copies COUNT MIB MS        COUNT forked copies of a process of MIB rest, write to all of it, and rest
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile char *take(size_t bytes, int how) {
    char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, how | MAP_ANONYMOUS, -1, 0);
    for (size_t at = 0; at < bytes; at += 4096) ((volatile char *)memory)[at] = 1;
    return memory;
}

static int forks(int count, size_t bytes) {
    for (int number = 0; number < count; number++) {
        if (fork() == 0) {
            if (number == count / 2) take(bytes, MAP_PRIVATE);
            _exit(0);
        }
        wait(0);
    }
    return 0;
}

static int child(size_t bytes) {
    if (fork() == 0) {
        volatile char *memory = take(bytes, MAP_PRIVATE);
        usleep(30 * 1000);
        munmap((void *)memory, bytes);
        usleep(200 * 1000);
        _exit(0);
    }
    wait(0);
    return 0;
}

// Waits until all have come here.
static void wait_for(volatile int *ready, int count) {
    __sync_fetch_and_add(ready, 1);
    while (*ready < count) usleep(100);
}

static int share(int count, size_t shared, size_t own, int milliseconds) {
    volatile char *memory = take(shared, MAP_SHARED);
    volatile int *ready = (volatile int *)memory;
    *ready = 0;
    for (int number = 1; number < count; number++) {
        if (fork() == 0) {
            char sum = 0;
            for (size_t at = 0; at < shared; at += 4096) sum += memory[at];
            take(own, MAP_PRIVATE);
            wait_for(ready, count);
            usleep(milliseconds * 1000);
            _exit(sum == 77);
        }
    }
    take(own, MAP_PRIVATE);
    wait_for(ready, count);
    usleep(milliseconds * 1000);
    while (wait(0) > 0) {}
    return 0;
}

static int copies(int count, size_t bytes, int milliseconds) {
    volatile char *memory = take(bytes, MAP_PRIVATE);
    volatile int *ready = (volatile int *)take(4096, MAP_SHARED);
    *ready = 0;
    for (int number = 0; number < count; number++) {
        if (fork() == 0) {
            usleep(milliseconds * 1000);
            for (size_t at = 0; at < bytes; at += 4096) memory[at] = 2;
            wait_for(ready, count);
            usleep(milliseconds * 1000);
            _exit(0);
        }
    }
    while (wait(0) > 0) {}
    return 0;
}

int main(int count, char **words) {
    size_t mib = 1 << 20;
    if (count == 4 && strcmp(words[1], "forks") == 0) return forks(atoi(words[2]), atoi(words[3]) * mib);
    if (count == 3 && strcmp(words[1], "child") == 0) return child(atoi(words[2]) * mib);
    if (count == 6 && strcmp(words[1], "share") == 0)
        return share(atoi(words[2]), atoi(words[3]) * mib, atoi(words[4]) * mib, atoi(words[5]));
    if (count == 5 && strcmp(words[1], "copies") == 0)
        return copies(atoi(words[2]), atoi(words[3]) * mib, atoi(words[4]));
    return 2;
}

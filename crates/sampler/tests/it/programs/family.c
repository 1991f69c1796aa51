// Processes of all sorts.
//
// family quick COUNT PROGRAM   starts PROGRAM so many times, a few at a time, and waits for each
// family daemon CODE           forks twice and begins a session; the grandchild ends with CODE
// family share PROCESSES       share 128 MiB, have 10 MiB each, until a byte comes from standard input
// family named NAME            calls itself NAME and rests until a byte comes from standard input
// family sleepers COUNT SECONDS
// family thread                lets its first thread end; another takes 64 MiB, rests, and ends with 5
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int quick(int count, char *program) {
    for (int done = 0; done < count;) {
        for (int at_once = 0; at_once < 4 && done < count; at_once++, done++) {
            if (fork() == 0) {
                execl(program, program, (char *)0);
                _exit(127);
            }
        }
        while (wait(0) > 0) {}
    }
    return 0;
}

static int become_daemon(int code) {
    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            usleep(200 * 1000);
            _exit(code);
        }
        _exit(0);
    }
    wait(0);
    return 0;
}

static void *take(size_t bytes) {
    char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 1, bytes);
    return memory;
}

static int share(int processes) {
    size_t bytes = 128 << 20;
    char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(memory, 1, bytes);
    int gate[2];
    if (pipe(gate) != 0) return 1;
    for (int number = 0; number < processes; number++) {
        if (fork() == 0) {
            // Until the parent has given it back, so that five never have it at once.
            char gone;
            close(gate[1]);
            if (read(gate[0], &gone, 1) != 0) _exit(1);
            volatile char sum = 0;
            for (size_t at = 0; at < bytes; at += 4096) sum += memory[at];
            take(10 << 20);
            char byte;
            _exit(read(0, &byte, 1) < 0);
        }
    }
    // The parent keeps none of it.
    munmap(memory, bytes);
    close(gate[1]);
    while (wait(0) > 0) {}
    return 0;
}

static int rest_as(char *name) {
    prctl(PR_SET_NAME, name);
    char byte;
    return read(0, &byte, 1) < 0;
}

static int sleepers(int count, int seconds) {
    for (int number = 0; number < count; number++) {
        if (fork() == 0) {
            sleep(seconds);
            _exit(0);
        }
    }
    while (wait(0) > 0) {}
    return 0;
}

static void *last_thread(void *nothing) {
    usleep(50 * 1000);
    take(64 << 20);
    usleep(300 * 1000);
    exit(5);
    return nothing;
}

int main(int count, char **words) {
    if (count > 1 && !strcmp(words[1], "thread")) {
        pthread_t thread;
        pthread_create(&thread, 0, last_thread, 0);
        pthread_exit(0);
    }
    if (count < 3) return 2;
    int number = atoi(words[2]);
    if (!strcmp(words[1], "quick")) return quick(number, words[3]);
    if (!strcmp(words[1], "daemon")) return become_daemon(number);
    if (!strcmp(words[1], "share")) return share(number);
    if (!strcmp(words[1], "named")) return rest_as(words[2]);
    if (!strcmp(words[1], "sleepers")) return sleepers(number, atoi(words[3]));
    return 2;
}

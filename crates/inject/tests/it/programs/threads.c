// THREADS threads on the smallest stacks there are, all alive at once; blocks are freed by the next thread.
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static void *passed[1000];
static pthread_barrier_t all;
static int count;

static void *run(void *argument) {
    long number = (long)argument;
    for (int at = 0; at < 20; at++) {
        void *volatile block = malloc(1000 + number);
        free(block);
    }
    passed[number] = malloc(500);
    pthread_barrier_wait(&all);
    free(passed[(number + 1) % count]);
    pthread_barrier_wait(&all);
    return NULL;
}

int main(int arguments, char **argument) {
    count = arguments > 1 ? atoi(argument[1]) : 500;
    pthread_t threads[1000];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN > 16384 ? PTHREAD_STACK_MIN : 16384);
    pthread_barrier_init(&all, NULL, count);
    for (long at = 0; at < count; at++)
        if (pthread_create(&threads[at], &attributes, run, (void *)at)) return 1;
    for (int at = 0; at < count; at++) pthread_join(threads[at], NULL);
    return 0;
}

// One thread takes memory in short bursts and then sleeps, another one works all the time without taking any. They
// begin when the file that is named exists.
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define KEPT __attribute__((noinline, noclone))
#define BYTES ((size_t)8 << 20)

static atomic_int is_over;

KEPT void burst(char *block)
{
    for (size_t at = 0; at < BYTES; at += 4096)
        ((volatile char *)block)[at] = 1;
}

KEPT void doze(void)
{
    usleep(300000);
}

KEPT void step(void)
{
    char *block = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED)
        exit(3);
    burst(block);
    __asm__ volatile("" : : : "memory");
}

KEPT void *work(void *unused)
{
    for (int n = 0; n < 4; n++) {
        step();
        doze();
    }
    return unused;
}

KEPT void *spin(void *unused)
{
    while (!is_over)
        __asm__ volatile("");
    return unused;
}

int main(int count, char **words)
{
    while (count > 1 && access(words[1], F_OK))
        usleep(1000);
    pthread_t worker, spinner;
    if (pthread_create(&spinner, 0, spin, 0) || pthread_create(&worker, 0, work, 0))
        return 2;
    pthread_join(worker, 0);
    is_over = 1;
    pthread_join(spinner, 0);
    return 0;
}

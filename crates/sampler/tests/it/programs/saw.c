// A saw of memory: 50 MiB, and now and then 128 MiB more for a moment. What the kernel has to say of
// it is known exactly, and what a sampler sees of it is luck.
//
// saw PEAKS HOLD_SECONDS GAP_SECONDS TRUTH_FILE [CPU_FILE]: each peak is held so long and comes one to
// two gaps after the one before. The truth has a line with the monotonic begin and end of each hold; the
// other file gets the seconds of processor time that all of it took.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static void rest(double seconds) {
    struct timespec time = {(long)seconds, (seconds - (long)seconds) * 1e9};
    nanosleep(&time, 0);
}

int main(int count, char **words) {
    if (count < 5) return 2;
    int peaks = atoi(words[1]);
    double hold = atof(words[2]), gap = atof(words[3]);
    size_t base = 50 << 20, more = 128 << 20;
    // The pages of the peaks exist once and for all, so that a peak rises within a millisecond or two.
    int file = memfd_create("saw", 0);
    if (file < 0 || ftruncate(file, more)) return 3;
    for (size_t at = 0; at < more; at += 1 << 20) {
        char page[1 << 12] = {1};
        for (size_t next = 0; next < 1 << 20; next += sizeof page)
            if (pwrite(file, page, sizeof page, at + next) < 0) return 3;
    }
    char *block = mmap(0, base, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(block, 1, base);
    FILE *truth = fopen(words[4], "w");
    if (!truth) return 3;
    srand(7);
    for (int peak = 0; peak < peaks; peak++) {
        rest(gap * (1 + rand() / (double)RAND_MAX));
        char *tooth = mmap(0, more, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0);
        double begin = now();
        while (now() < begin + hold) {}
        double end = now();
        munmap(tooth, more);
        fprintf(truth, "%.6f %.6f\n", begin, end);
    }
    fclose(truth);
    rest(gap);
    if (count > 5) {
        struct timespec time;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
        FILE *file = fopen(words[5], "w");
        if (!file) return 3;
        fprintf(file, "%.6f\n", time.tv_sec + time.tv_nsec * 1e-9);
        fclose(file);
    }
    return block[0] - 1;
}

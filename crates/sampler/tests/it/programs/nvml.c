// A management library of GPUs without GPUs: two devices, on both of which every child of this process
// uses 100 MiB. With BROKEN defined it does not start.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct memory { unsigned long long total, free, used; };
struct process { unsigned pid; unsigned long long used; unsigned gpu, compute; };

static int started, calls;

int nvmlInit_v2(void) {
#ifdef BROKEN
    return 9;
#endif
    started = 1;
    return 0;
}
int nvmlShutdown(void) { return started-- ? 0 : 1; }
int nvmlDeviceGetCount_v2(unsigned *count) { return *count = 2, started ? 0 : 1; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(0x1000l + index);
    return index < 2 ? 0 : 2;
}
static int say(const char *what, void *device, char *text, unsigned room) {
    return snprintf(text, room, "%s %ld", what, (long)device & 1) < (int)room ? 0 : 7;
}
int nvmlDeviceGetName(void *device, char *text, unsigned room) { return say("Imaginary", device, text, room); }
int nvmlDeviceGetUUID(void *device, char *text, unsigned room) { return say("GPU-0000", device, text, room); }
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    unsigned long long total = 80ull << 30, used = ((unsigned long long)++calls << 20) + ((long)device & 1);
    *memory = (struct memory){total, total - used, used};
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *list) {
    char path[64];
    (void)device;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *file = fopen(path, "r");
    unsigned room = *count, pid;
    *count = 0;
    while (file && fscanf(file, "%u", &pid) == 1) {
        if (*count < room) list[*count] = (struct process){pid, 100ull << 20, ~0u, ~0u};
        ++*count;
    }
    if (*count < room) list[*count] = (struct process){1, ~0ull, ~0u, ~0u};
    ++*count;
    if (file) fclose(file);
    return *count <= room ? 0 : 7;
}

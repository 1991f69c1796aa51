/* Stands for libc10.so of PyTorch: what its allocator reports to. Counts the calls and keeps the last arguments. */
#include <stddef.h>

long c10_calls, c10_sum, c10_failures;

void report_usage(void *block, long bytes, size_t allocated, size_t reserved, unsigned short device)
  __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
void report_usage(void *block, long bytes, size_t allocated, size_t reserved, unsigned short device) {
  (void)block;
  c10_calls++;
  /* All arguments arrive as they were given. */
  c10_sum += bytes + (long)allocated + (long)reserved + device;
}

void report_failure(long bytes, size_t allocated, size_t reserved, unsigned short device)
  __asm__("_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE");
void report_failure(long bytes, size_t allocated, size_t reserved, unsigned short device) {
  c10_failures++;
  c10_sum += bytes + (long)allocated + (long)reserved + device;
}

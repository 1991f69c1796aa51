/* Prints the constants and layouts of the header, one per line. */
#include <floodmark.h>

#include <inttypes.h>
#include <stdio.h>

#define NUMBER(name) printf(#name " %" PRId64 "\n", (int64_t)(name))
#define SIZE(type) printf("sizeof " #type " %zu\n", sizeof(struct floodmark_##type))
#define OFFSET(type, field) printf(#type "." #field " %zu\n", offsetof(struct floodmark_##type, field))

int main(void)
{
    printf("version %d.%d.%d\n", FLOODMARK_VERSION_MAJOR, FLOODMARK_VERSION_MINOR, FLOODMARK_VERSION_PATCH);
    printf("library %s\n", floodmark_version());
    NUMBER(FLOODMARK_ABI_VERSION);
    NUMBER(floodmark_abi_version());
    NUMBER(FLOODMARK_GLOBAL);
    NUMBER(FLOODMARK_NO_RECORDER);
    NUMBER(FLOODMARK_NO_DEVICE);
    NUMBER(FLOODMARK_NO_STACK);
    NUMBER(FLOODMARK_UNKNOWN_BYTES);
    NUMBER(FLOODMARK_OK);
    NUMBER(FLOODMARK_ERROR_ARGUMENT);
    NUMBER(FLOODMARK_ERROR_ALREADY_RECORDING);
    NUMBER(FLOODMARK_ERROR_TOO_MANY_RECORDERS);
    NUMBER(FLOODMARK_ERROR_IO);
    NUMBER(FLOODMARK_ERROR_STOPPED);
    NUMBER(FLOODMARK_ERROR_INTERNAL);
    SIZE(options);
    OFFSET(options, size);
    OFFSET(options, shared_memory_bytes);
    OFFSET(options, ring_directory);
    SIZE(domain);
    OFFSET(domain, device);
    OFFSET(domain, kind);
    OFFSET(domain, stream);
    OFFSET(domain, resource);
    SIZE(stamp);
    OFFSET(stamp, time_ns);
    OFFSET(stamp, thread);
    SIZE(frame);
    OFFSET(frame, function);
    OFFSET(frame, file);
    OFFSET(frame, module);
    OFFSET(frame, line);
    OFFSET(frame, address);
    SIZE(call);
    OFFSET(call, action);
    OFFSET(call, code);
    OFFSET(call, line);
    OFFSET(call, rss_bytes);
    return 0;
}

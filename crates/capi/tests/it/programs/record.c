/* Records everything that the C interface can record; the test that runs it checks the traces.
 * Arguments: the directory for the traces, and a path below a file, where none can be made. */
#define _POSIX_C_SOURCE 200809L
#include <floodmark.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, floodmark_last_error()); \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

#define THREADS 4
#define ROUNDS 20000

static char path[4096];
static floodmark_recorder shared;

static const char *in(const char *directory, const char *name)
{
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

/* Calls everything with a recorder that records nothing. */
static void use_in_vain(floodmark_recorder recorder)
{
    struct floodmark_domain domain = FLOODMARK_DOMAIN_INIT;
    struct floodmark_stamp stamp = {1, 2};
    struct floodmark_frame frame = {1, 2, 3, 4, 5};
    struct floodmark_call call = {FLOODMARK_ACTION_CALL, 1, 2, 0, 4096};

    CHECK(!floodmark_is_recording(recorder));
    CHECK(floodmark_recording(recorder) == 0);
    floodmark_alloc(recorder, 0xbad, 1, &domain, FLOODMARK_NO_STACK);
    floodmark_free(recorder, 0xbad, 1, &domain);
    floodmark_failure(recorder, 1, &domain, FLOODMARK_NO_STACK);
    floodmark_alloc_at(recorder, 0xbad, 1, &domain, FLOODMARK_NO_STACK, &stamp);
    floodmark_free_at(recorder, 0xbad, 1, &domain, &stamp);
    floodmark_failure_at(recorder, 1, &domain, FLOODMARK_NO_STACK, &stamp);
    CHECK(floodmark_intern(recorder, "in vain") == 0);
    CHECK(floodmark_intern_frame(recorder, &frame) == 0);
    CHECK(floodmark_intern_stack(recorder, 0, 1) == 0);
    floodmark_define_device(recorder, 0, "GPU-in-vain");
    CHECK(floodmark_enter_scope(recorder, 1) == 0);
    floodmark_exit_scope(recorder, 0);
    CHECK(floodmark_begin_range(recorder, 1) == 0);
    floodmark_end_range(recorder, 0);
    floodmark_mark(recorder, 1);
    floodmark_record_call(recorder, &call, NULL);
}

static void start_wrongly(const char *directory, const char *below_a_file)
{
    struct floodmark_options options = FLOODMARK_OPTIONS_INIT;
    struct {
        struct floodmark_options known;
        uint64_t unknown;
    } newer = {FLOODMARK_OPTIONS_INIT, 0};
    floodmark_recorder recorder = 5;

    CHECK(strcmp(floodmark_last_error(), "") == 0);
    CHECK(floodmark_start(NULL, NULL, &recorder) == FLOODMARK_ERROR_ARGUMENT);
    CHECK(recorder == FLOODMARK_NO_RECORDER);
    CHECK(strstr(floodmark_last_error(), "path of the trace") != NULL);
    CHECK(floodmark_start("", NULL, &recorder) == FLOODMARK_ERROR_ARGUMENT);
    CHECK(floodmark_start(in(directory, "never.flood"), NULL, NULL) == FLOODMARK_ERROR_ARGUMENT);
    CHECK(floodmark_start_global(NULL, NULL) == FLOODMARK_ERROR_ARGUMENT);
    CHECK(floodmark_start(below_a_file, NULL, &recorder) == FLOODMARK_ERROR_IO);
    CHECK(strstr(floodmark_last_error(), below_a_file) != NULL);
    CHECK(floodmark_start_global(below_a_file, NULL) == FLOODMARK_ERROR_IO);
    options.size = 0;
    CHECK(floodmark_start(in(directory, "never.flood"), &options, &recorder) == FLOODMARK_ERROR_ARGUMENT);
    options.size = sizeof options - 1;
    CHECK(floodmark_start(in(directory, "never.flood"), &options, &recorder) == FLOODMARK_ERROR_ARGUMENT);
    options.size = sizeof options;
    options.shared_memory_bytes = UINT64_MAX;
    CHECK(floodmark_start(in(directory, "never.flood"), &options, &recorder) == FLOODMARK_ERROR_ARGUMENT);
    options.shared_memory_bytes = 0;
    options.ring_directory = "";
    CHECK(floodmark_start(in(directory, "never.flood"), &options, &recorder) == FLOODMARK_ERROR_ARGUMENT);
    newer.known.size = sizeof newer;
    newer.unknown = 1;
    CHECK(floodmark_start(in(directory, "never.flood"), &newer.known, &recorder) == FLOODMARK_ERROR_ARGUMENT);
    CHECK(strstr(floodmark_last_error(), "does not know") != NULL);

    CHECK(floodmark_stop(FLOODMARK_GLOBAL) == FLOODMARK_ERROR_STOPPED);
    CHECK(floodmark_stop(1) == FLOODMARK_ERROR_STOPPED);
    CHECK(floodmark_stop(12345678) == FLOODMARK_ERROR_STOPPED);
    CHECK(floodmark_stop(FLOODMARK_NO_RECORDER) == FLOODMARK_ERROR_STOPPED);
    CHECK(floodmark_stop_global() == FLOODMARK_ERROR_STOPPED);
    use_in_vain(FLOODMARK_GLOBAL);
    use_in_vain(1);
    use_in_vain(12345678);
    use_in_vain(FLOODMARK_NO_RECORDER);
}

/* Records one of everything; the test has the same list. */
static void record_values(const char *directory)
{
    floodmark_recorder recorder;
    struct floodmark_options options = FLOODMARK_OPTIONS_INIT;
    struct floodmark_domain domain = FLOODMARK_DOMAIN_INIT;
    struct floodmark_frame frame = {0, 0, 0, 7, 0x1234};
    struct floodmark_stamp late = {5000, 77};
    struct floodmark_stamp earlier = {3000, 0};
    struct floodmark_call call = {FLOODMARK_ACTION_C_CALL, 0, 12, 0, 8192};
    uint32_t outermost, innermost, outer_name, inner_name;
    uint64_t outer, inner, first, second;

    options.shared_memory_bytes = 1 << 20;
    options.ring_directory = directory;
    CHECK(floodmark_start(in(directory, "values.flood"), &options, &recorder) == FLOODMARK_OK);
    CHECK(floodmark_is_recording(recorder) == 1 && floodmark_recording(recorder) != 0);
    CHECK(!floodmark_is_recording(FLOODMARK_GLOBAL));

    domain.device = 1;
    domain.kind = FLOODMARK_KIND_DEVICE;
    domain.stream = UINT64_MAX;
    domain.resource = floodmark_intern(recorder, "pool");
    CHECK(domain.resource != 0 && floodmark_intern(recorder, "pool") == domain.resource);
    CHECK(floodmark_intern(recorder, NULL) == 0 && floodmark_intern(recorder, "") == 0);
    CHECK(floodmark_intern(recorder, "not \xff UTF-8") != 0);
    frame.function = floodmark_intern(recorder, "main");
    frame.file = floodmark_intern(recorder, "main.c");
    frame.module = floodmark_intern(recorder, "record");
    outermost = floodmark_intern_stack(recorder, FLOODMARK_NO_STACK, floodmark_intern_frame(recorder, &frame));
    frame.function = floodmark_intern(recorder, "load");
    call.code = floodmark_intern_frame(recorder, &frame);
    innermost = floodmark_intern_stack(recorder, outermost, call.code);
    CHECK(floodmark_intern_frame(recorder, NULL) == 0);
    CHECK(outermost != 0 && innermost != 0 && innermost != outermost);
    outer_name = floodmark_intern(recorder, "outer");
    inner_name = floodmark_intern(recorder, "inner");
    floodmark_define_device(recorder, 1, "GPU-123");
    floodmark_define_device(recorder, 2, NULL);

    outer = floodmark_enter_scope(recorder, outer_name);
    floodmark_alloc(recorder, 0x1000, 100, &domain, innermost);
    inner = floodmark_enter_scope(recorder, inner_name);
    floodmark_failure(recorder, (uint64_t)1 << 40, &domain, outermost);
    floodmark_exit_scope(recorder, inner);
    floodmark_free(recorder, 0x1000, FLOODMARK_UNKNOWN_BYTES, &domain);
    floodmark_exit_scope(recorder, outer);
    first = floodmark_begin_range(recorder, outer_name);
    second = floodmark_begin_range_at(recorder, inner_name, &late);
    floodmark_end_range(recorder, first);
    floodmark_end_range_at(recorder, second, &earlier);
    floodmark_mark(recorder, inner_name);
    /* Out of order, and for another thread. */
    floodmark_mark_at(recorder, outer_name, 4000);
    floodmark_alloc_at(recorder, 0x2000, 200, &domain, innermost, &late);
    floodmark_free_at(recorder, 0x2000, 200, &domain, &earlier);
    floodmark_failure_at(recorder, 300, &domain, FLOODMARK_NO_STACK, &earlier);
    outer = floodmark_enter_scope_at(recorder, inner_name, 2000);
    floodmark_exit_scope_at(recorder, outer, 2500);
    floodmark_record_call(recorder, &call, NULL);
    call.action = FLOODMARK_ACTION_C_RETURN;
    call.rss_bytes = FLOODMARK_UNKNOWN_BYTES;
    floodmark_record_call(recorder, &call, &late);
    /* Arguments that say nothing. */
    call.action = 99;
    floodmark_record_call(recorder, &call, NULL);
    floodmark_record_call(recorder, NULL, NULL);
    floodmark_alloc(recorder, 0x3000, 1, NULL, FLOODMARK_NO_STACK);
    domain.kind = 99;
    floodmark_alloc_at(recorder, 0x4000, 1, &domain, FLOODMARK_NO_STACK, NULL);
    floodmark_exit_scope(recorder, 0);
    floodmark_exit_scope(recorder, 7);
    floodmark_end_range(recorder, 0);
    floodmark_end_range(recorder, UINT64_MAX);

    CHECK(floodmark_stop(recorder) == FLOODMARK_OK);
    CHECK(floodmark_stop(recorder) == FLOODMARK_ERROR_STOPPED);
    use_in_vain(recorder);
}

static void *record_from_thread(void *argument)
{
    uint64_t thread = (uint64_t)(uintptr_t)argument, round;
    struct floodmark_domain domain = FLOODMARK_DOMAIN_INIT;
    uint64_t scope;

    domain.stream = thread;
    scope = floodmark_enter_scope(shared, floodmark_intern(shared, "worker"));
    for (round = 0; round < ROUNDS; round++) {
        floodmark_alloc(shared, thread << 32 | round, round, &domain, FLOODMARK_NO_STACK);
        floodmark_alloc(FLOODMARK_GLOBAL, thread << 32 | round, 1, &domain, FLOODMARK_NO_STACK);
        floodmark_free(shared, thread << 32 | round, round, &domain);
    }
    floodmark_exit_scope(shared, scope);
    return NULL;
}

/* Records from several threads into two traces, one of them the global one. */
static void record_from_threads(const char *directory)
{
    pthread_t threads[THREADS];
    uintptr_t number;

    CHECK(floodmark_start(in(directory, "threads.flood"), NULL, &shared) == FLOODMARK_OK);
    CHECK(floodmark_start_global(in(directory, "global.flood"), NULL) == FLOODMARK_OK);
    CHECK(floodmark_start_global(in(directory, "never.flood"), NULL) == FLOODMARK_ERROR_ALREADY_RECORDING);
    for (number = 0; number < THREADS; number++) {
        CHECK(pthread_create(&threads[number], NULL, record_from_thread, (void *)(number + 1)) == 0);
    }
    for (number = 0; number < THREADS; number++) {
        CHECK(pthread_join(threads[number], NULL) == 0);
    }
    CHECK(floodmark_stop(shared) == FLOODMARK_OK);
    CHECK(floodmark_stop_global() == FLOODMARK_OK);
    CHECK(floodmark_stop_global() == FLOODMARK_ERROR_STOPPED);
}

/* Starts again: an old recorder, and a scope and a range that were open, leave nothing in the new trace. */
static void start_again(const char *directory)
{
    floodmark_recorder old = shared, recorder;
    uint64_t scope, range;
    uint32_t before;

    CHECK(floodmark_start_global(in(directory, "first.flood"), NULL) == FLOODMARK_OK);
    before = floodmark_recording(FLOODMARK_GLOBAL);
    scope = floodmark_enter_scope(FLOODMARK_GLOBAL, floodmark_intern(FLOODMARK_GLOBAL, "open"));
    range = floodmark_begin_range(FLOODMARK_GLOBAL, 0);
    CHECK(floodmark_stop_global() == FLOODMARK_OK);
    use_in_vain(FLOODMARK_GLOBAL);
    CHECK(floodmark_start_global(in(directory, "second.flood"), NULL) == FLOODMARK_OK);
    CHECK(floodmark_recording(FLOODMARK_GLOBAL) != before);
    floodmark_exit_scope(FLOODMARK_GLOBAL, scope);
    floodmark_end_range(FLOODMARK_GLOBAL, range);
    floodmark_alloc(FLOODMARK_GLOBAL, 0x5000, 5, NULL, FLOODMARK_NO_STACK);

    CHECK(floodmark_start(in(directory, "third.flood"), NULL, &recorder) == FLOODMARK_OK);
    CHECK(recorder != old);
    use_in_vain(old);
    CHECK(floodmark_stop(old) == FLOODMARK_ERROR_STOPPED);
    floodmark_alloc(recorder, 0x6000, 6, NULL, FLOODMARK_NO_STACK);
    /* Both are still running when the program exits. */
}

/* A forked child records into the trace of its parent, and ends nothing of it. */
static void record_from_child(const char *directory)
{
    floodmark_recorder recorder;
    uint64_t scope;
    int status;
    pid_t child;

    CHECK(floodmark_start(in(directory, "fork.flood"), NULL, &recorder) == FLOODMARK_OK);
    scope = floodmark_enter_scope(recorder, floodmark_intern(recorder, "parent"));
    floodmark_alloc(recorder, 0x7000, 7, NULL, FLOODMARK_NO_STACK);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        floodmark_alloc(recorder, 0x8000, 8, NULL, FLOODMARK_NO_STACK);
        floodmark_exit_scope(recorder, scope);
        _exit(floodmark_stop(recorder) == FLOODMARK_OK ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    floodmark_alloc(recorder, 0x9000, 9, NULL, FLOODMARK_NO_STACK);
    floodmark_exit_scope(recorder, scope);
    CHECK(floodmark_stop(recorder) == FLOODMARK_OK);
}

/* Starts recorders until there are too many. */
static void start_too_many(const char *directory)
{
    floodmark_recorder recorders[80];
    char name[32];
    int started = 0, status, number;

    for (;;) {
        snprintf(name, sizeof name, "many/%d.flood", started);
        CHECK(started < 80);
        status = floodmark_start(in(directory, name), NULL, &recorders[started]);
        if (status != FLOODMARK_OK) {
            break;
        }
        started++;
    }
    CHECK(status == FLOODMARK_ERROR_TOO_MANY_RECORDERS);
    CHECK(started == 64);
    for (number = 0; number < started; number++) {
        CHECK(floodmark_stop(recorders[number]) == FLOODMARK_OK);
    }
}

int main(int count, char **arguments)
{
    if (count != 3) {
        return 2;
    }
    CHECK(floodmark_abi_version() == FLOODMARK_ABI_VERSION);
    start_wrongly(arguments[1], arguments[2]);
    record_values(arguments[1]);
    record_from_threads(arguments[1]);
    record_from_child(arguments[1]);
    start_too_many(arguments[1]);
    start_again(arguments[1]);
    return 0;
}

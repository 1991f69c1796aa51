/*
 * floodmark.h - record memory allocations of C and C++ programs with Floodmark
 *
 * A program states what it allocates and frees, and in which phase; the library writes that into a trace,
 * which `floodmark` analyzes, even while the program runs or after it was killed. Recording an event takes
 * some tens of nanoseconds, no lock and no memory allocation, from any number of threads.
 *
 * Example:
 *
 *     #include <floodmark.h>
 *     #include <stdio.h>
 *     #include <stdlib.h>
 *
 *     int main(void)
 *     {
 *         floodmark_recorder recorder;
 *         struct floodmark_domain heap = FLOODMARK_DOMAIN_INIT;
 *         uint64_t load;
 *         void *block;
 *
 *         if (floodmark_start("run.flood", NULL, &recorder) != FLOODMARK_OK) {
 *             fprintf(stderr, "not recorded: %s\n", floodmark_last_error());
 *         }
 *         heap.kind = FLOODMARK_KIND_PAGEABLE;
 *         heap.resource = floodmark_intern(recorder, "my allocator");
 *
 *         load = floodmark_enter_scope(recorder, floodmark_intern(recorder, "load"));
 *         block = malloc(1000000);
 *         floodmark_alloc(recorder, FLOODMARK_ADDRESS(block), 1000000, &heap, FLOODMARK_NO_STACK);
 *         floodmark_exit_scope(recorder, load);
 *
 *         floodmark_free(recorder, FLOODMARK_ADDRESS(block), 1000000, &heap);
 *         free(block);
 *         floodmark_stop(recorder);
 *         return 0;
 *     }
 *
 * Then: `floodmark watermark run.flood`, `floodmark leaks run.flood`, `floodmark report run.flood`.
 *
 * Rules that hold for every function:
 *
 *  - Any thread may call it at any time, also while another thread stops the recorder.
 *  - It never ends the program, never throws and never writes to stdout. (A defect of the library may print
 *    a message on stderr.)
 *  - Pointers may be NULL: strings then count as empty, structs as unknown, and what makes no sense without
 *    them does nothing. Strings are UTF-8; other bytes become replacement characters, and long strings are
 *    cut after about 4,000 bytes. Paths may hold any bytes.
 *  - A recorder that has been stopped, or never existed, is ignored. Nothing needs to be checked before
 *    recording; use floodmark_is_recording() only to save the work of preparing a record.
 *  - After fork(), the child records into the same trace, with the same recorders and ids.
 *
 * Events that could not be stored (no disk space, too many threads) are counted in the trace, and every
 * analysis reports them.
 *
 * Link with -lfloodmark_capi (shared library), or with libfloodmark_capi.a -lpthread -ldl -lm.
 * Linux only. C99 or later, C++11 or later.
 */
#ifndef FLOODMARK_H
#define FLOODMARK_H

#include <stddef.h>
#include <stdint.h>

/* Version of this header. */
#define FLOODMARK_VERSION_MAJOR 0
#define FLOODMARK_VERSION_MINOR 1
#define FLOODMARK_VERSION_PATCH 0

/* Version of the binary interface. A program works with any library whose floodmark_abi_version() is equal. */
#define FLOODMARK_ABI_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Recorders -------------------------------------------------------------------------------------- */

/* A recorder: a number that refers to one recording of this process. Numbers are not used again. */
typedef uint64_t floodmark_recorder;

/* The global recording of the process, for code that was not given a recorder. It may have been started by
 * floodmark_start_global() or not at all; without it, records are ignored. */
#define FLOODMARK_GLOBAL ((floodmark_recorder)0)

/* No recorder: records are ignored. A failed floodmark_start() stores it. */
#define FLOODMARK_NO_RECORDER UINT64_MAX

/* Results of functions that can fail. Errors are negative; later versions may add some. */
enum floodmark_status {
    FLOODMARK_OK = 0,
    FLOODMARK_ERROR_ARGUMENT = -1,           /* an argument is NULL, empty or out of range */
    FLOODMARK_ERROR_ALREADY_RECORDING = -2,  /* the global recording has been started already */
    FLOODMARK_ERROR_TOO_MANY_RECORDERS = -3, /* a process can have 64 recorders at a time */
    FLOODMARK_ERROR_IO = -4,                 /* a file could not be created or opened */
    FLOODMARK_ERROR_STOPPED = -5,            /* this recorder has been stopped, or never existed */
    FLOODMARK_ERROR_INTERNAL = -6            /* the library has a defect */
};

/* Options of a recording. Initialize with FLOODMARK_OPTIONS_INIT; a field that is 0 has its default. */
struct floodmark_options {
    size_t size;                  /* sizeof(struct floodmark_options), so that later versions can add fields */
    uint64_t shared_memory_bytes; /* shared memory to use beyond 64 KiB per thread; 0 means 16 MiB */
    const char *ring_directory;   /* directory of the shared memory file; NULL means /dev/shm */
};
#define FLOODMARK_OPTIONS_INIT {sizeof(struct floodmark_options), 0, NULL}

/* Starts a recording into the trace at `trace`, a directory that is created if needed and should be named
 * `NAME.flood`. `options` may be NULL. Stores the recorder in `*recorder`. Several recorders can be active in
 * one process, also for the same trace. Recordings that still run when the process exits are stopped. */
int floodmark_start(const char *trace, const struct floodmark_options *options, floodmark_recorder *recorder);

/* Stops a recorder that floodmark_start() started. When it returns, all records are in the trace. */
int floodmark_stop(floodmark_recorder recorder);

/* Starts the global recording of the process, which FLOODMARK_GLOBAL refers to. */
int floodmark_start_global(const char *trace, const struct floodmark_options *options);

/* Stops the global recording, if floodmark_start_global() started it. */
int floodmark_stop_global(void);

/* Returns 1 while records of this recorder are kept, else 0. */
int floodmark_is_recording(floodmark_recorder recorder);

/* Returns a number for the recording that is active, 0 while none is. A program that keeps ids (see
 * floodmark_intern) of the global recording interns them again when this number has changed. */
uint32_t floodmark_recording(floodmark_recorder recorder);

/* Returns a description of the last failure on the calling thread, empty if there was none. The text is valid
 * until the next failure on this thread, or the thread's end. */
const char *floodmark_last_error(void);

/* Returns FLOODMARK_ABI_VERSION of the library. */
uint32_t floodmark_abi_version(void);

/* Returns the version of the library, such as "0.1.0". */
const char *floodmark_version(void);

/* ---- Allocations ------------------------------------------------------------------------------------ */

/* Kinds of memory. */
enum floodmark_kind {
    FLOODMARK_KIND_UNKNOWN = 0,
    FLOODMARK_KIND_DEVICE = 1,   /* memory of an accelerator */
    FLOODMARK_KIND_MANAGED = 2,  /* memory that migrates between host and accelerator */
    FLOODMARK_KIND_PINNED = 3,   /* page-locked host memory */
    FLOODMARK_KIND_PAGEABLE = 4, /* ordinary host memory */
    FLOODMARK_KIND_STATIC = 5,   /* a variable that lives as long as its module */
    FLOODMARK_KIND_ARRAY = 6,    /* accelerator memory in a layout of the hardware */
    FLOODMARK_KIND_RESERVED = 7, /* memory that an allocator holds to divide it into blocks */
    FLOODMARK_KIND_MAPPED = 8    /* address space that the program mapped itself; other blocks may lie in it */
};

/* The device of memory that belongs to no accelerator. */
#define FLOODMARK_NO_DEVICE (-1)

/* The size of a free whose caller does not know it. */
#define FLOODMARK_UNKNOWN_BYTES UINT64_MAX

/* The id of a stack that is not recorded. */
#define FLOODMARK_NO_STACK 0u

/* Converts a pointer to the integer that events take (device addresses often are integers already). */
#define FLOODMARK_ADDRESS(pointer) ((uint64_t)(uintptr_t)(pointer))

/* The allocation domain of a block. A free belongs to the alloc with the same address and domain. */
struct floodmark_domain {
    int32_t device;    /* number of the device, or FLOODMARK_NO_DEVICE */
    uint32_t kind;     /* enum floodmark_kind; other values count as unknown */
    uint64_t stream;   /* stream or queue; 0 for the default one or none */
    uint32_t resource; /* string id of the allocator's name; 0 for none */
    uint32_t reserved; /* 0 */
};
#define FLOODMARK_DOMAIN_INIT {FLOODMARK_NO_DEVICE, FLOODMARK_KIND_UNKNOWN, 0, 0, 0}

/* Time and thread of something that is recorded later than it happened, or by another thread. A field that is
 * 0 stands for now or for the calling thread. Times may be given in any order. */
struct floodmark_stamp {
    uint64_t time_ns; /* nanoseconds of CLOCK_MONOTONIC, see floodmark_now_ns() */
    uint64_t thread;  /* thread id, as gettid() returns it */
};

/* Returns the current time of the clock that records use. */
uint64_t floodmark_now_ns(void);

/* Records that a block was allocated. Call it after the allocation succeeded. */
void floodmark_alloc(floodmark_recorder recorder, uint64_t address, uint64_t bytes,
                     const struct floodmark_domain *domain, uint32_t stack);

/* Records that a block is freed. Call it before the memory is given back, so that a block that is allocated
 * at the same address by another thread is recorded after it. `bytes` may be FLOODMARK_UNKNOWN_BYTES. */
void floodmark_free(floodmark_recorder recorder, uint64_t address, uint64_t bytes,
                    const struct floodmark_domain *domain);

/* Records that an allocation of `bytes` failed. */
void floodmark_failure(floodmark_recorder recorder, uint64_t bytes, const struct floodmark_domain *domain,
                       uint32_t stack);

/* The same, with a time and a thread. A NULL stamp stands for now, on the calling thread. */
void floodmark_alloc_at(floodmark_recorder recorder, uint64_t address, uint64_t bytes,
                        const struct floodmark_domain *domain, uint32_t stack,
                        const struct floodmark_stamp *stamp);
void floodmark_free_at(floodmark_recorder recorder, uint64_t address, uint64_t bytes,
                       const struct floodmark_domain *domain, const struct floodmark_stamp *stamp);
void floodmark_failure_at(floodmark_recorder recorder, uint64_t bytes, const struct floodmark_domain *domain,
                          uint32_t stack, const struct floodmark_stamp *stamp);

/* ---- Names and stacks ------------------------------------------------------------------------------- */

/* Ids are valid for one recorder until it stops. 0 stands for none; it is also what these functions return
 * while nothing is recorded. Equal values have equal ids, and asking again is cheap. */

/* Returns the id of a string. */
uint32_t floodmark_intern(floodmark_recorder recorder, const char *text);

/* One frame of a call stack. */
struct floodmark_frame {
    uint32_t function; /* string id of the function's name */
    uint32_t file;     /* string id of the source file; 0 if unknown */
    uint32_t module;   /* string id of the library or executable; 0 if unknown */
    uint32_t line;     /* line in the source file; 0 if unknown */
    uint64_t address;  /* instruction address; 0 if unknown */
};

/* Returns the id of a frame. */
uint32_t floodmark_intern_frame(floodmark_recorder recorder, const struct floodmark_frame *frame);

/* Returns the id of the stack in which `frame` was called from the stack `parent`. Build a stack from the
 * outermost frame (such as main), whose parent is FLOODMARK_NO_STACK, to the innermost. */
uint32_t floodmark_intern_stack(floodmark_recorder recorder, uint32_t parent, uint32_t frame);

/* Records the UUID of device number `device`, which identifies it whatever CUDA_VISIBLE_DEVICES says. */
void floodmark_define_device(floodmark_recorder recorder, int32_t device, const char *uuid);

/* ---- Scopes, ranges, marks -------------------------------------------------------------------------- */

/* Enters a scope on the calling thread; `name` is a string id. Events of this thread belong to the innermost
 * scope. Scopes of a thread nest: pass the result to floodmark_exit_scope() on the same thread, in reverse
 * order. A scope that is open while a recording starts or stops is left without a record. */
uint64_t floodmark_enter_scope(floodmark_recorder recorder, uint32_t name);
void floodmark_exit_scope(floodmark_recorder recorder, uint64_t scope);

/* The same, with a time: nanoseconds of CLOCK_MONOTONIC, or 0 for now. */
uint64_t floodmark_enter_scope_at(floodmark_recorder recorder, uint32_t name, uint64_t time_ns);
void floodmark_exit_scope_at(floodmark_recorder recorder, uint64_t scope, uint64_t time_ns);

/* Begins a range: it may overlap others and may end on any thread; events do not belong to it. Pass the result
 * to floodmark_end_range(). */
uint64_t floodmark_begin_range(floodmark_recorder recorder, uint32_t name);
void floodmark_end_range(floodmark_recorder recorder, uint64_t range);

/* The same, with a time and a thread. */
uint64_t floodmark_begin_range_at(floodmark_recorder recorder, uint32_t name,
                                  const struct floodmark_stamp *stamp);
void floodmark_end_range_at(floodmark_recorder recorder, uint64_t range, const struct floodmark_stamp *stamp);

/* Records a mark: a named instant, such as the end of a phase. `name` is a string id. */
void floodmark_mark(floodmark_recorder recorder, uint32_t name);
void floodmark_mark_at(floodmark_recorder recorder, uint32_t name, uint64_t time_ns);

/* ---- Calls (for tracers of interpreters) ------------------------------------------------------------ */

/* What a call event describes. */
enum floodmark_call_action {
    FLOODMARK_ACTION_CALL = 1,          /* a function of the interpreted language was called */
    FLOODMARK_ACTION_RETURN = 2,        /* it returned */
    FLOODMARK_ACTION_YIELD = 3,         /* a generator or coroutine was suspended */
    FLOODMARK_ACTION_RESUME = 4,        /* it was resumed */
    FLOODMARK_ACTION_EXCEPTION = 5,     /* a function was left by an exception */
    FLOODMARK_ACTION_C_CALL = 6,        /* a native function was called */
    FLOODMARK_ACTION_C_RETURN = 7,      /* it returned */
    FLOODMARK_ACTION_C_EXCEPTION = 8    /* it was left by an exception */
};

/* A call of a function, or the end of one. */
struct floodmark_call {
    uint32_t action;    /* enum floodmark_call_action; other values are ignored */
    uint32_t code;      /* frame id of the function; 0 if unknown */
    uint32_t line;      /* line that is being executed; 0 if unknown */
    uint32_t reserved;  /* 0 */
    uint64_t rss_bytes; /* resident bytes of the process, a multiple of 4096; FLOODMARK_UNKNOWN_BYTES if
                           unknown, or unchanged since the thread's previous call event */
};

/* Records a call event. `stamp` may be NULL. */
void floodmark_record_call(floodmark_recorder recorder, const struct floodmark_call *call,
                           const struct floodmark_stamp *stamp);

#ifdef __cplusplus
} /* extern "C" */

/* ---- C++ -------------------------------------------------------------------------------------------- */

/*
 * Classes that stop recordings and leave scopes when they go out of scope. None of them throws, except
 * that a Recorder that cannot start copies the message of the error (std::bad_alloc).
 *
 *     floodmark::Recorder recorder("run.flood");
 *     if (!recorder) std::cerr << recorder.error() << '\n';
 *     {
 *         floodmark::Scope load("load", recorder);
 *         recorder.alloc(pointer, bytes, domain);
 *     }
 */
#include <string>
#include <utility>

namespace floodmark {

/* The allocation domain of a block, initialized to "unknown". */
struct Domain : floodmark_domain {
    explicit Domain(floodmark_kind kind_ = FLOODMARK_KIND_UNKNOWN, int32_t device_ = FLOODMARK_NO_DEVICE,
                    uint64_t stream_ = 0, uint32_t resource_ = 0) noexcept
    {
        device = device_;
        kind = static_cast<uint32_t>(kind_);
        stream = stream_;
        resource = resource_;
        reserved = 0;
    }
};

/* A recording that stops when the object is destroyed. Converts to floodmark_recorder, so that it can be passed
 * to every function above. */
class Recorder {
public:
    explicit Recorder(const char *trace, const floodmark_options *options = nullptr)
        : recorder_(FLOODMARK_NO_RECORDER), status_(floodmark_start(trace, options, &recorder_)),
          error_(status_ == FLOODMARK_OK ? "" : floodmark_last_error())
    {
    }
    explicit Recorder(const std::string &trace, const floodmark_options *options = nullptr)
        : Recorder(trace.c_str(), options)
    {
    }
    Recorder(Recorder &&other) noexcept
        : recorder_(other.recorder_), status_(other.status_), error_(std::move(other.error_))
    {
        other.release();
    }
    Recorder &operator=(Recorder &&other) noexcept
    {
        if (this != &other) {
            stop();
            recorder_ = other.recorder_;
            status_ = other.status_;
            error_ = std::move(other.error_);
            other.release();
        }
        return *this;
    }
    Recorder(const Recorder &) = delete;
    Recorder &operator=(const Recorder &) = delete;
    ~Recorder() { stop(); }

    /* Stops the recording now; later calls do nothing. */
    void stop() noexcept
    {
        if (recorder_ != FLOODMARK_NO_RECORDER) {
            (void)floodmark_stop(recorder_);
            release();
        }
    }

    /* Whether the recording was started and has not been stopped. */
    bool ok() const noexcept { return recorder_ != FLOODMARK_NO_RECORDER; }
    explicit operator bool() const noexcept { return ok(); }
    /* Why the recording could not be started: enum floodmark_status, and a message. */
    int status() const noexcept { return status_; }
    const std::string &error() const noexcept { return error_; }
    floodmark_recorder get() const noexcept { return recorder_; }
    operator floodmark_recorder() const noexcept { return recorder_; }

    uint32_t intern(const char *text) const noexcept { return floodmark_intern(recorder_, text); }
    uint32_t intern(const std::string &text) const noexcept { return intern(text.c_str()); }
    void mark(const char *name) const noexcept { floodmark_mark(recorder_, intern(name)); }
    void alloc(const void *pointer, uint64_t bytes, const floodmark_domain &domain,
               uint32_t stack = FLOODMARK_NO_STACK) const noexcept
    {
        floodmark_alloc(recorder_, FLOODMARK_ADDRESS(pointer), bytes, &domain, stack);
    }
    void free(const void *pointer, uint64_t bytes, const floodmark_domain &domain) const noexcept
    {
        floodmark_free(recorder_, FLOODMARK_ADDRESS(pointer), bytes, &domain);
    }
    void failure(uint64_t bytes, const floodmark_domain &domain,
                 uint32_t stack = FLOODMARK_NO_STACK) const noexcept
    {
        floodmark_failure(recorder_, bytes, &domain, stack);
    }

private:
    void release() noexcept { recorder_ = FLOODMARK_NO_RECORDER; }

    floodmark_recorder recorder_;
    int status_;
    std::string error_;
};

/* A scope of the calling thread, until the object is destroyed on the same thread. */
class Scope {
public:
    explicit Scope(const char *name, floodmark_recorder recorder = FLOODMARK_GLOBAL) noexcept
        : recorder_(recorder), scope_(floodmark_enter_scope(recorder, floodmark_intern(recorder, name)))
    {
    }
    explicit Scope(uint32_t name, floodmark_recorder recorder = FLOODMARK_GLOBAL) noexcept
        : recorder_(recorder), scope_(floodmark_enter_scope(recorder, name))
    {
    }
    ~Scope() { floodmark_exit_scope(recorder_, scope_); }
    Scope(const Scope &) = delete;
    Scope &operator=(const Scope &) = delete;

private:
    floodmark_recorder recorder_;
    uint64_t scope_;
};

} /* namespace floodmark */
#endif /* __cplusplus */

#endif /* FLOODMARK_H */

// Records with the classes of the header; the test that runs it checks the traces.
// Arguments: the directory for the traces, and a path below a file, where none can be made.
#include <floodmark.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#define CHECK(condition)                                                            \
    do {                                                                            \
        if (!(condition)) {                                                         \
            std::fprintf(stderr, "line %d: %s\n", __LINE__, #condition);            \
            std::exit(1);                                                           \
        }                                                                           \
    } while (false)

namespace {

floodmark::Recorder start(const std::string &trace) { return floodmark::Recorder(trace); }

const void *at(uintptr_t address) { return reinterpret_cast<const void *>(address); }

} // namespace

int main(int count, char **arguments)
{
    if (count != 3) {
        return 2;
    }
    const std::string directory = arguments[1];

    floodmark::Recorder none(arguments[2]);
    CHECK(!none && !none.ok() && none.status() == FLOODMARK_ERROR_IO && !none.error().empty());
    none.alloc(at(1), 1, floodmark::Domain());
    none.stop();

    floodmark::Recorder recorder = start(directory + "/first.flood");
    CHECK(recorder && recorder.ok() && recorder.status() == FLOODMARK_OK && recorder.error().empty());
    const floodmark::Domain domain(FLOODMARK_KIND_PINNED, 3, 4, recorder.intern("pool"));
    {
        floodmark::Scope outer("outer", recorder);
        recorder.alloc(at(0x1000), 10, domain);
        {
            floodmark::Scope inner(recorder.intern(std::string("inner")), recorder);
            recorder.failure(11, domain);
        }
        recorder.free(at(0x1000), FLOODMARK_UNKNOWN_BYTES, domain);
    }
    recorder.mark("done");

    std::vector<std::thread> threads;
    for (uintptr_t number = 1; number <= 3; number++) {
        threads.emplace_back([&recorder, &domain, number] {
            floodmark::Scope scope("worker", recorder);
            for (uintptr_t round = 0; round < 1000; round++) {
                recorder.alloc(at(number << 32 | round), round, domain);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }

    // Moving stops what the target recorded before, and leaves the source without a recorder.
    floodmark::Recorder second = start(directory + "/second.flood");
    second.alloc(at(0x2000), 20, floodmark::Domain());
    const floodmark_recorder old = recorder;
    recorder = std::move(second);
    CHECK(!floodmark_is_recording(old) && floodmark_is_recording(recorder) && !second.ok());
    second.alloc(at(0x3000), 30, floodmark::Domain());
    recorder.alloc(at(0x4000), 40, floodmark::Domain());
    {
        floodmark::Scope nowhere("not recorded: there is no global recording");
    }
    return 0;
}

// Allocates before main, in destructors of thread-local variables and of pthread keys, after main, in exceptions.
#include <csetjmp>
#include <cstdlib>
#include <new>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static pthread_key_t key;
static void use(size_t bytes) {
    void *volatile block = malloc(bytes);
    free(block);
}
static void key_ends(void *value) {
    long round = (long)value;
    use(5000 + round);
    if (round < 3) pthread_setspecific(key, (void *)(round + 1));
}
struct Local {
    char *block = (char *)malloc(4001);
    ~Local() {
        free(block);
        use(4002);
    }
};
static thread_local Local local;
struct Static {
    char *block = (char *)malloc(6001);
    ~Static() {
        free(block);
        use(6002);
    }
} static_object;
struct alignas(128) Aligned { char bytes[200]; };

static void after_main() { use(6003); }
__attribute__((destructor)) static void at_end() { use(6004); }
__attribute__((constructor)) static void at_start() { use(6005); }
static void before_everything(int, char **, char **) { use(6006); }
__attribute__((section(".preinit_array"), used)) static void (*early)(int, char **, char **) = before_everything;

static std::string deep(int depth) {
    std::string text(100 + depth, 'x');
    if (depth == 0) throw std::runtime_error(text);
    return text + deep(depth - 1);
}

int main() {
    atexit(after_main);
    pthread_key_create(&key, key_ends);
    for (int round = 0; round < 4; round++) {
        std::vector<std::thread> threads;
        for (int at = 0; at < 20; at++)
            threads.emplace_back([] {
                local.block[0] = 1;
                pthread_setspecific(key, (void *)1);
                try {
                    deep(20);
                } catch (const std::exception &) {
                }
            });
        for (auto &thread : threads) thread.join();
    }
    static jmp_buf back;
    static void *volatile kept = nullptr;
    if (setjmp(back) == 0) {
        kept = malloc(777);
        longjmp(back, 1);
    }
    delete new Aligned;
    delete[] new int[1000];
    return kept ? 0 : 1;
}

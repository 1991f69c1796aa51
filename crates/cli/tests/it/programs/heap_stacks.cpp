// Allocates blocks of 40001, 40002 ... bytes through containers, lambdas, virtual functions and after exceptions.
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

static std::vector<char *> kept;

struct Shape {
    virtual ~Shape() = default;
    virtual void grow(int bytes) = 0;
};

template <typename T> struct Box : Shape {
    __attribute__((noinline)) void grow(int bytes) override { kept.push_back(new char[bytes]); }
};

__attribute__((noinline)) static void thrown(int depth) {
    if (depth == 0) throw std::runtime_error("deep");
    thrown(depth - 1);
    asm volatile("");
}

__attribute__((noinline)) static void called(const std::function<void(int)> &function, int bytes) {
    function(bytes);
    asm volatile("");
}

int main() {
    kept.reserve(100);
    std::unique_ptr<Shape> shape = std::make_unique<Box<int>>();
    shape->grow(40001);
    called([&](int bytes) { shape->grow(bytes); }, 40002);
    try {
        thrown(5);
    } catch (const std::runtime_error &) {
        shape->grow(40003);
    }
    auto *numbers = new std::vector<char>();
    numbers->reserve(40004);
    kept.push_back(numbers->data());
}

// Templates that keep a compiler busy: what is measured is the compiler.
#include <algorithm>
#include <array>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>

using Rows = std::map<std::string, std::vector<std::tuple<int, double, std::string>>>;

template <int N> struct Nested {
    static Rows rows;
    static auto values() {
        auto values = Nested<N - 1>::values();
        rows["x" + std::to_string(N)].emplace_back(N, values.size(), std::string(N, 'a'));
        std::vector<std::array<int, N + 1>> arrays;
        arrays.emplace_back();
        values.push_back(arrays.size());
        std::sort(values.begin(), values.end(), [](auto a, auto b) { return a * N < b * N; });
        return values;
    }
};
template <int N> Rows Nested<N>::rows;
template <> struct Nested<0> {
    static std::vector<size_t> values() { return {}; }
};

int main() {
    std::regex pattern("a+b*(c|d)[e-g]{2,3}");
    std::smatch match;
    std::string text = "aabcef";
    std::regex_match(text, match, pattern);
    std::unordered_map<std::string, std::variant<int, std::string, std::vector<double>>> named;
    named["a"] = 3;
    std::visit([](auto &value) {
        std::ostringstream out;
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, int>) out << value;
    }, named["a"]);
    return static_cast<int>(Nested<30>::values().size());
}

// Parses 5 MB of JSON into a tree of maps, vectors and strings, writes it out and destroys it: json_tree ROUNDS
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

enum class Kind { number, string, array, object };

struct Value {
    Kind kind = Kind::number;
    double number = 0;
    std::string string;
    std::vector<std::unique_ptr<Value>> array;
    std::map<std::string, std::unique_ptr<Value>> object;
};

class Parser {
  public:
    explicit Parser(const char *text) : at(text) {}

    std::unique_ptr<Value> value() {
        auto value = std::make_unique<Value>();
        if (*at == '{') {
            value->kind = Kind::object;
            for (at++; *at != '}'; at += *at == ',') {
                auto key = string();
                at++;
                value->object[key] = this->value();
            }
            at++;
        } else if (*at == '[') {
            value->kind = Kind::array;
            for (at++; *at != ']'; at += *at == ',') value->array.push_back(this->value());
            at++;
        } else if (*at == '"') {
            value->kind = Kind::string;
            value->string = string();
        } else {
            char *end;
            value->number = strtod(at, &end);
            at = end;
        }
        return value;
    }

  private:
    std::string string() {
        std::string result;
        for (at++; *at != '"'; at++) result += *at;
        at++;
        return result;
    }

    const char *at;
};

static std::string written(const Value &value) {
    std::string result;
    switch (value.kind) {
    case Kind::object:
        for (auto &[key, entry] : value.object) result += (result.empty() ? "{\"" : ",\"") + key + "\":" + written(*entry);
        return result.empty() ? "{}" : result + "}";
    case Kind::array:
        for (auto &entry : value.array) result += (result.empty() ? "[" : ",") + written(*entry);
        return result.empty() ? "[]" : result + "]";
    case Kind::string: return "\"" + value.string + "\"";
    default: return std::to_string(value.number);
    }
}

static unsigned state = 1;
static unsigned random_number() {
    state = state * 1664525 + 1013904223;
    return state >> 8;
}

static std::string generated(int depth) {
    if (depth == 0) {
        if (random_number() % 2) return std::to_string(random_number() % 100000);
        return "\"a string value number " + std::to_string(random_number() % 10000) + "\"";
    }
    const bool is_object = random_number() % 2;
    const unsigned count = 3 + random_number() % 4;
    std::string result = is_object ? "{" : "[";
    for (unsigned i = 0; i < count; i++) {
        if (i > 0) result += ",";
        if (is_object) result += "\"some_key_name_" + std::to_string(random_number() % 50 + i * 50) + "\":";
        result += generated(depth - 1);
    }
    return result + (is_object ? "}" : "]");
}

int main(int argc, char **argv) {
    const int rounds = argc > 1 ? atoi(argv[1]) : 5;
    std::string text = "[";
    for (int i = 0; i < 24; i++) text += (i > 0 ? "," : "") + generated(6);
    text += "]";
    size_t bytes = 0;
    for (int i = 0; i < rounds; i++) bytes += written(*Parser(text.c_str()).value()).size();
    fprintf(stderr, "%zu bytes read %d times, %zu written\n", text.size(), rounds, bytes);
}

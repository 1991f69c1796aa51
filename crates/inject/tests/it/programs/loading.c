// Loads two libraries by turns, so that one comes to lie where the other was.
#include <dlfcn.h>

int main(int count, char **arguments) {
    for (int round = 0; round < 40; round++) {
        void *library = dlopen(arguments[1 + round % (count - 1)], RTLD_NOW | RTLD_LOCAL);
        if (!library) return 1;
        void (*work)(void) = (void (*)(void))dlsym(library, "work");
        for (int at = 0; at < 50; at++) work();
        dlclose(library);
    }
    return 0;
}

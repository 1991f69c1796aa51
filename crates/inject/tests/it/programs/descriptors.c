// A daemon that closes every descriptor it does not know, opens files of its own and allocates.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int count, char **arguments) {
    (void)count;
    free(malloc(1000));
    for (int at = 3; at < 256; at++) close(at);
    if (chdir(arguments[1])) return 1;
    int files[8];
    for (int at = 0; at < 8; at++) {
        char name[16];
        snprintf(name, sizeof name, "own%d", at);
        files[at] = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    }
    if (chdir("/")) return 1;
    for (int at = 0; at < 200000; at++) {
        void *volatile block = malloc(100 + at % 50);
        free(block);
    }
    for (int at = 0; at < 8; at++) {
        struct stat status;
        if (fstat(files[at], &status) || status.st_size) return 2;
    }
    return 0;
}

// Sits at a terminal: runs a command at a terminal of its own, types KEYS once the command has written
// READY, passes on what the command writes, and says how the terminal's modes compare before and after.
//
// keys READY KEYS COMMAND [ARGUMENT ...]; in KEYS, ^X stands for a control character.
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

static int same(struct termios *one, struct termios *other) {
    return one->c_iflag == other->c_iflag && one->c_oflag == other->c_oflag && one->c_cflag == other->c_cflag &&
           one->c_lflag == other->c_lflag && !memcmp(one->c_cc, other->c_cc, sizeof one->c_cc);
}

static void type(int terminal, const char *keys) {
    for (; *keys; keys++) {
        char key = *keys;
        if (key == '^' && keys[1]) key = *++keys & 0x1f;
        if (write(terminal, &key, 1) < 0) perror("typing");
        usleep(20 * 1000);
    }
}

int main(int count, char **words) {
    if (count < 4) return 2;
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) || unlockpt(master)) return 3;
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    struct winsize size = {.ws_row = 33, .ws_col = 77};
    ioctl(slave, TIOCSWINSZ, &size);
    struct termios before, during, after;
    tcgetattr(slave, &before);
    pid_t child = fork();
    if (child == 0) {
        setsid();
        ioctl(slave, TIOCSCTTY, 0);
        for (int fd = 0; fd < 3; fd++) dup2(slave, fd);
        close(slave);
        close(master);
        execvp(words[3], words + 3);
        _exit(127);
    }
    static char all[1 << 20];
    size_t length = 0;
    int typed = 0, status = 0, over = 0;
    while (!over) {
        over = waitpid(child, &status, WNOHANG) == child;
        struct pollfd fd = {.fd = master, .events = POLLIN};
        while (poll(&fd, 1, over ? 0 : 20) > 0 && fd.revents & POLLIN && length < sizeof all - 1) {
            ssize_t got = read(master, all + length, sizeof all - 1 - length);
            if (got <= 0) break;
            if (write(1, all + length, got) < 0) return 3;
            length += got;
        }
        if (!typed && strstr(all, words[1])) {
            typed = 1;
            tcgetattr(slave, &during);
            type(master, words[2]);
        }
    }
    tcgetattr(slave, &after);
    printf("\nmodes during: %s, after: %s\n", typed ? (same(&before, &during) ? "same" : "other") : "unknown",
           same(&before, &after) ? "same" : "other");
    if (WIFSIGNALED(status)) printf("killed by %d\n", WTERMSIG(status));
    else printf("exit %d\n", WEXITSTATUS(status));
    return 0;
}

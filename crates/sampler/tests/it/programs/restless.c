// Something is always about to end, or to become something else.
//
// restless ROUNDS: threads that come and go, and children that fork, call exec from another thread than
// the first, exit with threads running, or are killed. Ends with 0 if each ended as it should.
// restless vfork 0: waits in vfork until its input ends.
// restless signals COUNT: sends itself signals that queue, and ends with 0 if all arrived.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *self;

static void *nap(void *argument)
{
    usleep((useconds_t)(long)argument);
    return 0;
}

static void *become(void *argument)
{
    execl(self, self, "code", argument, (char *)0);
    _exit(99);
}

static void with_threads(int count, useconds_t each)
{
    pthread_t thread;
    for (int n = 0; n < count; n++)
        if (!pthread_create(&thread, 0, nap, (void *)(long)each))
            pthread_detach(thread);
}

static int child(int kind)
{
    pthread_t thread;
    switch (kind) {
    case 0: // exec from another thread, with others around
        with_threads(3, 100000);
        pthread_create(&thread, 0, become, "40");
        pthread_join(thread, 0);
        return 98;
    case 1: // exit with threads running
        with_threads(4, 100000);
        usleep(300);
        return 41;
    case 2: // killed
        with_threads(2, 100000);
        kill(getpid(), SIGKILL);
        pause();
        return 97;
    case 3: // a child of its own
        if (fork() == 0) {
            usleep(200);
            _exit(0);
        }
        usleep(100);
        wait(0);
        return 43;
    case 4: // the first thread ends first
        with_threads(1, 2000);
        pthread_exit(0);
    default: // exec from the first thread
        with_threads(3, 100000);
        become("45");
    }
    return 96;
}

static int is_right(int kind, int status)
{
    static const int codes[] = {40, 41, 0, 43, 0, 45};
    if (kind == 2)
        return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    return WIFEXITED(status) && WEXITSTATUS(status) == codes[kind];
}

static volatile sig_atomic_t arrived;

static void count_one(int number)
{
    (void)number;
    arrived++;
}

static int signals(int count)
{
    struct sigaction action = {.sa_handler = count_one};
    sigaction(SIGRTMIN, &action, 0);
    union sigval value = {0};
    for (int n = 0; n < count; n++) {
        if (sigqueue(getpid(), SIGRTMIN, value))
            return 3;
        if (n % 16 == 0)
            usleep(500);
    }
    return arrived == count ? 0 : 1;
}

static int wait_in_vfork(void)
{
    char byte;
    if (write(1, "ready\n", 6) != 6)
        return 4;
    if (vfork() == 0) {
        while (read(0, &byte, 1) > 0)
            ;
        _exit(0);
    }
    return 0;
}

int main(int count, char **words)
{
    self = words[0];
    if (count > 2 && !strcmp(words[1], "code")) {
        usleep(300);
        return atoi(words[2]);
    }
    if (count > 1 && !strcmp(words[1], "vfork"))
        return wait_in_vfork();
    if (count > 2 && !strcmp(words[1], "signals"))
        return signals(atoi(words[2]));
    int rounds = count > 1 ? atoi(words[1]) : 10;
    for (int round = 0; round < rounds; round++) {
        pid_t children[6];
        with_threads(4, 500);
        for (int kind = 0; kind < 6; kind++) {
            children[kind] = fork();
            if (children[kind] == 0)
                exit(child(kind));
        }
        for (int kind = 0; kind < 6; kind++) {
            int status;
            if (waitpid(children[kind], &status, 0) < 0)
                return 2;
            if (!is_right(kind, status))
                return 10 + kind;
        }
    }
    return 0;
}

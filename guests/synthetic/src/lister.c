/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the page-cache lister running where the image has one, as a service
 * manager would, and maltreats it on command.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM "/page-cache-lister"
#define PORT "org.nova_dedup_migrate.page_cache.0"
#define AGAIN_S 10
/* How long one that is to break off may wait for a question */
#define QUESTION_US 60000000

static _Atomic pid_t lister;
static atomic_bool ended;       /* until it is told to go */

static pid_t spawn(void)
{
    char *const arguments[] = { PROGRAM, "--port", PORT, NULL };
    char *const nothing[] = { NULL };
    posix_spawnattr_t attributes;
    pid_t child = 0;

    posix_spawnattr_init(&attributes);
    /* a group of its own, with the children that answer */
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attributes, 0);
    if (posix_spawn(&child, PROGRAM, NULL, &attributes, arguments, nothing)) {
        child = 0;
    }
    posix_spawnattr_destroy(&attributes);
    return child;
}

static void *supervise(void *unused)
{
    for (;;) {
        pid_t child = ended ? 0 : spawn();

        lister = child;
        while (child && waitpid(child, NULL, 0) < 0 && errno == EINTR) {
        }
        lister = 0;
        sleep(ended ? 1 : AGAIN_S);
    }
    return unused;
}

void lister_start(void)
{
    pthread_t thread;

    if (!access(PROGRAM, X_OK)) {
        pthread_create(&thread, NULL, supervise, NULL);
    }
}

static bool answers(pid_t pid)
{
    char path[64], byte;
    int fd;
    bool found;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    found = read(fd, &byte, 1) == 1;
    close(fd);
    return found;
}

static void *break_off(void *unused)
{
    uint64_t until = now_us() + QUESTION_US;
    pid_t pid = lister;

    while (pid && !answers(pid) && now_us() < until) {
        usleep(1000);
    }
    if (pid) {
        kill(-pid, SIGKILL);
    }
    return unused;
}

const char *lister_command(const char *word)
{
    static const struct {
        const char *name;
        int number;
    } signals[] = {
        { "hang", SIGSTOP }, { "go", SIGCONT }, { "kill", SIGKILL },
    };
    pid_t pid = lister;
    pthread_t thread;

    ended = !strcmp(word, "kill") || (ended && strcmp(word, "go"));
    if (!pid) {
        return access(PROGRAM, X_OK) ? "there is no lister" :
               strcmp(word, "go") ? "no lister runs" : NULL;
    }
    for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++) {
        if (!strcmp(word, signals[i].name)) {
            return kill(-pid, signals[i].number) ? strerror(errno) : NULL;
        }
    }
    if (!strcmp(word, "break")) {
        pthread_create(&thread, NULL, break_off, NULL);
        pthread_detach(thread);
        return NULL;
    }
    return "hang, go, kill or break";
}

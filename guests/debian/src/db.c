/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pgbench, which tells of each transaction by a FIFO that it takes for its
 * log, and what PostgreSQL reads meanwhile.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DIRECTORY "/run/lab-guest"
#define SOCKET "/var/run/postgresql/.s.PGSQL.5432"
#define FOREVER_S "1000000"
#define STOP_US 20000000
#define SECOND_US 1000000
#define MAX_PROCESSES 64

static struct {
    pid_t pgbench;              /* 0: it does not run */
    int log;
    pthread_t reader, sampler;
    _Atomic bool ends;
} state;

bool db_answers(void)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = SOCKET };
    char path[512], text[512] = "";
    bool answers = false;
    FILE *file;
    int fd;

    /* its last line says so when it has recovered */
    snprintf(path, sizeof(path), "%s/postmaster.pid", config.database);
    file = fopen(path, "r");
    if (file) {
        text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
        fclose(file);
    }
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        answers = strstr(text, "\nready") &&
            !connect(fd, (struct sockaddr *)&address, sizeof(address));
        close(fd);
    }
    return answers;
}

/* us by which the real clock is before the monotonic one. */
static uint64_t clock_distance(void)
{
    struct timespec real;

    clock_gettime(CLOCK_REALTIME, &real);
    return real.tv_sec * UINT64_C(1000000) + real.tv_nsec / 1000 - now_us();
}

/*
 * client transaction microseconds script second microsecond [lag]; what
 * was not done in time has "skipped" or "failed" for microseconds.
 */
static void take_line(const char *line)
{
    uint64_t us, second, microsecond, end_us;
    char word[16];

    if (sscanf(line, "%*u %*u %15s %*u %" SCNu64 " %" SCNu64, word, &second,
               &microsecond) != 3) {
        return;
    }
    end_us = second * SECOND_US + microsecond - clock_distance();
    us = strtoull(word, NULL, 10);
    samples_add(DB, us ? REQUEST : ERROR, end_us, us, 0);
}

static void *read_log(void *opaque)
{
    FILE *log = fdopen(state.log, "r");
    char line[256];

    (void)opaque;
    /* db_stop() ends it by an empty line */
    while (log && fgets(line, sizeof(line), log) && *line != '\n') {
        take_line(line);
    }
    if (log) {
        fclose(log);
    }
    return NULL;
}

/* What a process has read from files so far, if it is PostgreSQL's. */
static bool process_read(const char *pid, uint64_t *bytes)
{
    char path[320], text[64] = "";
    FILE *file;
    bool found;

    snprintf(path, sizeof(path), "/proc/%s/comm", pid);
    file = fopen(path, "r");
    found = file && fgets(text, sizeof(text), file) &&
        !strcmp(text, "postgres\n");
    if (file) {
        fclose(file);
    }
    if (!found) {
        return false;
    }
    snprintf(path, sizeof(path), "/proc/%s/io", pid);
    file = fopen(path, "r");
    found = file && fscanf(file, "rchar: %" SCNu64, bytes) == 1;
    if (file) {
        fclose(file);
    }
    return found;
}

struct process {
    unsigned long pid;
    uint64_t bytes;
};

static const struct process *find(const struct process *all, unsigned count,
                                  unsigned long pid)
{
    for (unsigned i = 0; i < count; i++) {
        if (all[i].pid == pid) {
            return &all[i];
        }
    }
    return NULL;
}

/* Bytes that PostgreSQL's processes have read since the last call. */
static uint64_t read_since(struct process *known, unsigned *nr_known)
{
    struct process now[MAX_PROCESSES];
    DIR *all = opendir("/proc");
    struct dirent *entry;
    unsigned count = 0;
    uint64_t sum = 0;

    while (all && count < MAX_PROCESSES && (entry = readdir(all))) {
        unsigned long pid = strtoul(entry->d_name, NULL, 10);
        const struct process *before;
        uint64_t bytes;

        if (pid && process_read(entry->d_name, &bytes)) {
            before = find(known, *nr_known, pid);
            sum += before && before->bytes <= bytes
                ? bytes - before->bytes : 0;
            now[count++] = (struct process) { pid, bytes };
        }
    }
    if (all) {
        closedir(all);
    }
    memcpy(known, now, count * sizeof(*now));
    *nr_known = count;
    return sum;
}

/* Whether pgbench has given up. */
static bool has_ended(void)
{
    siginfo_t info = { .si_pid = 0 };

    return !waitid(P_PID, state.pgbench, &info,
                   WEXITED | WNOHANG | WNOWAIT) && info.si_pid;
}

static void *sample(void *opaque)
{
    struct process known[MAX_PROCESSES];
    unsigned nr_known = 0;
    uint64_t next = now_us();

    (void)opaque;
    read_since(known, &nr_known);
    next += SECOND_US - next % SECOND_US;
    while (!state.ends) {
        sleep_until(next);
        /* it was read in the second that has just ended */
        samples_add(DB, VOLUME, next - 1, 0, read_since(known, &nr_known));
        if (has_ended()) {
            samples_add(DB, ERROR, next - 1, 0, 0);
        }
        next += SECOND_US;
    }
    return NULL;
}

/* In the child: wait for the FIFO, become pgbench. */
static void become_pgbench(int wait, uint64_t milli, unsigned clients,
                           bool select)
{
    char rate[32], number[16], byte;
    char *argv[] = {
        "pgbench", "-n", "-c", number, "-j", "1", "-T", FOREVER_S,
        "-b", select ? "select-only" : "tpcb-like", "-l",
        "--log-prefix=" DIRECTORY "/log", "-R", rate, "bench", NULL,
    };

    snprintf(number, sizeof(number), "%u", clients);
    snprintf(rate, sizeof(rate), "%" PRIu64 ".%03" PRIu64, milli / 1000,
             milli % 1000);
    if (!milli) {
        argv[12] = "bench";
        argv[13] = NULL;
    }
    if (read(wait, &byte, 1) == 1) {
        query_exec("pgbench", argv);
    }
    _exit(127);
}

/* The log of the pgbench to come, in a FIFO: pgbench names it by its pid. */
static int make_log(pid_t pid)
{
    const struct passwd *user = query_user();
    char path[64];

    mkdir(DIRECTORY, 0755);
    snprintf(path, sizeof(path), DIRECTORY "/log.%d", (int)pid);
    if (!user || mkfifo(path, 0600) || chown(path, user->pw_uid, -1)) {
        return -1;
    }
    /* to read and write, so that reading waits for pgbench to begin */
    return open(path, O_RDWR | O_CLOEXEC);
}

static void remove_log(pid_t pid)
{
    char path[64];

    snprintf(path, sizeof(path), DIRECTORY "/log.%d", (int)pid);
    unlink(path);
}

const char *db_start(uint64_t milli, unsigned clients, bool select)
{
    int ends[2];
    pid_t child;

    if (pipe2(ends, O_CLOEXEC)) {
        return "no pipe can be made";
    }
    child = fork();
    if (!child) {
        close(ends[1]);
        become_pgbench(ends[0], milli, clients, select);
    }
    close(ends[0]);
    state.log = child > 0 ? make_log(child) : -1;
    if (state.log < 0) {
        close(ends[1]);         /* and the child ends */
        if (child > 0) {
            waitpid(child, NULL, 0);
            remove_log(child);
        }
        return "pgbench cannot be started";
    }
    state.ends = false;
    state.pgbench = child;
    samples_run(DB, true);
    pthread_create(&state.reader, NULL, read_log, NULL);
    pthread_create(&state.sampler, NULL, sample, NULL);
    if (write(ends[1], "", 1) != 1) {
        kill(child, SIGKILL);
    }
    close(ends[1]);
    return NULL;
}

/* As when its time is up, so that it ends its transactions and its log. */
static void end_pgbench(void)
{
    uint64_t limit = now_us() + STOP_US;

    kill(state.pgbench, SIGALRM);
    while (waitpid(state.pgbench, NULL, WNOHANG) != state.pgbench) {
        if (now_us() > limit) {
            kill(state.pgbench, SIGKILL);
            waitpid(state.pgbench, NULL, 0);
            return;
        }
        sleep_until(now_us() + 50000);
    }
}

void db_stop(void)
{
    if (!state.pgbench) {
        return;
    }
    state.ends = true;
    pthread_join(state.sampler, NULL);
    end_pgbench();
    samples_run(DB, false);
    /* the reader has it open for writing as well: nothing else ends it */
    if (write(state.log, "\n", 1) == 1) {
        pthread_join(state.reader, NULL);
    }
    remove_log(state.pgbench);
    state.pgbench = 0;
}

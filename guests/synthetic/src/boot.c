/* SPDX-License-Identifier: Apache-2.0 */
/* What an init process does first: mounts, modules, its options. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *const mode_names[] = {
    "idle", "read", "pagecache-writer", "anon-writer", "mixed",
    "small-files", "recycle",
};

enum mode mode_by_name(const char *name)
{
    enum mode mode = 0;

    while (mode < MODES && strcmp(name, mode_names[mode])) {
        mode++;
    }
    return mode;
}

const char *mode_name(enum mode mode)
{
    return mode_names[mode];
}

void boot_prepare(void)
{
    int fd;

    mkdir("/proc", 0755);
    mkdir("/sys", 0755);
    mkdir("/dev", 0755);
    mkdir("/data", 0755);
    mount("proc", "/proc", "proc", 0, NULL);
    mount("sysfs", "/sys", "sysfs", 0, NULL);
    mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
    fd = open("/proc/self/oom_score_adj", O_WRONLY);
    if (fd >= 0) {
        if (write(fd, "-1000", 5) < 0) {
            perror("oom_score_adj");
        }
        close(fd);
    }
}

/* The image's builder has put /modules/list in an order that loads. */
void boot_modules(void)
{
    FILE *list = fopen("/modules/list", "r");
    char name[128], path[160];

    while (list && fscanf(list, "%127s", name) == 1) {
        int fd;

        snprintf(path, sizeof(path), "/modules/%s", name);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 ||
            (syscall(SYS_finit_module, fd, "", 0) && errno != EEXIST)) {
            printf("module %s: %s\n", name, strerror(errno));
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    if (list) {
        fclose(list);
    }
}

/* Options that both the command line and `start` take. */
bool size_option(const char *word, struct config *into)
{
    const char *value = strchr(word, '=');
    size_t length = value ? (size_t)(value - word) : 0;
    uint64_t number;
    char *end;

    if (!value || value[1] < '0' || value[1] > '9') {
        return false;
    }
    errno = 0;
    number = strtoull(value + 1, &end, 10);
    if (errno || *end || number > UINT64_C(1) << 40) {
        return false;
    }
    if (length == 4 && !strncmp(word, "rate", 4)) {
        into->rate = number * 1000;
    } else if (length == 8 && !strncmp(word, "readrate", 8)) {
        into->readrate = number * 1000;
    } else if (length == 3 && !strncmp(word, "wss", 3)) {
        into->wss = number * MIB;
    } else if (length == 5 && !strncmp(word, "cache", 5)) {
        into->cache = number * MIB;
    } else if (length == 4 && !strncmp(word, "anon", 4)) {
        into->anon = number * MIB;
    } else if (length == 4 && !strncmp(word, "seed", 4)) {
        into->seed = number;
    } else if (length == 14 && !strncmp(word, "incompressible", 14)) {
        into->incompressible = number;
    } else if (length == 5 && !strncmp(word, "disks", 5)) {
        into->disks = number < MAX_DISKS ? number : MAX_DISKS;
    } else {
        return false;
    }
    return true;
}

void boot_config(void)
{
    static char line[4096];
    int fd = open("/proc/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, line, sizeof(line) - 1);
    char *rest = line;

    config = (struct config) {
        .cache = UINT64_MAX, .wss = UINT64_MAX, .seed = 1, .disks = 1,
    };
    line[got > 0 ? got : 0] = 0;
    if (fd >= 0) {
        close(fd);
    }
    for (char *word; (word = strsep(&rest, " \n"));) {
        if (strncmp(word, "workload.", 9)) {
            continue;
        }
        word += 9;
        if (!strncmp(word, "mode=", 5)) {
            enum mode mode = mode_by_name(word + 5);

            config.mode = mode < MODES ? mode : IDLE;
        } else if (!strncmp(word, "channel=", 8)) {
            snprintf(config.channel, sizeof(config.channel), "%s", word + 8);
        } else if (!size_option(word, &config)) {
            printf("workload: unknown option %s\n", word);
        }
    }
}

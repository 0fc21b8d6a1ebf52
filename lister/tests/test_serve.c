/* SPDX-License-Identifier: Apache-2.0 */
/* Requests answered though earlier listings hang, and SIGKILL does not end
 * them; the end of the service is that of its listing.  The listing is a
 * stand-in; the service and its processes are real. */
#define _GNU_SOURCE
#include "test.h"
#include "hang.h"
#include "listing.h"
#include "privileges.h"
#include "serve.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define TEST_GROUP "serve"
#define STEP_US 10000
#define GUARD_S 60
#define ENDING_STEPS 500
/* The service has so many that hang, and makes no more. */
#define MAX_HANGING 4
/* Nonces from here on hang */
#define HANGING 1000
/* One that takes its time, without privileges */
#define SLOW 999

static int host = -1;           /* the host's end of the port */
static pid_t service = -1;
static pid_t hanging[MAX_HANGING];
static uint8_t text[LISTING_MAX_TEXT + 1];      /* of the last SKIPPED */

int lister_run(int fd, const struct lister_options *options)
{
    static const struct listing_figures none;
    static struct listing listing;

    listing_begin(&listing, fd, options->extents, 4096, options->nonce,
                  options->compact);
    if (options->nonce == SLOW && !privileges_drop()) {
        listing_end(&listing, LISTING_FAILED, LISTING_METHOD_NONE, &none, 0,
                    0, 0, 0);
        for (;;) {
            poll(NULL, 0, -1);
        }
    }
    if (options->nonce >= HANGING) {
        hang_here();
    }
    listing_end(&listing, LISTING_WHOLE, LISTING_METHOD_PAGES, &none, 0, 0,
                0, 0);
    return 0;
}

static bool start(void)
{
    static const struct lister_options defaults;
    int port[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, port)) {
        return false;
    }
    host = port[0];
    service = fork();
    if (!service) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(host);
        close(hang_fd);
        fcntl(port[1], F_SETFL, O_NONBLOCK);
        serve_requests(port[1], &defaults);
        _exit(0);
    }
    close(port[1]);
    return service > 0;
}

static void request(uint64_t nonce)
{
    struct __attribute__((packed)) {
        char magic[4];
        uint16_t type, zero;
        uint32_t length, number, version, limit_ms;
        uint64_t nonce;
        uint32_t memory_kib, extents;
        uint8_t zeros[40];
    } r = {
        LISTING_MAGIC, LISTING_REQUEST, 0, LISTING_REQUEST_LEN, 0,
        LISTING_VERSION, LISTING_MAX_TIME_MS, nonce, LISTING_MIN_MEMORY_KIB,
        1, { 0 },
    };

    if (write(host, &r, sizeof(r)) != sizeof(r)) {
        perror("request");
    }
}

static bool read_all(void *into, size_t length)
{
    return recv(host, into, length, MSG_WAITALL) == (ssize_t)length;
}

/* The status of the next listing that has an end, -1: it is not that of this
 * nonce */
static int answer(uint64_t nonce)
{
    static uint8_t payload[LISTING_MAX_PAYLOAD];
    uint8_t header[LISTING_HEADER_LEN];
    uint64_t begun = 0;
    uint32_t number;
    uint16_t type;
    long length;

    while (read_all(header, sizeof(header))) {
        length = listing_parse_header(header, &type, &number);
        if (length < 0 || !read_all(payload, length)) {
            break;
        }
        if (type == LISTING_BEGIN) {
            memcpy(&begun, payload + 8, sizeof(begun));
        } else if (type == LISTING_SKIPPED) {
            memset(text, 0, sizeof(text));
            memcpy(text, payload + LISTING_SKIPPED_LEN,
                   length - LISTING_SKIPPED_LEN);
        } else if (type == LISTING_END) {
            return begun == nonce ? payload[0] : -1;
        }
    }
    return -1;
}

/* As in ps; 0: there is no such process */
static char state(pid_t pid)
{
    char path[64], found = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    file = fopen(path, "r");
    if (file) {
        if (fscanf(file, "%*d (%*[^)]) %c", &found) != 1) {
            found = 0;
        }
        fclose(file);
    }
    return found;
}

static bool is_there(pid_t pid)
{
    char found = state(pid);

    return found && found != 'Z';
}

static void wait_for(pid_t pid, char wanted)
{
    while (state(pid) != wanted) {
        usleep(STEP_US);
    }
}

static void next_is_answered(void)
{
    request(1);
    CHECK(answer(1) == LISTING_WHOLE);
    request(HANGING);
    hanging[0] = hang_next();
    CHECK(hanging[0] > 0);
    request(2);
    CHECK(answer(2) == LISTING_WHOLE);
    /* Killed, and yet there */
    wait_for(hanging[0], 'D');
    CHECK(waitpid(service, NULL, WNOHANG) == 0);
}

static void too_many_are_refused(void)
{
    for (int i = 1; i < MAX_HANGING; i++) {
        request(HANGING + i);
        hanging[i] = hang_next();
        CHECK(hanging[i] > 0);
    }
    for (uint64_t nonce = 3; nonce < 6; nonce++) {
        request(nonce);
        CHECK(answer(nonce) == LISTING_FAILED);
        CHECK(strstr((char *)text, "4 earlier listings hang"));
    }
    for (int i = 0; i < MAX_HANGING; i++) {
        wait_for(hanging[i], 'D');
    }
}

/* Without another request: a process that has ended is not kept. */
static void reaped_when_they_end(void)
{
    hang_end();
    for (int i = 0; i < MAX_HANGING; i++) {
        wait_for(hanging[i], 0);
    }
    request(7);
    CHECK(answer(7) == LISTING_WHOLE);
}

/* Another user's process is not killed with its parent by itself. */
static void ends_with_the_service(void)
{
    char path[64];
    int listing = 0;
    bool ended;
    FILE *children;

    request(SLOW);
    CHECK(answer(SLOW) == LISTING_FAILED);
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", service,
             service);
    children = fopen(path, "r");
    CHECK(children && fscanf(children, "%d", &listing) == 1);
    fclose(children);
    kill(service, SIGKILL);
    for (int i = 0; i < ENDING_STEPS && is_there(listing); i++) {
        usleep(STEP_US);
    }
    ended = !is_there(listing);
    /* What is left would keep this program's output open. */
    kill(listing, SIGKILL);
    CHECK(ended);
}

int main(void)
{
    const char *why = hang_mount();

    setlinebuf(stdout);
    if (why) {
        printf("skipped serve: a process cannot be made to hang: %s: %s\n",
               why, strerror(errno));
        return 0;
    }
    if (!start()) {
        perror("start");
        return 1;
    }
    /* A test that waits for what does not come is ended, and with it all
     * that hang. */
    alarm(GUARD_S);
    RUN(next_is_answered);
    RUN(too_many_are_refused);
    RUN(reaped_when_they_end);
    if (getuid()) {
        printf("skipped serve: ends_with_the_service: only root can become "
               "another user\n");
    } else {
        RUN(ends_with_the_service);
    }
    if (hang_fd >= 0) {
        hang_end();
    }
    kill(service, SIGKILL);
    waitpid(service, NULL, 0);
    return test_status;
}

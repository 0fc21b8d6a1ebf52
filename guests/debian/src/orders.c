/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "age.h"
#include "guest.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The last answer to an order that changed something. */
static struct {
    uint64_t id;
    char text[4096];
} last;

static void parse(struct order *order, char *text)
{
    char *rest, *word = strtok_r(text, " ", &rest);

    for (; word; word = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(word, '=');

        if (!value) {
            if (order->nr_words < 4) {
                snprintf(order->words[order->nr_words++], 16, "%s", word);
            }
            continue;
        }
        *value++ = '\0';
        if (!strcmp(word, "id")) {
            order->id = strtoull(value, NULL, 10);
        } else if (!strcmp(word, "mode")) {
            if (order->nr_words < 4) {
                snprintf(order->words[order->nr_words++], 16, "%s", value);
            }
        } else if (order->nr_options < 8) {
            snprintf(order->options[order->nr_options].name, 16, "%s", word);
            order->options[order->nr_options++].value =
                strtoull(value, NULL, 10);
        }
    }
}

uint64_t order_option(const struct order *order, const char *name,
                      uint64_t otherwise)
{
    for (unsigned i = 0; i < order->nr_options; i++) {
        if (!strcmp(order->options[i].name, name)) {
            return order->options[i].value;
        }
    }
    return otherwise;
}

static bool is(const struct order *order, unsigned number, const char *word)
{
    return number < order->nr_words && !strcmp(order->words[number], word);
}

/* Fields of an answer, as JSON; kept to be repeated if keep. */
static void reply(const struct order *order, bool keep, const char *format,
                  ...) __attribute__((format(printf, 3, 4)));
static void reply(const struct order *order, bool keep, const char *format,
                  ...)
{
    char text[sizeof(last.text)];
    va_list args;
    int used;

    used = snprintf(text, sizeof(text),
                    "{\"type\":\"reply\",\"id\":%" PRIu64 ",", order->id);
    va_start(args, format);
    used += vsnprintf(text + used, sizeof(text) - used, format, args);
    va_end(args);
    if (used > (int)sizeof(text) - 3) {
        return;                 /* never: the caller's texts are short */
    }
    strcat(text, "}\n");
    if (keep) {
        last.id = order->id;
        strcpy(last.text, text);
    }
    line_write(order->line, text);
}

/* A text as JSON has it: what is special becomes a question mark. */
static const char *plain(char *text)
{
    for (char *c = text; *c; c++) {
        if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\') {
            *c = '?';
        }
    }
    return text;
}

static void done(const struct order *order, const char *problem)
{
    if (problem) {
        reply(order, true, "\"ok\":false,\"message\":\"%s\"", problem);
    } else {
        reply(order, true, "\"ok\":true");
    }
}

static void ping(const struct order *order)
{
    bool ready = web_answers() && db_answers();

    reply(order, false, "\"ok\":true,\"ready\":%s,\"mono_ms\":%" PRIu64,
          ready ? "true" : "false", now_us() / 1000);
}

static void stat_memory(const struct order *order)
{
    FILE *file = fopen("/proc/meminfo", "r");
    char text[3072] = "", name[64];
    uint64_t kib;

    while (file && fscanf(file, "%63[^:]: %" SCNu64 "%*[^\n]\n", name,
                          &kib) == 2) {
        size_t used = strlen(text);

        if (!strchr(name, '(') && !strchr(name, '_')) {
            snprintf(text + used, sizeof(text) - used, ",\"%s\":%" PRIu64,
                     plain(name), kib);
        }
    }
    if (file) {
        fclose(file);
    }
    reply(order, false, "\"ok\":true%s", text);
}

#define SUMMARY "\"from_ms\":%" PRIu64 ",\"to_ms\":%" PRIu64 \
    ",\"bytes\":%" PRIu64 ",\"requests\":%" PRIu64 ",\"errors\":%" PRIu64 \
    ",\"due\":%" PRIu64 ",\"p50_us\":%" PRIu64 \
    ",\"p99_us\":%" PRIu64 ",\"max_us\":%" PRIu64
#define SUMMARY_OF(from_us, to_us, summary) \
    (from_us) / 1000, (to_us) / 1000, (summary)->bytes, \
    (summary)->requests, (summary)->errors, (summary)->due, \
    (summary)->p50_us, (summary)->p99_us, (summary)->max_us

static void report(void *opaque, uint64_t from_us,
                   const struct summary *summary)
{
    const struct order *order = opaque;
    char text[512];

    snprintf(text, sizeof(text), "{\"type\":\"report\",\"id\":%" PRIu64 ","
             SUMMARY "}\n", order->id,
             SUMMARY_OF(from_us, from_us + 1000000, summary));
    line_write(order->line, text);
}

static void series(struct order *order, enum load load)
{
    unsigned seconds = samples_series(
        load, order_option(order, "since", 0) * 1000, report, order);

    reply(order, false, "\"ok\":true,\"seconds\":%u", seconds);
}

static void window(const struct order *order, enum load load)
{
    uint64_t from_us = order_option(order, "from", 0) * 1000;
    uint64_t to_us = order_option(order, "to", 0) * 1000;
    struct summary summary;

    samples_window(load, from_us, to_us, &summary);
    reply(order, false, "\"ok\":true," SUMMARY,
          SUMMARY_OF(from_us, to_us, &summary));
}

static void verify(const struct order *order,
                   uint64_t (*what)(uint64_t *errors, char *error,
                                    size_t size))
{
    uint64_t bytes, errors = 0;
    char error[200] = "";

    bytes = what(&errors, error, sizeof(error));
    reply(order, true, "\"ok\":true,\"bytes\":%" PRIu64
          ",\"errors\":%" PRIu64 ",\"error\":\"%s\"", bytes, errors,
          plain(error));
}

static void start(const struct order *order, enum load load)
{
    uint64_t milli = order_option(order, "rate", 0);
    uint64_t clients = order_option(order, "clients", 2);

    if (clients < 1 || clients > 16) {
        done(order, "clients are 1 to 16");
    } else if (load == WEB) {
        web_stop();
        done(order, web_start(milli, clients));
    } else {
        db_stop();
        done(order, db_start(milli, clients, is(order, 2, "select")));
    }
}

static void power_off(const struct order *order)
{
    done(order, NULL);
    if (!config.stdio && !fork()) {
        execlp("systemctl", "systemctl", "--no-block", "poweroff", NULL);
        _exit(127);
    }
}

static void carry_out(struct order *order)
{
    bool web = is(order, 1, "web"), db = is(order, 1, "db");
    enum load load = web ? WEB : DB;

    if (is(order, 0, "ping")) {
        ping(order);
    } else if (is(order, 0, "stat")) {
        stat_memory(order);
    } else if (is(order, 0, "series") && (web || db)) {
        series(order, load);
    } else if (is(order, 0, "window") && (web || db)) {
        window(order, load);
    } else if (order->id == last.id) {
        line_write(order->line, last.text);
    } else if (is(order, 0, "warm")) {
        bool all = is(order, 1, "all");

        reply(order, true, "\"ok\":true,\"cached\":%" PRIu64,
              files_warm(web || all, db || all));
    } else if (is(order, 0, "drop")) {
        done(order, files_drop());
    } else if (is(order, 0, "start") && (web || db)) {
        start(order, load);
    } else if (is(order, 0, "stop") && (web || db)) {
        (web ? web_stop : db_stop)();
        done(order, NULL);
    } else if (is(order, 0, "age")) {
        done(order, files_age(order_option(order, "rounds", 1),
                              order_option(order, "memory", 0)));
    } else if (is(order, 0, "verify") && db) {
        verify(order, query_verify);
    } else if (is(order, 0, "verify") && is(order, 1, "files")) {
        verify(order, files_verify);
    } else if (is(order, 0, "verify") && is(order, 1, "aged")) {
        verify(order, age_verify);
    } else if (is(order, 0, "poweroff")) {
        power_off(order);
    } else {
        done(order, "there is no such order");
    }
}

void order_line(int line, char *text)
{
    struct order order = { .line = line };

    parse(&order, text);
    /* anything may come by a serial line; without a number it is noise */
    if (order.id) {
        carry_out(&order);
    }
}

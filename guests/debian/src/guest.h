/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program in the Debian guest that takes orders from the host, by the
 * virtio-serial port "workload" and by the first serial port: one order a
 * line in, flat JSON objects out, to where the order came from.
 *
 * ORDER id=N               what is between are words and NAME=NUMBER
 *   ping                   mono_ms, ready: whether both servers answer
 *   stat                   /proc/meminfo, in KiB
 *   warm web|db|all        read the files; cached: bytes of them that are
 *   drop                   write back, drop caches
 *   age rounds=N memory=MIB        use files as a machine in use does, with
 *                          processes that need so much memory (age.h)
 *   start web rate= clients=            rate: thousandths of requests a
 *   start db rate= clients= mode=tpcb|select    second; 0: no limit
 *   stop web|db
 *   series web|db since=MS              a {"type":"report"} for each second
 *                          in which the load ran, then seconds: how many
 *   window web|db from=MS to=MS         from_ms, to_ms, bytes, requests,
 *                          errors, due, p50_us, p99_us, max_us; so has a
 *                          report
 *   verify files|db|aged   bytes, errors, error
 *   poweroff
 *
 * Each is answered by {"type":"reply","id":N,"ok":true,...}, or "ok":false
 * and "message".  Orders that change something are carried out once: when
 * the number is that of the one before, the answer is repeated.
 *
 * mono_ms and what stands for a time is CLOCK_MONOTONIC.
 */
#ifndef GUEST_H
#define GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct config {
    const char *files;          /* directory of the web server's files */
    const char *database;       /* PostgreSQL's data directory */
    const char *aged;           /* directory of the files that are aged */
    unsigned port;              /* the web server's, on the loopback */
    uint64_t seed;
    unsigned count, pages;      /* files, and pages of each */
    bool stdio;                 /* orders come by standard input */
};

extern struct config config;

/* What an order has told, and where its answer goes. */
struct order {
    int line;                   /* descriptor */
    uint64_t id;
    char words[4][16];
    unsigned nr_words;
    struct { char name[16]; uint64_t value; } options[8];
    unsigned nr_options;
};

/* line.c */
void line_serve(void) __attribute__((noreturn));
void line_write(int line, const char *text);

/* orders.c */
void order_line(int line, char *text);
uint64_t order_option(const struct order *order, const char *name,
                      uint64_t otherwise);

enum load { WEB, DB, LOADS };
enum kind { REQUEST, ERROR, VOLUME };

/* samples.c: what the loads did, the last 2^17 events of each */
struct summary {
    uint64_t bytes, requests, errors, due, p50_us, p99_us, max_us;
};

void samples_add(enum load load, enum kind kind, uint64_t end_us,
                 uint64_t us, uint64_t bytes);
void samples_run(enum load load, bool runs);
void samples_window(enum load load, uint64_t from_us, uint64_t to_us,
                    struct summary *summary);
/* Calls back for each whole second since then in which the load ran. */
unsigned samples_series(enum load load, uint64_t since_us,
                        void (*each)(void *opaque, uint64_t from_us,
                                     const struct summary *summary),
                        void *opaque);

/* The loads; NULL, or why not. milli: thousandths a second. */
const char *web_start(uint64_t milli, unsigned clients);
void web_stop(void);
bool web_answers(void);
const char *db_start(uint64_t milli, unsigned clients, bool select);
void db_stop(void);
bool db_answers(void);

/* files.c; bytes are returned */
uint64_t files_warm(bool web, bool db);
const char *files_drop(void);
const char *files_age(unsigned rounds, uint64_t memory_mib);
uint64_t files_verify(uint64_t *errors, char *error, size_t size);

/* query.c: the database's contents */
struct passwd;
const struct passwd *query_user(void);      /* NULL: there is none */
uint64_t query_verify(uint64_t *errors, char *error, size_t size);
/* Run a program of PostgreSQL's in a child that has not exec'ed yet. */
void query_exec(const char *name, char *const argv[])
    __attribute__((noreturn));

uint64_t now_us(void);
void sleep_until(uint64_t us);

#endif

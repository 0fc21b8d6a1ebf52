/*
 * The memory of a guest under real threads, and multifd's channels into it
 *
 * The stream gives each channel pages between channels_begin() and
 * channels_go(); the channel supersedes them, then writes them, or zeros them
 * if the version is 0.  A round ends when all channels are done, as with
 * MULTIFD_FLUSH: channels_sync().
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef STRESS_CHANNELS_H
#define STRESS_CHANNELS_H

#include <pthread.h>
#include "incoming.h"

#define WORDS       (4096 / sizeof(uint64_t))
#define CHANNELS    2

static uint64_t memory[RAM_PAGES][WORDS] __attribute__((aligned(4096)));
static bool quit;

static void write_page(uint64_t page, uint64_t version)
{
    for (unsigned i = 0; i < WORDS; i++) {
        memory[page][i] = version;
    }
}

static struct Channel {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    struct {
        uint32_t page;
        uint32_t epoch;
        uint64_t version;
    } work[2 * RAM_PAGES];
    unsigned n;
    bool busy;
} channels[CHANNELS];

static void *channel(void *opaque)
{
    struct Channel *c = opaque;

    pthread_mutex_lock(&c->lock);
    while (!qatomic_read(&quit)) {
        unsigned n = c->n;

        if (!n) {
            pthread_cond_wait(&c->cond, &c->lock);
            continue;
        }
        pthread_mutex_unlock(&c->lock);
        for (unsigned i = 0; i < n; i++) {
            dedup_incoming_supersede(&blocks[0],
                                     (uint64_t)c->work[i].page << 12,
                                     c->work[i].epoch);
        }
        for (unsigned i = 0; i < n; i++) {
            /* Version 0 is a zero page */
            write_page(c->work[i].page, c->work[i].version);
        }
        pthread_mutex_lock(&c->lock);
        c->n = 0;
        c->busy = false;
        pthread_cond_broadcast(&c->cond);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static void channel_give(unsigned i, uint32_t page, uint32_t epoch,
                         uint64_t version)
{
    struct Channel *c = &channels[i];

    c->work[c->n].page = page;
    c->work[c->n].epoch = epoch;
    c->work[c->n++].version = version;
}

static void channels_begin(void)
{
    for (int i = 0; i < CHANNELS; i++) {
        pthread_mutex_lock(&channels[i].lock);
    }
}

static void channels_go(void)
{
    for (int i = 0; i < CHANNELS; i++) {
        channels[i].busy = channels[i].n;
        pthread_cond_broadcast(&channels[i].cond);
        pthread_mutex_unlock(&channels[i].lock);
    }
}

static void channels_sync(void)
{
    for (int i = 0; i < CHANNELS; i++) {
        pthread_mutex_lock(&channels[i].lock);
        while (channels[i].busy) {
            pthread_cond_wait(&channels[i].cond, &channels[i].lock);
        }
        pthread_mutex_unlock(&channels[i].lock);
    }
}

static void channels_start(void)
{
    for (int i = 0; i < CHANNELS; i++) {
        pthread_mutex_init(&channels[i].lock, NULL);
        pthread_cond_init(&channels[i].cond, NULL);
        pthread_create(&channels[i].thread, NULL, channel, &channels[i]);
    }
}

/* @quit is set */
static void channels_end(void)
{
    for (int i = 0; i < CHANNELS; i++) {
        pthread_mutex_lock(&channels[i].lock);
        pthread_cond_broadcast(&channels[i].cond);
        pthread_mutex_unlock(&channels[i].lock);
        pthread_join(channels[i].thread, NULL);
    }
}

#endif

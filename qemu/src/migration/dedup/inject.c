/*
 * Faults for tests: delays in the windows that matter, and each safeguard
 * taken out by itself, so that a test can be seen to fail without it
 *
 * From the environment variable QEMU_DEDUP_INJECT, read once at start:
 * "name=number,..." with the names of DedupInject's members, written with
 * dashes.  Nothing of it is in what is installed, see flavour.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/cutils.h"
#include "qemu/error-report.h"
#include "dedup-int.h"

#ifdef DEDUP_FAULTY

DedupInject dedup_inject;

static void inject_set(const char *name, unsigned value)
{
    const struct {
        const char *name;
        uint32_t *number;
        bool *flag;
    } all[] = {
        { "fetch-delay-us", &dedup_inject.fetch_delay_us },
        { "pending-delay-us", &dedup_inject.pending_delay_us },
        { "copy-delay-us", &dedup_inject.copy_delay_us },
        { "answer-delay-us", &dedup_inject.answer_delay_us },
        { "window", &dedup_inject.window },
        { "hold-below-ms", &dedup_inject.hold_below_ms },
        { "hold-postcopy-ms", &dedup_inject.hold_postcopy_ms },
        { "hold-limit-us", &dedup_inject.hold_limit_us },
        { "compress-delay-us", &dedup_inject.compress_delay_us },
        { "inflate-delay-us", &dedup_inject.inflate_delay_us },
        { "disk-turn-ms", &dedup_inject.disk_turn_ms },
        { "no-answers", .flag = &dedup_inject.no_answers },
        { "no-hello", .flag = &dedup_inject.no_hello },
        { "no-hints", .flag = &dedup_inject.no_hints },
        { "no-supersede", .flag = &dedup_inject.no_supersede },
        { "no-verify", .flag = &dedup_inject.no_verify },
        { "no-recv-bit", .flag = &dedup_inject.no_recv_bit },
        { "no-xbzrle-drop", .flag = &dedup_inject.no_xbzrle_drop },
        { "no-redirty", .flag = &dedup_inject.no_redirty },
        { "no-flush", .flag = &dedup_inject.no_flush },
        { "no-own-target", .flag = &dedup_inject.no_own_target },
        { "no-quiesce", .flag = &dedup_inject.no_quiesce },
        { "no-epoch", .flag = &dedup_inject.no_epoch },
        { "trust-acks", .flag = &dedup_inject.trust_acks },
        { "no-bounds", .flag = &dedup_inject.no_bounds },
        { "zero-records", .flag = &dedup_inject.zero_records },
        { "no-compare", .flag = &dedup_inject.no_compare },
        { "no-inflate-wait", .flag = &dedup_inject.no_inflate_wait },
        { "read-log", .flag = &dedup_inject.read_log },
        { "defer-last", .flag = &dedup_inject.defer_last },
        { "no-round-trip", .flag = &dedup_inject.no_round_trip },
        { "no-claim", .flag = &dedup_inject.no_claim },
        { "no-atomic-place", .flag = &dedup_inject.no_atomic_place },
    };

    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        if (!strcmp(all[i].name, name)) {
            if (all[i].number) {
                *all[i].number = value;
            } else {
                *all[i].flag = value;
            }
            warn_report("QEMU_DEDUP_INJECT: %s=%u", name, value);
            return;
        }
    }
    error_report("QEMU_DEDUP_INJECT: '%s' is not known", name);
    exit(EXIT_FAILURE);
}

void dedup_inject_init(void)
{
    const char *env = getenv("QEMU_DEDUP_INJECT");
    g_auto(GStrv) items = NULL;

    if (!env || !*env) {
        return;
    }
    items = g_strsplit(env, ",", 0);
    for (char **item = items; *item; item++) {
        char *eq = strchr(*item, '=');
        unsigned value = 1;

        if (eq) {
            *eq = '\0';
            if (qemu_strtoui(eq + 1, NULL, 0, &value)) {
                error_report("QEMU_DEDUP_INJECT: '%s' is not a number",
                             eq + 1);
                exit(EXIT_FAILURE);
            }
        }
        inject_set(*item, value);
    }
}

#endif

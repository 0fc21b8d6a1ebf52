/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers requests that come by a virtio-serial port, each in a process of
 * its own, which gives up its privileges and has its time.
 */
#ifndef SERVE_H
#define SERVE_H

#include "lister.h"

/* Returns when there is no such port, or it has gone: the exit status */
int serve(const char *port, const struct lister_options *defaults);

#endif

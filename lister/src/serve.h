/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers requests that come by a virtio-serial port, each in a process of
 * its own, which gives up its privileges and has its time. A process that
 * hangs does not keep the next request from being answered.
 */
#ifndef SERVE_H
#define SERVE_H

#include "lister.h"

/* Returns when there is no such port, or it has gone: the exit status */
int serve(const char *port, const struct lister_options *defaults);
/* Of a port that is open, does not block and may be gone: then it returns */
void serve_requests(int fd, const struct lister_options *defaults);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Ports by which a program in a guest speaks with the host. */
#ifndef PORTS_H
#define PORTS_H

#include <stddef.h>

/*
 * Open /dev/NAME, or the virtio-serial port of that name, so that nothing
 * waits for the host: the descriptor, or -1 if the guest has none.
 */
int ports_open_serial(const char *name);
int ports_open_virtio(const char *name);

/* Write; drop what nobody takes: the guest must not hang on its host. */
void ports_write(int port, const char *text, size_t length);

#endif

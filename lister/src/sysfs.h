/* SPDX-License-Identifier: Apache-2.0 */
/* Small files of sysfs, read whole */
#ifndef SYSFS_H
#define SYSFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Put before each path; tests have their own tree there */
extern const char *sysfs_root;

/* The text less its white space at the ends; false: there is no such file */
bool sysfs_text(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool sysfs_number(uint64_t *number, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Bytes read, -1: there is no such file */
long sysfs_bytes(void *into, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool sysfs_exists(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
/* The last component of where a link leads */
bool sysfs_link(char *name, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif

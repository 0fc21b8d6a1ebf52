/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of a machine that has been in use: created, rewritten, read in small
 * parts and deleted at random while memory is short. So files and pages of
 * all ages lie side by side, on the disk and in the page cache.
 *
 * The content of a page is that of its place and of how often it was written
 * (pattern.h). The program that has aged the files can verify them.
 */
#ifndef AGE_H
#define AGE_H

#include <stddef.h>
#include <stdint.h>

struct aged {
    const char *directory;
    unsigned files, pages;      /* pages of a file, on average */
    uint64_t seed;
};

/* Each file is used `rounds` times on average, and now and then a process
 * needs so many pages of memory. NULL, or what failed. */
const char *age_files(const struct aged *aged, unsigned rounds,
                      unsigned long memory);
/* Returns bytes, 0 if nothing was aged. Wrong pages are added to *errors, and
 * error, if it is empty, names the first. */
uint64_t age_verify(uint64_t *errors, char *error, size_t size);

#endif

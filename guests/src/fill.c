/* SPDX-License-Identifier: Apache-2.0
 *
 * Host tool: writes the files of a data disk into a directory.
 *   fill DIRECTORY SEED FILES PAGES_PER_FILE
 * or, for the unit test, one page to standard output:
 *   fill - SEED OBJECT PAGE VERSION [plain]
 */
#include "pattern.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int write_file(const char *directory, uint64_t seed, uint64_t number,
                      uint64_t pages)
{
    static uint64_t page[PAGE_WORDS];
    char path[4096];
    FILE *file;
    int bad = 0;

    snprintf(path, sizeof(path), "%s/f%05llu", directory,
             (unsigned long long)number);
    file = fopen(path, "wb");
    if (!file) {
        return 1;
    }
    for (uint64_t i = 0; i < pages && !bad; i++) {
        pattern_fill(page, pattern_start(seed, number, i, 0));
        bad = fwrite(page, PAGE_BYTES, 1, file) != 1;
    }
    return (fclose(file) != 0) | bad;
}

int main(int argc, char **argv)
{
    uint64_t a, b, c;

    if (argc < 5) {
        fprintf(stderr, "usage: fill DIRECTORY SEED FILES PAGES\n");
        return 2;
    }
    a = strtoull(argv[2], NULL, 0);
    b = strtoull(argv[3], NULL, 0);
    c = strtoull(argv[4], NULL, 0);
    if (!strcmp(argv[1], "-")) {
        uint64_t page[PAGE_WORDS];
        uint32_t version = argc > 5 ? strtoul(argv[5], NULL, 0) : 0;

        (argc > 6 ? pattern_fill_plain : pattern_fill)(
            page, pattern_start(a, b, c, version));
        return fwrite(page, PAGE_BYTES, 1, stdout) != 1;
    }
    for (uint64_t i = 0; i < b; i++) {
        if (write_file(argv[1], a, i, c)) {
            perror("fill");
            return 1;
        }
    }
    return 0;
}

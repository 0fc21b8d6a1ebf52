/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads BTF, the kernel's description of its own structures
 * (Linux, Documentation/bpf/btf.rst): where a member lies, what a constant
 * is.  No assumption is made of the data but its length.
 */
#ifndef BTF_H
#define BTF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct btf {
    struct btf *base;           /* of a module: the kernel's, else NULL */
    const uint8_t *types, *strings;
    uint32_t types_length, strings_length;
    /* Types up to `next` have been looked at: the first ones often do */
    uint32_t next, count, named;
    uint32_t *index;            /* where type N begins; [0] is void */
    uint32_t *names;            /* where structures and enumerations do */
};

struct btf_member {
    uint32_t offset, size;      /* bytes; size 0: not known */
};

/* There are at most so many types, 0: not BTF of this machine */
uint32_t btf_room(const uint8_t *data, size_t length);
/* `index` has room for 2 * btf_room() + 1 numbers; false: not BTF */
bool btf_open(struct btf *btf, const uint8_t *data, size_t length,
              uint32_t *index);
/* That of a module: numbers of types, and offsets of strings, continue those
 * of the kernel's, which stays open */
bool btf_open_module(struct btf *btf, struct btf *base, const uint8_t *data,
                     size_t length, uint32_t *index);
/* Bytes of a structure, 0: there is none of that name */
uint32_t btf_size(struct btf *btf, const char *structure);
/* A member, also of an anonymous part of the structure */
bool btf_member(struct btf *btf, const char *structure,
                const char *member, struct btf_member *found);
/* The value of a constant of the enumeration */
bool btf_constant(struct btf *btf, const char *enumeration,
                  const char *constant, int32_t *value);

#endif

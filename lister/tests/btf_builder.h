/* SPDX-License-Identifier: Apache-2.0 */
/* Makes BTF, type by type */
#ifndef BTF_BUILDER_H
#define BTF_BUILDER_H

#include <stdint.h>
#include <string.h>

struct builder {
    uint8_t types[16384], strings[8192], data[32768];
    uint32_t types_length, strings_length, count, length;
    uint32_t strings_before;            /* of the BTF that it continues */
};

static inline void builder_init(struct builder *b)
{
    memset(b, 0, sizeof(*b));
    b->strings_length = 1;
}

/* That of a module */
static inline void builder_continue(struct builder *b,
                                    const struct builder *base)
{
    memset(b, 0, sizeof(*b));
    b->count = base->count;
    b->strings_before = base->strings_length;
}

static inline void put32(struct builder *b, uint32_t value)
{
    memcpy(b->types + b->types_length, &value, 4);
    b->types_length += 4;
}

static inline uint32_t name(struct builder *b, const char *text)
{
    uint32_t at = b->strings_length;

    if (!text) {
        return 0;
    }
    strcpy((char *)b->strings + at, text);
    b->strings_length += strlen(text) + 1;
    return b->strings_before + at;
}

/* Returns the type's number; what belongs to it follows with put32(). */
static inline uint32_t type(struct builder *b, unsigned kind, const char *text,
                            unsigned parts, uint32_t size)
{
    put32(b, name(b, text));
    put32(b, kind << 24 | parts);
    put32(b, size);
    return ++b->count;
}

static inline void member_of(struct builder *b, const char *text, uint32_t of,
                             uint32_t offset)
{
    put32(b, name(b, text));
    put32(b, of);
    put32(b, offset * 8);
}

static inline void constant(struct builder *b, const char *text, int32_t value)
{
    put32(b, name(b, text));
    put32(b, value);
}

static inline void finish(struct builder *b)
{
    const uint32_t header[] = {
        0x0001eb9f, 24, 0, b->types_length, b->types_length,
        b->strings_length,
    };

    memcpy(b->data, header, 24);
    memcpy(b->data + 24, b->types, b->types_length);
    memcpy(b->data + 24 + b->types_length, b->strings, b->strings_length);
    b->length = 24 + b->types_length + b->strings_length;
}

enum { B_INT = 1, B_POINTER, B_ARRAY, B_STRUCT, B_UNION, B_ENUM,
       B_TYPEDEF = 8, B_VOLATILE, B_CONST };

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "btf.h"

#include <string.h>

#include "bytes.h"

#define MAGIC 0xeb9f
#define HEADER_LEN 24
#define TYPE_LEN 12
#define MAX_DEPTH 16

enum kind {
    INT = 1, POINTER, ARRAY, STRUCT, UNION, ENUM, FORWARD, TYPEDEF, VOLATILE,
    CONST, RESTRICT, FUNCTION, PROTOTYPE, VARIABLE, SECTION, FLOAT, DECL_TAG,
    TYPE_TAG, ENUM64, KINDS
};

/* What follows a type: fixed bytes, and bytes for each of its parts */
static const struct { uint8_t fixed, each; } extra[KINDS] = {
    [INT] = { 4, 0 }, [ARRAY] = { 12, 0 }, [STRUCT] = { 0, 12 },
    [UNION] = { 0, 12 }, [ENUM] = { 0, 8 }, [PROTOTYPE] = { 0, 8 },
    [VARIABLE] = { 4, 0 }, [SECTION] = { 0, 12 }, [DECL_TAG] = { 4, 0 },
    [ENUM64] = { 0, 12 },
};

static unsigned kind_of(const uint8_t *type)
{
    return u32(type + 4) >> 24 & 0x1f;
}

static unsigned parts_of(const uint8_t *type)
{
    return u32(type + 4) & 0xffff;
}

/* Length of the type that begins there, 0: it does not end in time */
static uint32_t length_of(const uint8_t *type, uint32_t left)
{
    uint64_t length;
    unsigned kind;

    if (left < TYPE_LEN) {
        return 0;
    }
    kind = kind_of(type);
    if (kind == 0 || kind >= KINDS) {
        return 0;
    }
    length = TYPE_LEN + extra[kind].fixed +
             (uint64_t)extra[kind].each * parts_of(type);
    return length <= left ? length : 0;
}

static bool header(struct btf *btf, const uint8_t *data, size_t length)
{
    uint16_t magic;
    uint32_t at;

    if (length < HEADER_LEN || length > UINT32_MAX) {
        return false;
    }
    memcpy(&magic, data, 2);
    at = u32(data + 4);
    if (magic != MAGIC || data[2] != 1 || at < HEADER_LEN || at > length) {
        return false;
    }
    length -= at;
    btf->types_length = u32(data + 12);
    btf->strings_length = u32(data + 20);
    if (u32(data + 8) > length || btf->types_length > length - u32(data + 8) ||
        u32(data + 16) > length ||
        btf->strings_length > length - u32(data + 16) ||
        !btf->strings_length) {
        return false;
    }
    btf->types = data + at + u32(data + 8);
    btf->strings = data + at + u32(data + 16);
    /* So that every string ends. */
    return !btf->strings[btf->strings_length - 1];
}

uint32_t btf_room(const uint8_t *data, size_t length)
{
    struct btf btf;

    return header(&btf, data, length) ? btf.types_length / TYPE_LEN : 0;
}

bool btf_open(struct btf *btf, const uint8_t *data, size_t length,
              uint32_t *index)
{
    if (!header(btf, data, length)) {
        return false;
    }
    btf->base = NULL;
    btf->next = btf->count = btf->named = 0;
    btf->index = index;
    btf->names = index + btf->types_length / TYPE_LEN + 1;
    index[0] = 0;
    return true;
}

/* Looks at one more type.  False: there is none, or it is malformed. */
static bool extend(struct btf *btf)
{
    const uint8_t *type = btf->types + btf->next;
    uint32_t bytes = length_of(type, btf->types_length - btf->next);

    if (!bytes) {
        return false;
    }
    btf->index[++btf->count] = btf->next;
    if (u32(type) && (kind_of(type) == STRUCT || kind_of(type) == ENUM)) {
        btf->names[btf->named++] = btf->next;
    }
    btf->next += bytes;
    return true;
}

bool btf_open_module(struct btf *btf, struct btf *base, const uint8_t *data,
                     size_t length, uint32_t *index)
{
    /* Its numbers begin behind the last one of the kernel's. */
    while (extend(base)) {
    }
    if (base->next != base->types_length ||
        !btf_open(btf, data, length, index)) {
        return false;
    }
    btf->base = base;
    return true;
}

static const uint8_t *type_of(struct btf *btf, uint32_t id)
{
    if (btf->base) {
        if (id <= btf->base->count) {
            return type_of(btf->base, id);
        }
        id -= btf->base->count;
    }
    while (id > btf->count) {
        if (!extend(btf)) {
            return NULL;
        }
    }
    return id ? btf->types + btf->index[id] : NULL;
}

static bool is_named(struct btf *btf, uint32_t name, const char *wanted)
{
    if (btf->base) {
        if (name < btf->base->strings_length) {
            return is_named(btf->base, name, wanted);
        }
        name -= btf->base->strings_length;
    }
    return name < btf->strings_length &&
           !strcmp((const char *)btf->strings + name, wanted);
}

static const uint8_t *find(struct btf *btf, unsigned kind, const char *name)
{
    for (uint32_t i = 0;; i++) {
        const uint8_t *type;

        while (i == btf->named) {
            if (!extend(btf)) {
                return btf->base ? find(btf->base, kind, name) : NULL;
            }
        }
        type = btf->types + btf->names[i];
        if (kind_of(type) == kind && is_named(btf, u32(type), name)) {
            return type;
        }
    }
}

uint32_t btf_size(struct btf *btf, const char *structure)
{
    const uint8_t *type = find(btf, STRUCT, structure);

    return type ? u32(type + 8) : 0;
}

/* Past what only qualifies a type */
static const uint8_t *resolve(struct btf *btf, uint32_t id)
{
    const uint8_t *type = type_of(btf, id);

    for (int depth = 0; type && depth < MAX_DEPTH; depth++) {
        switch (kind_of(type)) {
        case TYPEDEF:
        case VOLATILE:
        case CONST:
        case RESTRICT:
        case TYPE_TAG:
            type = type_of(btf, u32(type + 8));
            break;
        default:
            return type;
        }
    }
    return NULL;
}

static uint32_t bytes_of(const uint8_t *type)
{
    if (!type) {
        return 0;
    }
    switch (kind_of(type)) {
    case INT:
    case STRUCT:
    case UNION:
    case ENUM:
        return u32(type + 8);
    case POINTER:
        return sizeof(void *);
    default:
        return 0;
    }
}

static bool member(struct btf *btf, const uint8_t *type,
                   const char *wanted, int depth, struct btf_member *found)
{
    bool has_widths = u32(type + 4) >> 31;
    const uint8_t *part = type + TYPE_LEN;

    for (unsigned i = parts_of(type); i; i--, part += 12) {
        uint32_t bits = u32(part + 8);
        const uint8_t *inner = resolve(btf, u32(part + 4));

        if (has_widths) {
            if (bits >> 24) {
                continue;       /* a bit field */
            }
            bits &= 0xffffff;
        }
        if (is_named(btf, u32(part), wanted)) {
            found->offset = bits / 8;
            found->size = bytes_of(inner);
            return true;
        }
        if (u32(part) == 0 && inner && depth < MAX_DEPTH &&
            (kind_of(inner) == STRUCT || kind_of(inner) == UNION) &&
            member(btf, inner, wanted, depth + 1, found)) {
            found->offset += bits / 8;
            return true;
        }
    }
    return false;
}

bool btf_member(struct btf *btf, const char *structure,
                const char *wanted, struct btf_member *found)
{
    const uint8_t *type = find(btf, STRUCT, structure);

    return type && member(btf, type, wanted, 0, found);
}

bool btf_constant(struct btf *btf, const char *enumeration,
                  const char *constant, int32_t *value)
{
    const uint8_t *type = find(btf, ENUM, enumeration), *part;

    if (!type) {
        return false;
    }
    part = type + TYPE_LEN;
    for (unsigned i = parts_of(type); i; i--, part += 8) {
        if (is_named(btf, u32(part), constant)) {
            *value = (int32_t)u32(part + 4);
            return true;
        }
    }
    return false;
}

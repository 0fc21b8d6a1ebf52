/* SPDX-License-Identifier: Apache-2.0 */
#include "test.h"
#include "btf.h"
#include "btf_builder.h"

#define TEST_GROUP "btf"

static struct builder b;
static uint32_t index_room[8192];

/* As the kernel's: a union without a name in a structure, a typedef */
static void build(void)
{
    uint32_t number, alias, inner, outer;

    builder_init(&b);
    number = type(&b, B_INT, "unsigned long", 0, 8);
    put32(&b, 64);
    alias = type(&b, B_TYPEDEF, "flags_t", 0, number);
    /* Refers to a type that comes later */
    outer = type(&b, B_UNION, NULL, 2, 24);
    inner = outer + 1;
    member_of(&b, NULL, inner, 0);
    member_of(&b, "compound_head", number, 0);
    type(&b, B_STRUCT, NULL, 2, 24);
    member_of(&b, "lru", number, 0);
    member_of(&b, "mapping", number, 16);
    type(&b, B_STRUCT, "page", 2, 64);
    member_of(&b, "flags", alias, 0);
    member_of(&b, NULL, outer, 8);
    type(&b, B_ENUM, "pageflags", 2, 4);
    constant(&b, "PG_locked", 0);
    constant(&b, "PG_dirty", 4);
    finish(&b);
}

static bool opened(struct btf *btf)
{
    return btf_room(b.data, b.length) <= 4000 &&
           btf_open(btf, b.data, b.length, index_room);
}

static void members(void)
{
    struct btf_member m;
    struct btf btf;

    build();
    CHECK(opened(&btf));
    CHECK(btf_size(&btf, "page") == 64);
    CHECK(btf_member(&btf, "page", "flags", &m) && m.offset == 0 &&
          m.size == 8);
    CHECK(btf_member(&btf, "page", "compound_head", &m) && m.offset == 8);
    CHECK(btf_member(&btf, "page", "mapping", &m) && m.offset == 24);
    CHECK(!btf_member(&btf, "page", "mappin", &m));
    CHECK(!btf_member(&btf, "pag", "mapping", &m));
    CHECK(!btf_size(&btf, "pageflags"));
}

static void constants(void)
{
    int32_t value = -1;
    struct btf btf;

    build();
    CHECK(opened(&btf));
    CHECK(btf_constant(&btf, "pageflags", "PG_dirty", &value) && value == 4);
    CHECK(!btf_constant(&btf, "pageflags", "PG_lru", &value));
    CHECK(!btf_constant(&btf, "page", "PG_dirty", &value));
}

/* Types that contain each other must not be followed for ever. */
static void circles(void)
{
    struct btf_member m;
    struct btf btf;

    builder_init(&b);
    type(&b, B_STRUCT, "page", 2, 8);
    member_of(&b, NULL, 2, 0);
    member_of(&b, NULL, 3, 0);
    type(&b, B_UNION, NULL, 1, 8);
    member_of(&b, NULL, 2, 0);
    type(&b, B_TYPEDEF, "t", 0, 3);
    finish(&b);
    CHECK(opened(&btf));
    CHECK(!btf_member(&btf, "page", "x", &m));
}

static struct builder m;
static uint32_t module_room[8192];

/* Of a module: a structure with one of the kernel's in it */
static void build_module(void)
{
    uint32_t own;

    build();
    builder_continue(&m, &b);
    own = type(&m, B_STRUCT, "own", 2, 24);
    member_of(&m, "key", 1, 0);
    member_of(&m, "id", 2, 16);
    type(&m, B_STRUCT, "outer", 3, 120);
    member_of(&m, "page", 5, 8);
    member_of(&m, "own", own, 72);
    /* Without a name: their members count as the structure's. */
    member_of(&m, NULL, own, 96);
    finish(&m);
}

static bool opened_module(struct btf *btf, struct btf *base,
                          const uint8_t *data, size_t length)
{
    return opened(base) && btf_room(data, length) <= 4000 &&
           btf_open_module(btf, base, data, length, module_room);
}

static void modules(void)
{
    struct btf_member found;
    struct btf base, btf;
    int32_t value;

    build_module();
    CHECK(opened_module(&btf, &base, m.data, m.length));
    CHECK(btf_size(&btf, "own") == 24 && btf_size(&btf, "outer") == 120);
    CHECK(btf_member(&btf, "outer", "page", &found) && found.offset == 8 &&
          found.size == 64);
    CHECK(btf_member(&btf, "outer", "own", &found) && found.offset == 72 &&
          found.size == 24);
    CHECK(btf_member(&btf, "outer", "id", &found) && found.offset == 112 &&
          found.size == 8);
    /* What only the kernel has */
    CHECK(btf_member(&btf, "page", "mapping", &found) && found.offset == 24);
    CHECK(btf_constant(&btf, "pageflags", "PG_dirty", &value) && value == 4);
    CHECK(!btf_size(&btf, "none") && !btf_size(&base, "own"));
}

static void malformed_modules(void)
{
    static uint8_t copy[sizeof(m.data)], kernel[sizeof(b.data)];
    struct btf_member found;
    struct btf base, btf;

    build_module();
    memcpy(kernel, b.data, sizeof(kernel));
    for (uint32_t cut = 0; cut < m.length; cut++) {
        CHECK(!opened_module(&btf, &base, m.data, cut));
    }
    for (int round = 0; round < 20000; round++) {
        memcpy(copy, m.data, m.length);
        memcpy(b.data, kernel, sizeof(kernel));
        for (uint64_t n = below(4) + 1; n; n--) {
            if (below(2)) {
                copy[below(m.length)] = rnd();
            } else {
                b.data[below(b.length)] = rnd();
            }
        }
        if (opened_module(&btf, &base, copy, m.length)) {
            btf_size(&btf, "own");
            btf_member(&btf, "outer", "page", &found);
            btf_member(&btf, "outer", "id", &found);
            btf_member(&btf, "outer", "none", &found);
        }
    }
}

static void look(void)
{
    struct btf_member m;
    int32_t value;
    struct btf btf;

    if (opened(&btf)) {
        btf_size(&btf, "page");
        btf_member(&btf, "page", "mapping", &m);
        btf_member(&btf, "page", "none", &m);
        btf_constant(&btf, "pageflags", "PG_none", &value);
    }
}

/* Cut off, and damaged: it ends, and nothing beyond the end is read. */
static void malformed(void)
{
    static uint8_t good[sizeof(b.data)];
    uint32_t length;

    build();
    length = b.length;
    memcpy(good, b.data, sizeof(good));
    for (uint32_t cut = 0; cut < length; cut++) {
        uint8_t *copy = malloc(cut ? cut : 1);
        struct btf btf;

        memcpy(copy, good, cut);
        CHECK(!btf_open(&btf, copy, cut, index_room));
        free(copy);
    }
    for (int round = 0; round < 20000; round++) {
        memcpy(b.data, good, length);
        for (uint64_t n = below(4) + 1; n; n--) {
            b.data[below(length)] = rnd();
        }
        look();
    }
}

int main(void)
{
    RUN(members);
    RUN(constants);
    RUN(circles);
    RUN(malformed);
    RUN(modules);
    RUN(malformed_modules);
    return test_status;
}

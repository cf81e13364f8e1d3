/* SPDX-License-Identifier: MIT */
/* Parses images: see parsed.h. */
#include "parsed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/CUnit.h>

struct parsed parse_build(struct build *b, unsigned flags)
{
    struct parsed p = {0};
    struct err e = {0};
    p.image = build_finish(b, &p.size);
    struct source s = source_mem(p.image, p.size);
    if (gguf_parse(&s, flags, &p.g, &e) < 0)
        (void)puts(e.msg);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p.g);
    CU_ASSERT_EQUAL(p.g->file_size, p.size);
    CU_ASSERT_EQUAL(memcmp(p.g->head, p.image, (size_t)p.g->head_len), 0);
    return p;
}

struct gguf *gguf_in(const void *bytes, size_t n)
{
    struct source s = source_mem(bytes, n);
    struct gguf *g = NULL;
    struct err e = {0};
    if (gguf_parse(&s, 0, &g, &e) < 0)
        (void)puts(e.msg);
    CU_ASSERT_PTR_NOT_NULL_FATAL(g);
    return g;
}

struct gguf *gguf_of(struct build *b)
{
    struct parsed p = parse_build(b, 0);
    free(p.image);
    return p.g;
}

void parsed_free(struct parsed *p)
{
    gguf_free(p->g);
    free(p->image);
    *p = (struct parsed){0};
}

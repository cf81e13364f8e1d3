/* SPDX-License-Identifier: MIT */
/*
 * A built image and its parsed form, for tests that expect parsing to succeed.
 *
 *     struct parsed p = parse_build(&b, 0);    asserts (fatally) that it parses
 *     ... p.g, p.image ...
 *     parsed_free(&p);
 */
#ifndef TESTS_LIB_PARSED_H
#define TESTS_LIB_PARSED_H

#include "build_gguf.h"
#include "gguf/gguf.h"

struct parsed {
    uint8_t *image; /* owned */
    size_t size;    /* size of the image in bytes */
    struct gguf *g; /* owned; does not need the image */
};

/* Finish the build, and parse it with the flags of gguf_parse(). */
struct parsed parse_build(struct build *b, unsigned flags);
void parsed_free(struct parsed *p);
/* The parsed form alone: of a build; of n bytes. */
struct gguf *gguf_of(struct build *b);
struct gguf *gguf_in(const void *bytes, size_t n);

#endif

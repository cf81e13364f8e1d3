/* SPDX-License-Identifier: MIT */
/*
 * A cursor over the header of a file while it is parsed: the bytes from the file's start up to the
 * parser's place, loaded on the way, never more than the file has.
 *
 * Everything that the parser reads goes through cursor_need(), which fails if the file ends first.
 * So no length from the file is believed before its bytes are loaded. Pointers into the bytes are
 * valid until the next cursor_need(): keep offsets instead.
 *
 * Private to the gguf layer.
 */
#ifndef GGUF_CURSOR_H
#define GGUF_CURSOR_H

#include <errno.h>

#include "base/bytes.h"
#include "gguf/gguf.h"

struct cursor {
    const struct source *src;
    struct gguf_format fmt;
    uint8_t *bytes; /* owned: bytes [0, have) of the file */
    bool given;     /* bytes are the caller's, and all that is needed: never reallocated */
    uint64_t have;
    uint64_t cap;
    uint64_t pos;      /* the next byte to parse */
    uint64_t strings;  /* strings seen ... */
    uint64_t nul_ends; /* ... and how many of them end with a counted NUL */
    /* What is being parsed, for error lines: "key 3 'general.name'". */
    const char *item; /* "key", "tensor", or NULL: the file's header */
    uint64_t item_no;
    uint64_t name_off; /* of its name, once known (name_len > 0) */
    uint64_t name_len;
    struct err *err;
    gguf_fault_fn *fault; /* NULL: the first fault ends it */
    void *fault_arg;
};

/* Fail: "key 3 'x': FIELD at byte AT: reason". Returns code. */
int cursor_fail(const struct cursor *c, int code, const char *field, uint64_t at, const char *fmt,
                ...) __attribute__((format(printf, 5, 6)));

/*
 * A fault after which the rest can still be read. Like cursor_fail(), but if faults are collected
 * it is reported, and the result is 0: the caller continues with a substitute.
 */
int cursor_fault(const struct cursor *c, int code, const char *field, uint64_t at, const char *fmt,
                 ...) __attribute__((format(printf, 5, 6)));

/* Follows the reason of a fault that a truncated file would show too. */
#define CURSOR_CUT " (an incomplete download?)"

/* Load the rest of the n bytes at pos: the slow half of cursor_need(). */
int cursor_load(struct cursor *c, uint64_t n, const char *field);

static inline uint64_t cursor_left(const struct cursor *c)
{
    return c->src->size - c->pos;
}

/* Make sure that n bytes at pos are loaded. 0, -EBADMSG (the file ends), -EFBIG, -ENOMEM, -EIO. */
static inline int cursor_need(struct cursor *c, uint64_t n, const char *field)
{
    return n <= c->have - c->pos ? 0 : cursor_load(c, n, field);
}

/* An unsigned number of `width` bytes. */
static inline int cursor_uint(struct cursor *c, size_t width, const char *field, uint64_t *ret)
{
    int r = cursor_need(c, width, field);
    if (r < 0)
        return r;
    *ret = get_uint(c->bytes + c->pos, width, c->fmt.big);
    c->pos += width;
    return 0;
}

/* A string: *off and *len describe its bytes, including a counted NUL. */
int cursor_string(struct cursor *c, const char *field, uint64_t *off, uint64_t *len);

#endif

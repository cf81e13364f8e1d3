/* SPDX-License-Identifier: MIT */
/*
 * Growable byte buffers with a sticky error, and the cleanup attribute.
 *
 * A writer appends without checking each result and calls buf_error() once at the end. In measure
 * mode nothing is stored and only `len` advances, so the code that writes text also measures it,
 * and the two cannot disagree.
 *
 *     CLEANUP(buf_free) struct buf b = BUF_INIT;      struct buf m = BUF_MEASURE;
 *     buf_printf(&b, "%u\n", n);                      buf_printf(&m, "%u\n", n);
 *     if (buf_error(&b)) return buf_error(&b);        size = m.len;
 *
 * A buf belongs to one thread at a time.
 */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Run fn(&variable) when the variable goes out of scope. */
#define CLEANUP(fn) __attribute__((unused, cleanup(fn)))

struct buf {
    uint8_t *data; /* owned; not NUL-terminated */
    size_t len;    /* bytes written (or counted) */
    size_t cap;    /* bytes allocated */
    int err;       /* 0, or the first -errno: -ENOMEM, or -EOVERFLOW in measure mode */
    bool measure;  /* count only */
};

#define BUF_INIT ((struct buf){0})
#define BUF_MEASURE ((struct buf){.measure = true})

/* Add n uninitialised bytes. Returns their address, or NULL in measure mode or on error. */
uint8_t *buf_extend(struct buf *b, size_t n);
void buf_add(struct buf *b, const void *p, size_t n);
void buf_char(struct buf *b, char c);
void buf_str(struct buf *b, const char *s);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_uint(struct buf *b, uint64_t v, size_t width, bool big);
void buf_zero(struct buf *b, size_t n);

static inline int buf_error(const struct buf *b)
{
    return b->err;
}

/* Return the bytes as text, not NUL-terminated; the second function returns the end of the text.
 * Both return NULL if the buf is empty. */
static inline const char *buf_text(const struct buf *b)
{
    return (const char *)b->data;
}

static inline const char *buf_text_end(const struct buf *b)
{
    return b->data ? (const char *)b->data + b->len : NULL;
}

/*
 * Print `lines`, whose cells are separated by tabs, as aligned columns two blanks apart. sides[i]
 * aligns column i: 'l' or 'r'. A cell longer than `most` pushes the rest of its line to the right,
 * as does the last cell of a line with fewer cells than `sides`. An error in `lines` is passed on
 * to `out`.
 */
void buf_table(const struct buf *lines, const char *sides, size_t most, struct buf *out);

/* Return the bytes, which the caller frees, and make the buf empty. */
uint8_t *buf_steal(struct buf *b);
void buf_free(struct buf *b);

/*
 * Make room for element number n in an allocated array, whose capacity at least doubles when it
 * grows. `array` is the address of the pointer to it, *cap its capacity in elements of `size`
 * bytes. Returns 0, or -ENOMEM with nothing changed.
 */
int array_grow(void *array, size_t *cap, size_t n, size_t size);

#endif

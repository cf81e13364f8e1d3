/* SPDX-License-Identifier: MIT */
/*
 * A tensor's values as a stream of bytes in one form, whatever its type: little-endian float32 and
 * the 16-bit floats, or the stored elements themselves in little-endian order.
 *
 * Values are decoded from the mapping under map_guard(), only the blocks that a range touches. The
 * file's size is checked afterwards, because a page beyond the end of a truncated file reads as
 * zeros without a signal.
 *
 * Threads: any; everything is constant.
 */
#ifndef MODEL_FORM_H
#define MODEL_FORM_H

#include "model/store.h"

struct form {
    unsigned width;    /* bytes of a value; 0: the width of an element of the tensor's type */
    uint32_t same;     /* the ggml type whose little-endian data already has this form */
    const char *descr; /* NumPy's name for it; NULL: it has none */
    void (*read)(const struct quant_type *t, bool big, const uint8_t *data, uint64_t off, size_t n,
                 void *dst);
};

extern const struct form form_f32, form_f16, form_bf16;
/* For types with one element per block (floats and integers): the elements as stored, but little-endian. */
extern const struct form form_stored;

/* False if the stored bytes already have this form. */
bool form_decodes(const struct form *f, const struct gguf *g, const struct gguf_tensor *t);
/* Bytes of all values of a tensor. */
uint64_t form_size(const struct form *f, const struct gguf_tensor *t);
/*
 * Read bytes [off, off + n) of the values of tensor i, within form_size(), into dst. The caller has checked
 * quant_has_values(). 0, -EIO (the file was truncated, or lacks these bytes).
 */
int form_read(const struct form *f, const struct gguf *g, const struct store *s, uint32_t i,
              uint64_t off, void *dst, size_t n);
#endif

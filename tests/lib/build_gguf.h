/* SPDX-License-Identifier: MIT */
/*
 * Builds valid GGUF images in memory; tests patch these to obtain invalid images.
 *
 *     struct build b = build_of(3, false);         version, byte order
 *     build_text(&b, "general.name=x|a.tags:array=string[one,two]|>t F32 4");
 *     uint8_t *image = build_finish(&b, &size);    free() it; b is empty again
 *
 * Keys and tensors keep the order of the calls; adding keys and adding tensors may alternate. The
 * layout is regular unless build_tensor_at() is used. If memory runs out, the test program aborts.
 */
#ifndef TESTS_LIB_BUILD_GGUF_H
#define TESTS_LIB_BUILD_GGUF_H

#include "base/buf.h"
#include "gguf/gguf.h"
#include "gguf/value.h"

enum { BUILD_MAX_TENSORS = 64 };

struct build {
    struct gguf_format fmt;         /* nul may be set later */
    uint64_t alignment;             /* 32, or 64 in the first draft; adds no alignment key */
    uint8_t pad_byte;               /* value of the bytes in gaps and padding; 0 by default */
    bool no_tail;                   /* omit the padding after the last byte of data */
    struct buf keys;                /* the keys' entries */
    struct buf infos;               /* the tensor infos, with offsets relative to the data */
    struct buf data;                /* the data section */
    size_t word[BUILD_MAX_TENSORS]; /* positions of the offset words in infos */
    uint64_t n_kv;
    uint64_t n_tensors;
    size_t value_len_at; /* draft: position in keys of the last value's length; 0: none */
};

struct build build_of(uint8_t version, bool big);
/* Begin an image in the first draft of version 1: value lengths, element counts, padded keys,
 * alignment 64. */
struct build build_draft(void);

/*
 * Add what is described, separated by '|':
 *     KEY=TEXT              a string; in both, ^ is a NUL
 *     KEY:TYPE=VALUE        a number, by its bits; an array, as u8[1,2] or array[u8[],string[a,b]]
 *     >NAME TYPE DIMENSIONS [BYTES [OFFSET]]     a tensor, as below, of a named type or with an id;
 *                           4x2: the fastest first; -: a scalar; BYTES: if not those of the type
 */
void build_text(struct build *b, const char *text);
/* Write such a value, which ends at any of the bytes in `ends`. Returns the end. */
const char *build_value(struct buf *to, const struct gguf_format *fmt, uint32_t type,
                        const char *text, const char *ends);
/* Return the type whose name is at *text, and move *text behind it. */
uint32_t build_type(const char **text);

/* Add a key whose value is n bytes in file format. */
void build_raw(struct build *b, const void *key, size_t key_len, uint32_t type, const void *value,
               size_t n);
/* Add a number of any fixed-width type, given by its bits. */
void build_num(struct build *b, const char *key, enum gguf_value_type type, uint64_t bits);
void build_u32(struct build *b, const char *key, uint32_t v);
void build_f32(struct build *b, const char *key, float v);
void build_str(struct build *b, const char *key, const char *text);
void build_str_n(struct build *b, const char *key, const void *text, size_t n);

/* Add an array of `count` elements, which the caller then appends (build_item_array nests
 * arrays). */
void build_array(struct build *b, const char *key, enum gguf_value_type elem, uint64_t count);
void build_item_num(struct build *b, enum gguf_value_type type, uint64_t bits);
void build_item_str(struct build *b, const char *text);
void build_item_array(struct build *b, enum gguf_value_type elem, uint64_t count);

/* Add a tensor with ggml's type id and n bytes of data (NULL: bytes derived from the tensor's
 * number) at the next aligned offset. The fastest dimension comes first. In version 1 the id is
 * written unchanged. */
void build_tensor(struct build *b, const char *name, uint32_t type_id, const uint64_t *dims,
                  uint32_t n_dims, const void *data, size_t n);
/* Add a tensor at a given offset from the beginning of the data. */
void build_tensor_at(struct build *b, const char *name, uint32_t type_id, const uint64_t *dims,
                     uint32_t n_dims, uint64_t off, const void *data, size_t n);

/* Return the image, which the caller owns. */
uint8_t *build_finish(struct build *b, size_t *size);

/* A built image and its parsed form. Bytes that cannot be parsed end the test program. */
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

/* CLEANUP(gguf_drop) struct gguf *g: frees it. */
void gguf_drop(struct gguf **g);

#endif

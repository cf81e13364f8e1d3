/* SPDX-License-Identifier: MIT */
/*
 * One state of a history as a file: a record, the model's path, and the keys as a GGUF image
 * without tensors, which the parser of models reads.
 *
 * All numbers of the record are little-endian.
 *
 *      0  "GGUFSHS2"
 *      8  u64 number                16  u64 number of the state that an undo restored; 0: an edit
 *     24  i64 begin of the first edit, 32  end of the last one: seconds since 1970
 *     40  u64 before   the identity of the keys kept here (edit_keys_id())
 *     48  u64 landed   of the keys after the last edit that is known to be in the file
 *     56  u64 planned  of the keys after the edit that was being written; else as landed
 *     64  u32 flags    1: closed, no further edit joins it
 *     68  u32 bytes of the path     72  u64 bytes of the image
 *     80  u64 sum of the path and of the image's first 24 bytes
 *         zeros
 *    504  u64 sum of the record up to here
 *    512  path, image
 *
 * The record is one sector and rewritten in place; the rest never changes. Landed and planned are
 * two, so that after a crash at any moment of an edit one of them fits the model.
 *
 * Nothing in the file is trusted: sums, sizes and the path are checked, then the image is parsed,
 * and its keys must have the identity `before`: that is their sum.
 * Private to the edit layer, and to the tests of it.
 */
#ifndef EDIT_HISTORY_STATE_H
#define EDIT_HISTORY_STATE_H

#include <stdbool.h>

#include "base/buf.h"
#include "gguf/gguf.h"

#define HISTORY_RECORD 512

struct history_record {
    uint64_t number;
    uint64_t restored; /* of an undo: the state that it went back to; 0: an edit */
    int64_t begin, end;
    uint64_t before, landed, planned;
    bool closed;
    /* Of the rest of the file: */
    uint32_t path_len;
    uint64_t image_len;
    uint64_t sum; /* history_sum() */
};

/* True if no edit after this state is known to be in the file. */
static inline bool history_is_void(const struct history_record *r)
{
    return r->landed == r->before;
}

/*
 * What the file of a new state begins with: room for the record, the path, and the image up to its
 * first key. Sets path_len, image_len and sum. The keys follow (history_run()). 0, -ENOMEM.
 */
int history_head(struct history_record *r, const char *path, const struct gguf *g, struct buf *ret);
/*
 * The keys of the image, which are bytes of the model's head: the next run of them, from key *at on,
 * which is moved behind it. False: there are no more.
 */
bool history_run(const struct gguf *g, uint32_t *at, const uint8_t **bytes, size_t *n);

/* Of path and image, n bytes in all. */
uint64_t history_sum(const void *bytes, size_t n, size_t path_len);

void history_record_put(const struct history_record *r, uint8_t dst[HISTORY_RECORD]);
/* 0, -EBADMSG. */
int history_record_get(const uint8_t src[HISTORY_RECORD], struct history_record *ret,
                       struct err *e);

/*
 * A whole file in memory: its record, and the keys, parsed, the caller's. path: the model that it
 * has to be of. 0, -EBADMSG, -ESTALE (of another model), -ENOMEM.
 */
int history_parse(const void *bytes, size_t n, const char *path, struct history_record *ret,
                  struct gguf **keys, struct err *e);

#endif

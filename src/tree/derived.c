/* SPDX-License-Identifier: MIT */
/*
 * Files that are computed of tensors when they are read: see files.h, derive/work.h. Their sizes are
 * known before. part_*() are those in a tensor's folder, lines_*() those at the root with a line per
 * tensor; row->what says which.
 */
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "derive/lines.h"
#include "derive/picture.h"
#include "derive/stats.h"
#include "tree/files.h"

/* ---- of a tensor ---- */

uint64_t part_size(const struct view *v, const struct row *row, const struct gguf_tensor *t)
{
    if (row->what == DERIVED_SHA256)
        return DIGEST_HEX + 1;
    if (row->what == DERIVED_STATS)
        return STATS_TEXT;
    struct picture p = picture_of(v->snap->gguf, t);
    return picture_size(&p);
}

static int hash_read(const struct view *v, uint32_t i, uint64_t off, size_t n, struct reply *r)
{
    uint8_t hash[DIGEST_BYTES];
    char line[DIGEST_HEX + 1];
    if (!work_sha256(r->work, v, i, hash))
        return -EAGAIN;
    digest_hex(hash, line);
    line[DIGEST_HEX] = '\n';
    reply_copy(r, line + off, n);
    return 0;
}

int part_read(const struct view *v, const struct row *row, const struct gguf_tensor *t,
              uint64_t off, size_t n, struct reply *r)
{
    uint32_t i = snapshot_tensor_no(v->snap, t);
    if (row->what == DERIVED_SHA256)
        return hash_read(v, i, off, n, r);
    struct blob *b = work_blob(r->work, v, i, row->what);
    if (!b)
        return -EAGAIN;
    reply_copy(r, b->bytes.data + off, n);
    blob_unref(b);
    return 0;
}

void part_need(const struct view *v, const struct row *row, const struct gguf_tensor *t,
               uint64_t off, size_t n, struct need *ret)
{
    uint32_t i = snapshot_tensor_no(v->snap, t);
    (void)off;
    (void)n;
    *ret = (struct need){row->what, i, i + 1};
}

/* ---- of all ---- */

/* NULL: no memory. */
static const struct lines *lines_of(const struct view *v, const struct row *row)
{
    return lines_get(v->snap, row->what == DERIVED_SHA256 ? LINES_HASHES : LINES_STATS);
}

/* For want of memory it has no bytes. */
uint64_t lines_row_size(const struct view *v, const struct row *row, const struct gguf_tensor *t)
{
    const struct lines *l = lines_of(v, row);
    (void)t;
    return l ? lines_size(l, v->snap) : 0;
}

void lines_row_need(const struct view *v, const struct row *row, const struct gguf_tensor *t,
                    uint64_t off, size_t n, struct need *ret)
{
    const struct lines *l = lines_of(v, row);
    (void)t;
    *ret = (struct need){.what = row->what};
    if (l)
        lines_range(l, v->snap, off, off + n, &ret->first, &ret->last);
}

static int add_line(const struct view *v, enum derived what, uint32_t i, const struct reply *r,
                    struct buf *out)
{
    const struct gguf *g = v->snap->gguf;
    uint8_t hash[DIGEST_BYTES];
    char hex[DIGEST_HEX];
    struct moments m;
    if (what == DERIVED_SHA256) {
        if (!work_sha256(r->work, v, i, hash))
            return -EAGAIN;
        digest_hex(hash, hex);
        hashes_line(v->snap, i, hex, out);
        return 0;
    }
    bool has = work_applies(v->snap, &g->tensor[i], what);
    if (has && !work_moments(r->work, v, i, &m))
        return -EAGAIN;
    stats_line(g, &g->tensor[i], has ? &m : NULL, out);
    return 0;
}

int lines_row_read(const struct view *v, const struct row *row, const struct gguf_tensor *t,
                   uint64_t off, size_t n, struct reply *r)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT; /* the file from `at` on */
    const struct lines *l = lines_of(v, row);
    uint32_t first, last;
    int err = 0;
    (void)t;
    if (!l)
        return -ENOMEM;
    lines_range(l, v->snap, off, off + n, &first, &last);
    uint64_t at = off < l->head ? 0 : lines_begin(l, first);
    if (row->what == DERIVED_MOMENTS && at == 0)
        stats_head(&text);
    for (uint32_t i = first; i < last && err == 0; i++)
        err = add_line(v, row->what, i, r, &text);
    err = err < 0 ? err : buf_error(&text);
    if (err == 0)
        reply_copy(r, text.data + (off - at), n);
    return err;
}

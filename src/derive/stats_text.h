/* SPDX-License-Identifier: MIT */
/* Statistics as text. Threads: any. */
#ifndef DERIVE_STATS_TEXT_H
#define DERIVE_STATS_TEXT_H

#include "base/buf.h"
#include "derive/stats.h"
#include "gguf/gguf.h"

/* `stats`: always STATS_TEXT bytes. */
#define STATS_TEXT 3090
void stats_text(const struct moments *m, const struct bins *b, struct buf *out);

/*
 * `stats.tsv`: its head, and the line of a tensor; the bytes of that are known without the moments
 * (NULL: of a type without values, where fields stay empty). The last column takes what is left of
 * the line.
 */
void stats_head(struct buf *out);
size_t stats_line_size(const struct gguf *g, const struct gguf_tensor *t);
void stats_line(const struct gguf *g, const struct gguf_tensor *t, const struct moments *m,
                struct buf *out);

#endif

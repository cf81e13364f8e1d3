/* SPDX-License-Identifier: MIT */
/* The state of the mount, as `info` shows it: see state.h. */
#include "tree/state.h"

#include <errno.h>

#include "check/summary.h"
#include "tree/internal.h"

/* Counts are packed into 7 bits each: beyond COUNT_MAX they are "more than 100". */
enum { COUNT_BITS = 7, COUNT_MAX = 101, CHANGED = 1 << (2 * COUNT_BITS) };

static unsigned clamp(size_t n)
{
    return n < COUNT_MAX ? (unsigned)n : COUNT_MAX;
}

/* Keys that are edited and not yet written so, and files whose last write was refused. Under the
 * lock. */
static uint32_t counts(const struct tree *t)
{
    size_t refused = 0, removed = 0;
    const struct writer *w = &t->writer;
    for (uint32_t i = 0; t->writable && i < t->keys.n; i++) {
        const struct kfile *f = t->keys.file[i];
        refused += f && f->error && f->state != KFILE_DEAD;
        removed += f && f->state == KFILE_REMOVED;
    }
    size_t pending = t->writable ? edit_change_count(&w->next.change) + removed : 0;
    pending += w->flight ? w->flight_edits : 0;
    return clamp(pending) | clamp(refused) << COUNT_BITS;
}

uint32_t state_now(struct tree *t)
{
    (void)pthread_mutex_lock(&t->lock);
    uint32_t state = counts(t);
    struct edit_file file;
    bool idle = writer_file(t, &file);
    (void)pthread_mutex_unlock(&t->lock);
    if (!idle || edit_file_fresh(&file, NULL) != -ESTALE)
        return state;
    /* An edit of our own may have replaced the file meanwhile. */
    (void)pthread_mutex_lock(&t->lock);
    bool same = !t->writer.flight && edit_id_equal(&file.id, &t->file.id);
    (void)pthread_mutex_unlock(&t->lock);
    return state | (same ? CHANGED : 0);
}

/* "; 3 edits ARE", "; 1 edit IS", "; more than 100 edits ARE"; nothing for 0. */
static void count_text(struct buf *out, uint32_t n, const char *one, const char *many)
{
    if (n == 1)
        buf_printf(out, "; 1 %s", one);
    else if (n == COUNT_MAX)
        buf_printf(out, "; more than %d %s", COUNT_MAX - 1, many);
    else if (n)
        buf_printf(out, "; %u %s", n, many);
}

void state_text(const struct tree *t, uint32_t state, struct buf *out)
{
    const uint32_t mask = (1 << COUNT_BITS) - 1;
    buf_printf(out, "%-*s%s\n", SUMMARY_LABEL, "save a copy:",
               "cp model.gguf to a new name; onto the mounted file itself, cp would empty it");
    buf_printf(out, "%-*s%s%s", SUMMARY_LABEL,
               "mount:", t->writable ? "read-write" : "read-only: ", t->writable ? "" : t->why);
    count_text(out, state & mask, "edit is not written yet", "edits are not written yet");
    count_text(out, state >> COUNT_BITS & mask, "write was refused", "writes were refused");
    if (state & CHANGED)
        buf_str(out, "; the model's file changed behind the mount");
    buf_char(out, '\n');
}

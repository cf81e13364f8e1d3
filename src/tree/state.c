/* SPDX-License-Identifier: MIT */
/* The state of the mount, as `info` shows it: see state.h. */
#include "tree/state.h"

#include <errno.h>
#include <string.h>

#include "check/summary.h"
#include "live/unsaved.h"

/* Counts are packed into 7 bits each: beyond COUNT_MAX they are "more than 100". */
enum { COUNT_BITS = 7, COUNT_MAX = 101, CHANGED = 1 << (2 * COUNT_BITS), NAMES_AT = 24 };
/* Of a list of names so many are shown. */
enum { NAMES_MOST = 3 };

static unsigned clamp(size_t n)
{
    return n < COUNT_MAX ? (unsigned)n : COUNT_MAX;
}

uint32_t state_number(const struct live_counts *c, unsigned names)
{
    return clamp(c->pending) | clamp(c->refused) << COUNT_BITS | (c->changed ? CHANGED : 0) |
           names << NAMES_AT;
}

unsigned state_names(uint32_t state)
{
    return state >> NAMES_AT;
}

void state_list(const struct buf *notes, struct buf *out)
{
    char shown[SHOW_MAX];
    unsigned n = 0;
    for (struct note note = {0}; unsaved_next(notes, &note); n++)
        if (n < NAMES_MOST)
            buf_printf(out, "%s%s", n ? ", " : "", show(shown, note.path, strlen(note.path)));
    if (n > NAMES_MOST)
        buf_printf(out, " and %u more", n - NAMES_MOST);
}

void state_count(size_t n, const char *one, const char *many, struct buf *out)
{
    if (n >= COUNT_MAX)
        buf_printf(out, "more than %d %s", COUNT_MAX - 1, many);
    else
        buf_printf(out, "%zu %s", n, n == 1 ? one : many);
}

static void add_count(uint32_t n, const char *one, const char *many, struct buf *out)
{
    if (n == 0)
        return;
    buf_str(out, "; ");
    state_count(n, one, many, out);
}

void state_text(const char *why_not, const char *tensors, const struct imatrix *im, uint32_t state,
                const char *names, struct buf *out)
{
    const uint32_t mask = (1 << COUNT_BITS) - 1;
    if (im) {
        buf_printf(out, "%-*s", SUMMARY_LABEL, "importances:");
        buf_add(out, im->path.data, im->path.len);
        buf_printf(out, ", of %zu tensor%s\n", im->n, im->n == 1 ? "" : "s");
    }
    if (tensors)
        buf_printf(out, "%-*s%s\n", SUMMARY_LABEL, "tensors=edit:", tensors);
    buf_printf(out, "%-*s%s%s", SUMMARY_LABEL, "mount:", why_not ? "read-only: " : "read-write",
               why_not ? why_not : "");
    add_count(state & mask, "edit is not written yet", "edits are not written yet", out);
    add_count(state >> COUNT_BITS & mask, "write was refused", "writes were refused", out);
    if (names)
        buf_printf(out, " (%s)", names);
    if (state & CHANGED)
        buf_str(out, "; the model's file changed behind the mount");
    buf_char(out, '\n');
}

/* SPDX-License-Identifier: MIT */
/* The state of the mount, as `info` shows it: see state.h. */
#include "tree/state.h"

#include <errno.h>
#include <string.h>

#include "check/summary.h"
#include "live/unsaved.h"

/* Higher counts are shown as "more than 100". */
enum { COUNT_MAX = 101 };
/* The most names of a list that are shown. */
enum { NAMES_MOST = 3 };

/* "metadata/a.b, tensors/x and 3 more". */
static void add_names(const struct buf *notes, struct buf *out)
{
    char shown[SHOW_MAX];
    unsigned n = 0;
    for (struct note note = {0}; unsaved_next(notes, &note); n++)
        if (n < NAMES_MOST)
            buf_printf(out, "%s%s", n ? ", " : " (", show(shown, note.path, strlen(note.path)));
    if (n > NAMES_MOST)
        buf_printf(out, " and %u more", n - NAMES_MOST);
    buf_str(out, n ? ")" : "");
}

void state_count(size_t n, const char *one, const char *many, struct buf *out)
{
    if (n >= COUNT_MAX)
        buf_printf(out, "more than %d %s", COUNT_MAX - 1, many);
    else
        buf_printf(out, "%zu %s", n, n == 1 ? one : many);
}

static void add_count(size_t n, const char *one, const char *many, struct buf *out)
{
    if (n == 0)
        return;
    buf_str(out, "; ");
    state_count(n, one, many, out);
}

void state_text(const char *why_not, const char *tensors, const struct imatrix *im,
                const struct live_counts *c, const struct buf *notes, struct buf *out)
{
    if (im) {
        buf_printf(out, "%-*s", SUMMARY_LABEL, "importances:");
        buf_add(out, im->path.data, im->path.len);
        buf_printf(out, ", of %zu tensor%s\n", im->n, im->n == 1 ? "" : "s");
    }
    if (tensors)
        buf_printf(out, "%-*s%s\n", SUMMARY_LABEL, "tensors=edit:", tensors);
    buf_printf(out, "%-*s%s%s", SUMMARY_LABEL, "mount:", why_not ? "read-only: " : "read-write",
               why_not ? why_not : "");
    add_count(c->pending, "edit is not written yet", "edits are not written yet", out);
    add_count(c->refused, "write was refused", "writes were refused", out);
    add_names(notes, out);
    if (c->changed)
        buf_str(out, "; the model's file changed behind the mount");
    buf_char(out, '\n');
}

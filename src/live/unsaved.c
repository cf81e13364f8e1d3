/* SPDX-License-Identifier: MIT */
/* Edits that did not reach the file: see unsaved.h. */
#include "live/unsaved.h"

#include <string.h>

void unsaved_add(struct buf *notes, const char *folder, const char *name, const char *why)
{
    const size_t len = notes->len;
    buf_str(notes, folder);
    buf_add(notes, name, strlen(name) + 1);
    buf_add(notes, why, strlen(why) + 1);
    if (buf_error(notes)) /* complete notes only */
        notes->len = len;
}

bool unsaved_next(const struct buf *notes, struct note *n)
{
    if (n->next >= notes->len)
        return false;
    n->path = (const char *)notes->data + n->next;
    n->why = n->path + strlen(n->path) + 1;
    n->next += (size_t)(n->why - n->path) + strlen(n->why) + 1;
    return true;
}

void unsaved_lines(const struct buf *notes, struct buf *out)
{
    for (struct note n = {0}; unsaved_next(notes, &n);)
        buf_printf(out, "%s: %s\n", n.path, n.why);
}

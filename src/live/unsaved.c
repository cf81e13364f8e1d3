/* SPDX-License-Identifier: MIT */
/* What is not in the file: see unsaved.h. */
#include "live/unsaved.h"

#include <string.h>

void unsaved_add(struct buf *notes, const char *folder, const char *name, const char *why)
{
    const size_t len = notes->len;
    buf_str(notes, folder);
    buf_add(notes, name, strlen(name) + 1);
    buf_add(notes, why, strlen(why) + 1);
    if (buf_error(notes)) /* whole ones only */
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

bool unsaved_find(const struct buf *notes, const char *path, struct note *ret)
{
    for (struct note n = {0}; unsaved_next(notes, &n);)
        if (strcmp(n.path, path) == 0) {
            *ret = n;
            return true;
        }
    return false;
}

void unsaved_drop(struct buf *notes, const char *path)
{
    struct note n = {0};
    size_t kept = 0;
    for (size_t at = 0; unsaved_next(notes, &n); at = n.next) {
        if (strcmp(n.path, path) == 0)
            continue;
        (void)memmove(notes->data + kept, notes->data + at, n.next - at);
        kept += n.next - at;
    }
    notes->len = kept;
}

void unsaved_lines(const struct buf *notes, struct buf *out)
{
    for (struct note n = {0}; unsaved_next(notes, &n);)
        buf_printf(out, "%s: %s\n", n.path, n.why);
}

/* SPDX-License-Identifier: MIT */
/* Writes journals of in-place edits that stopped before the model was written. */
#ifndef TESTS_LIB_PUT_JOURNAL_H
#define TESTS_LIB_PUT_JOURNAL_H

#include "edit/journal.h"

/* Write the journal of a plan, like journal_write(). */
static inline int put_journal_of(const struct edit_file *f, const struct edit_plan *p)
{
    CLEANUP(journal_free) struct journal j = JOURNAL_INIT;
    return journal_write(f, p, NULL, &j, NULL);
}

/* Write a journal that replaces the first n bytes of a file. */
static inline int put_journal(const struct edit_file *f, const uint8_t *new, size_t n)
{
    struct image *im = image_new(NULL);
    struct edit_plan p = {.old_size = f->id.size, .image = im};
    p.head = (struct buf){.data = (uint8_t *)(uintptr_t) new, .len = n};
    const uint32_t no = image_file(im, (struct source){.size = f->id.size, .fd = -1});
    image_add_memory(im, new, n);
    image_add_file(im, no, n, f->id.size - n);
    int r = image_end(im);
    if (r == 0)
        r = put_journal_of(f, &p);
    image_unref(im);
    return r;
}

#endif

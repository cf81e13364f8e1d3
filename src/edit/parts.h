/* SPDX-License-Identifier: MIT */
/*
 * A change of a split model as changes of its files: each has the edits of its own tensors, and the
 * first file those of the keys.
 *
 *     CLEANUP(edit_parts_free) struct edit_parts p = EDIT_PARTS_INIT;
 *     r = edit_parts_make(&change, file, n, &p);
 *     for each i: edit_plan_make(&p.part[i].change, ...) is the new file number p.part[i].file
 *
 * Parts are in the order of their first edits; files that nothing was done to have none. Each can be
 * written by itself, whatever becomes of the others: names never pass from a tensor of one file to
 * one of another within a change (the caller of edit_tensor_rename() refuses that).
 *
 * Of a model that is one file there is one part, the change as it is.
 */
#ifndef EDIT_PARTS_H
#define EDIT_PARTS_H

#include "edit/tensors.h"

struct edit_part {
    uint32_t file;
    uint64_t born;             /* when its first edit was accepted: edit_slot.born */
    struct edit_change change; /* lent by the whole change, but `tensors` of a split model */
};

struct edit_parts {
    struct edit_part *part; /* owned */
    size_t n;
    bool split; /* the parts own their `tensors` */
};

#define EDIT_PARTS_INIT ((struct edit_parts){0})

/*
 * file: what each of the model's n files holds, in their order. The change and all files must outlive
 * the parts. 0, -ENOMEM; -EOPNOTSUPP (a tensor of a split model was added or removed).
 */
int edit_parts_make(const struct edit_change *c, struct gguf *const *file, size_t n,
                    struct edit_parts *ret);
void edit_parts_free(struct edit_parts *p);

#endif

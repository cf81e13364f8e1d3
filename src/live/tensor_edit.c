/* SPDX-License-Identifier: MIT */
/* What comes out of a judgement: see tensor_edit.h. */
#include "live/tensor_edit.h"

#include <stdlib.h>

int tensor_edit_apply(const struct tensor_edit *t, struct edit_change *c, const void *name,
                      size_t n, struct err *e)
{
    size_t mark = edit_mark(c);
    int r = 0;
    if (t->shaped)
        r = edit_tensor_set(c, name, n, &t->shape, t->whole ? t->piece : NULL, t->whole ? t->n : 0,
                            e);
    if (r == 0 && t->n > 0 && !(t->shaped && t->whole))
        r = edit_tensor_write(c, name, n, t->piece, t->n, e);
    if (r < 0)
        edit_undo(c, mark);
    return r;
}

void tensor_edit_free(struct tensor_edit *t)
{
    for (size_t i = 0; i < t->n; i++)
        log_unref(t->piece[i].log);
    free(t->piece);
    *t = TENSOR_EDIT_INIT;
}

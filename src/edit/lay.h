/* SPDX-License-Identifier: MIT */
/* Where the data of a new file begins, and its reserve: see plan.h (R1, R2). Private to this layer. */
#ifndef EDIT_LAY_H
#define EDIT_LAY_H

#include "edit/plan.h"

/* A plan while it is made. */
struct draft {
    const struct gguf *g;
    const struct edit_options *o;
    const struct edit_keys *keys;
    const struct edit_info *info; /* the tensors */
    size_t n;
    struct edit_plan *p;
    uint64_t bare;     /* bytes of the header without reserve and padding */
    bool has_reserve;  /* a reserve is written ... */
    uint64_t reserve;  /* ... of so many spaces */
    uint64_t data_off; /* of the new file */
};

/* Bytes of a tensor of the new file. */
static inline uint64_t info_size(const struct draft *d, const struct edit_info *t)
{
    return t->content ? t->content->nbytes : d->g->tensor[t->place].nbytes;
}

/* By which data is to move so that it can be cloned: bytes. */
uint32_t lay_block(const struct edit_options *o);
/* Sets p->block, bare, has_reserve, reserve and data_off. 0, -ENOMEM. */
int lay_data(struct draft *d);
/* The same of a draft whose tensors are those of a regular model, without `info`: `bare` is given, and of the keys
 * only the alignment, which is the model's. */
void lay_keys(struct draft *d);

#endif

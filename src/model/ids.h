/* SPDX-License-Identifier: MIT */
/*
 * Which tensor is which, from one state of a model to the next.
 *
 * A tensor has a number for as long as it is in the model, whatever its name and its place in the list, and a
 * version: another number, new each time its bytes, type or shape change. Both come from one counter and are never
 * reused. When a model is opened, tensor i has number and version i. As long as no tensor is edited this needs no
 * table, and NULL stands for it.
 *
 * Threads: immutable and counted; any. States whose tensors do not differ share a table, so two states with the same
 * table have the same tensors in the same order.
 */
#ifndef MODEL_IDS_H
#define MODEL_IDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"

#define IDS_NONE UINT32_MAX

struct tensor_id {
    uint32_t number;
    uint32_t version; /* the first version equals the number */
};

struct ids {
    atomic_uint refs;
    uint32_t n;           /* tensors */
    struct tensor_id *of; /* owned: by place in the list */
    struct index find;    /* by number and by version */
};

struct ids *ids_ref(struct ids *s); /* s may be NULL, here and below */
void ids_unref(struct ids *s);

static inline struct tensor_id ids_of(const struct ids *s, uint32_t i)
{
    return s ? s->of[i] : (struct tensor_id){i, i};
}

/* The index of the tensor with this number, or version; IDS_NONE if none of the n tensors has it. */
uint32_t ids_look(const struct ids *s, uint32_t wanted, bool version);

static inline uint32_t ids_find(const struct ids *s, uint32_t n, uint32_t number)
{
    return s ? ids_look(s, number, false) : number < n ? number : IDS_NONE;
}

static inline uint32_t ids_find_version(const struct ids *s, uint32_t n, uint32_t version)
{
    return s ? ids_look(s, version, true) : version < n ? version : IDS_NONE;
}

/* A table of the n tensors in `of`. 0, -ENOMEM. */
int ids_make(const struct tensor_id *of, uint32_t n, struct ids **ret);

#endif

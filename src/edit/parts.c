/* SPDX-License-Identifier: MIT */
/* A change by files: see parts.h. */
#include "edit/parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "edit/slots.h"

/* Parts while they are made. */
struct making {
    const struct edit_change *c;
    struct gguf *const *file;
    size_t n;
    uint32_t *first; /* of each file: its first tensor in the whole model */
    uint32_t *at;    /* its part, or EDIT_NONE */
    struct edit_parts *p;
};

/* The file that a tensor of the whole model is in: the last that begins at or before it. */
static uint32_t file_of(const struct making *m, uint32_t tensor)
{
    size_t lo = 0, hi = m->n;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (m->first[mid] <= tensor)
            lo = mid;
        else
            hi = mid;
    }
    return (uint32_t)lo;
}

/* The part of a file, made when it is first asked for. */
static struct edit_part *part_of(struct making *m, uint32_t file, uint64_t born)
{
    struct edit_part *p = &m->p->part[m->p->n];
    if (m->at[file] != EDIT_NONE) {
        p = &m->p->part[m->at[file]];
        p->born = min_u64(p->born, born);
        return p;
    }
    m->at[file] = (uint32_t)m->p->n++;
    *p = (struct edit_part){.file = file, .born = born};
    if (file == 0)
        p->change = *m->c;
    else
        edit_change_init(&p->change, m->file[file], NULL);
    p->change.whole = m->file[file];
    p->change.tensors = NULL;
    p->change.tensor_rank = NULL;
    return p;
}

/* The overlay of its tensors, which is its own. */
static struct edit_change *tensors_of(struct edit_part *p)
{
    struct edit_change *t = p->change.tensors;
    if (!t)
        t = p->change.tensors = calloc(1, sizeof(*t));
    if (t)
        t->base = t->whole = p->change.whole;
    if (t)
        t->of_tensors = true;
    return t;
}

static int add_tensor(struct making *m, const struct edit_slot *s)
{
    uint32_t i;
    if (s->old == EDIT_NONE || s->gone || s->again)
        return -EOPNOTSUPP;
    uint32_t file = file_of(m, s->old);
    struct edit_change *t = tensors_of(part_of(m, file, s->born));
    int r = t ? slot_touch(t, s->old - m->first[file], &i) : -ENOMEM;
    if (r == 0)
        r = slot_rename(t, i, slot_name(s));
    if (r == 0)
        slot_set_content(t, i, s->content);
    return r;
}

static int add_all(struct making *m)
{
    const struct edit_change *c = m->c;
    int r = 0;
    for (size_t i = 0; i < c->n; i++)
        (void)part_of(m, 0, c->slot[i].born);
    for (size_t i = 0; c->tensors && i < c->tensors->n && r == 0; i++)
        r = add_tensor(m, &c->tensors->slot[i]);
    return r;
}

static int by_birth(const void *a, const void *b)
{
    const struct edit_part *x = a, *y = b;
    return x->born < y->born ? -1 : x->born > y->born;
}

static int make_split(struct making *m)
{
    m->first = malloc(m->n * sizeof(*m->first));
    m->at = malloc(m->n * sizeof(*m->at));
    int r = m->first && m->at ? 0 : -ENOMEM;
    for (size_t i = 0, at = 0; r == 0 && i < m->n; at += m->file[i++]->n_tensors) {
        m->first[i] = (uint32_t)at;
        m->at[i] = EDIT_NONE;
    }
    if (r == 0)
        r = add_all(m);
    if (r == 0 && m->p->n > 1)
        qsort(m->p->part, m->p->n, sizeof(*m->p->part), by_birth);
    free(m->first);
    free(m->at);
    return r;
}

int edit_parts_make(const struct edit_change *c, struct gguf *const *file, size_t n,
                    struct edit_parts *ret)
{
    struct edit_parts p = {.part = malloc(n * sizeof(*p.part)), .split = n > 1};
    struct making m = {.c = c, .file = file, .n = n, .p = &p};
    int r = p.part ? 0 : -ENOMEM;
    if (r == 0 && n == 1)
        p.part[p.n++] = (struct edit_part){.change = *c};
    else if (r == 0)
        r = make_split(&m);
    if (r < 0)
        edit_parts_free(&p);
    else
        *ret = p;
    return r;
}

void edit_parts_free(struct edit_parts *p)
{
    for (size_t i = 0; i < p->n && p->split; i++) {
        struct edit_change *t = p->part[i].change.tensors;
        if (t)
            edit_change_free(t);
        free(t);
    }
    free(p->part);
    *p = EDIT_PARTS_INIT;
}

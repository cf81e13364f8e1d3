/* SPDX-License-Identifier: MIT */
/* A file to be checked: see part.h. */
#include "check/part.h"

#include <string.h>

void tell_err(struct checker *c, const struct err *e)
{
    char where[sizeof(e->msg)];
    memcpy(where, e->msg, e->where);
    where[e->where] = '\0';
    report(c, CHECK_ERROR, where, "%s", e->msg + (e->where ? e->where + 2 : 0));
}

static void on_fault(void *arg, const struct err *e)
{
    tell_err(arg, e);
}

static int parse(struct part *p, struct checker *structure, struct err *e)
{
    struct err first = {0};
    int r = model_parse(&p->m, 0, &p->g, &first);
    if (r == 0)
        return 0;
    if (!p->m.src.read) { /* it could not be opened */
        *e = first;
        return r;
    }
    p->faults = true;
    unsigned reported = structure->reported;
    (void)gguf_parse_faults(&p->m.src, on_fault, structure, &p->g, e);
    if (structure->reported == reported && e->code == 0) /* a failure of the medium or of memory */
        *e = first;
    return r;
}

int part_open(const char *path, struct checker *structure, struct part *ret, struct err *e)
{
    *ret = (struct part){0};
    int r = model_find(path, &ret->m, e);
    return r < 0 ? r : parse(ret, structure, e);
}

void part_free(struct part *p)
{
    gguf_free(p->g);
    model_free(&p->m);
    *p = (struct part){0};
}

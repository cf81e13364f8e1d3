/* SPDX-License-Identifier: MIT */
/* The type that a value is to have: see types.h. */
#include "live/types.h"

#include <string.h>

#include "base/lock.h"

/* Models have few lists of inner types: the first that a process meets are kept for its life. */
#define LISTS_MOST 256

/* The text of a list, the same for equal ones. NULL: there are too many, or no memory. */
static const char *keep_list(struct type_list list)
{
    static struct lock lock = LOCK_INIT;
    static char *kept[LISTS_MOST];
    const char *found = NULL;
    size_t i = 0;
    lock_take(&lock);
    while (i < LISTS_MOST && kept[i] &&
           (strlen(kept[i]) != list.n || memcmp(kept[i], list.p, list.n) != 0))
        i++;
    if (i < LISTS_MOST && !kept[i])
        kept[i] = strndup(list.p, list.n);
    if (i < LISTS_MOST)
        found = kept[i];
    lock_drop(&lock);
    return found;
}

bool type_by_name(const char *name, size_t n, struct typed *ret)
{
    struct type_name t;
    if (!type_name_get(name, n, &t))
        return false;
    *ret = (struct typed){.set = true, .type = t.type, .elem = t.elem};
    if (t.inner.p)
        ret->inner = keep_list(t.inner);
    return !t.inner.p || ret->inner;
}

struct typed type_of_value(const struct gguf_value *v)
{
    CLEANUP(buf_free) struct buf name = BUF_INIT;
    struct typed t = {.set = true, .type = v->type, .elem = v->elem};
    if (v->type != GGUF_ARRAY || v->elem != GGUF_ARRAY)
        return t;
    type_name_put(v, &name);
    if (buf_error(&name) == 0)
        (void)type_by_name((const char *)name.data, name.len, &t);
    return t;
}

struct type_name type_to_parse(const struct typed *t)
{
    return (struct type_name){
        .type = t->type, .elem = t->elem, .inner = {t->inner, t->inner ? strlen(t->inner) : 0}};
}

void type_put(const struct typed *t, struct buf *out)
{
    char name[GGUF_TYPE_NAME_MAX];
    const struct gguf_value v = {.type = (uint8_t)t->type, .elem = (uint8_t)t->elem};
    if (t->inner)
        buf_printf(out, "array[%s]", t->inner);
    else
        buf_str(out, gguf_type_name(&v, name));
}

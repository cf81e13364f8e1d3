/* SPDX-License-Identifier: MIT */
/* Types as text: see type_name.h. */
#include "text/type_name.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/gguf.h"

static const char array_head[] = "array[";
enum { HEAD = sizeof(array_head) - 1 };

/* ---- to text ---- */

static bool put_list(const struct gguf_value *array, struct buf *out);

/*
 * End a run of n inner arrays: insert the end between its text and the text at `at`. Returns the
 * number of inserted bytes.
 */
static size_t end_run(struct buf *out, size_t at, uint64_t n)
{
    char s[24] = ",";
    size_t behind = out->len - at;
    if (n > 1)
        (void)snprintf(s, sizeof(s), "*%llu,", (unsigned long long)n);
    size_t bytes = strlen(s);
    if (!buf_extend(out, bytes))
        return 0;
    memmove(out->data + at + bytes, out->data + at, behind);
    memcpy(out->data + at, s, bytes);
    return bytes;
}

/* True if the text after `end` repeats the text from `begin` to `end`. */
static bool repeats(const struct buf *out, size_t begin, size_t end)
{
    return out->len - end == end - begin &&
           memcmp(out->data + begin, out->data + end, end - begin) == 0;
}

/*
 * Append the types of the inner arrays, with equal neighbours counted together. Each type is
 * written after the previous run's type, and dropped if equal. For arrays of numbers or strings the
 * types themselves are compared. Returns false if memory is short or the name is too long.
 */
static bool put_inner(const struct gguf_value *array, struct buf *out)
{
    size_t begin = out->len, run = begin,
           end = begin;                /* the text of the run extends from `run` to `end` */
    uint32_t plain = GGUF_VALUE_TYPES; /* element type of the run's arrays, if not an array */
    uint64_t n = 0;
    struct gguf_value item;
    for (struct gguf_walk w = gguf_walk(array); gguf_next(&w, &item); n++) {
        if (item.elem == plain)
            continue;
        buf_str(out, array_head);
        if (!put_list(&item, out))
            return false;
        buf_char(out, ']');
        if (buf_error(out) || out->len - end > TYPE_NAME_MOST)
            return false;
        if (n > 0 && repeats(out, run, end)) {
            out->len = end;
            continue;
        }
        if (n > 0)
            run = end + end_run(out, end, n);
        end = out->len;
        plain = item.elem == GGUF_ARRAY ? GGUF_VALUE_TYPES : item.elem;
        n = 0;
        if (end - begin > TYPE_NAME_MOST)
            return false;
    }
    if (run > begin && n > 1)
        buf_printf(out, "*%llu", (unsigned long long)n);
    return true;
}

static bool put_list(const struct gguf_value *array, struct buf *out)
{
    if (array->elem == GGUF_ARRAY && array->count > 0)
        return put_inner(array, out);
    buf_str(out, gguf_types[array->elem].name);
    return true;
}

void type_name_put(const struct gguf_value *v, struct buf *out)
{
    char brief[GGUF_TYPE_NAME_MAX];
    size_t begin = out->len;
    if (v->type == GGUF_ARRAY && v->elem == GGUF_ARRAY && v->data) {
        buf_str(out, array_head);
        bool named = put_list(v, out);
        buf_char(out, ']');
        if (named && out->len - begin <= TYPE_NAME_MOST)
            return;
        out->len = begin;
    }
    buf_str(out, gguf_type_name(v, brief));
}

bool type_name_is(const struct gguf_value *v, struct type_list inner)
{
    CLEANUP(buf_free) struct buf name = BUF_INIT;
    type_name_put(v, &name);
    return !buf_error(&name) && name.len == HEAD + inner.n + 1 &&
           memcmp(name.data + HEAD, inner.p, inner.n) == 0;
}

/* ---- from text ---- */

static bool starts_array(const char *p, size_t n)
{
    return n >= HEAD && memcmp(p, array_head, HEAD) == 0;
}

/* Read a type that is not an array, or "array" itself. */
static bool plain_type(const char *p, size_t n, uint32_t *type)
{
    for (uint32_t i = 0; i < GGUF_VALUE_TYPES; i++)
        if (strlen(gguf_types[i].name) == n && memcmp(gguf_types[i].name, p, n) == 0) {
            *type = i;
            return true;
        }
    return false;
}

/* Return the length of the "array[...]" at p, to its closing bracket, or 0 if that is missing. */
static size_t array_bytes(const char *p, size_t n)
{
    size_t open = 0;
    for (size_t i = 0; i < n; i++) {
        open += p[i] == '[';
        if (p[i] == ']' && --open == 0)
            return i + 1;
    }
    return 0;
}

/* An inner type at the beginning of a list, with its count. */
struct item {
    struct type_list list; /* the list in its brackets */
    uint64_t times;        /* 1 if no count is given */
    size_t bytes;          /* including the count */
};

static bool read_count(const char *p, size_t n, size_t *at, uint64_t *ret)
{
    size_t begin = ++*at;
    for (*ret = 0; *at < n && p[*at] >= '0' && p[*at] <= '9'; ++*at)
        *ret = *ret * 10 + (uint64_t)(p[*at] - '0');
    return *at > begin && *at - begin <= 10 && *ret > 0; /* more than GGUF_MAX_COUNT is useless */
}

static bool read_item(const char *p, size_t n, struct item *ret)
{
    size_t at = starts_array(p, n) ? array_bytes(p, n) : 0;
    if (at == 0)
        return false;
    *ret = (struct item){.list = {p + HEAD, at - HEAD - 1}, .times = 1};
    if (at < n && p[at] == '*' && !read_count(p, n, &at, &ret->times))
        return false;
    ret->bytes = at;
    return at == n || p[at] == ',';
}

/* Read the element type that a list gives. Returns false if it is not a list. */
static bool read_list(struct type_list list, unsigned depth, uint32_t *elem,
                      struct type_list *inner)
{
    *inner = (struct type_list){0};
    if (!starts_array(list.p, list.n))
        return plain_type(list.p, list.n, elem);
    *elem = GGUF_ARRAY;
    *inner = list;
    for (size_t at = 0; depth < GGUF_MAX_DEPTH;) {
        struct item it;
        struct type_list further;
        uint32_t ignored;
        if (!read_item(list.p + at, list.n - at, &it) ||
            !read_list(it.list, depth + 1, &ignored, &further))
            return false;
        at += it.bytes;
        if (at == list.n)
            return true;
        at++;
    }
    return false;
}

bool type_name_get(const char *name, size_t n, struct type_name *ret)
{
    *ret = (struct type_name){0};
    if (n > TYPE_NAME_MOST)
        return false;
    if (!starts_array(name, n))
        return plain_type(name, n, &ret->type) && ret->type != GGUF_ARRAY;
    ret->type = GGUF_ARRAY;
    return array_bytes(name, n) == n &&
           read_list((struct type_list){name + HEAD, n - HEAD - 1}, 1, &ret->elem, &ret->inner);
}

/* Fill in the nodes of a list, from *next on. */
static const struct type_node *make_nodes(struct type_list list, struct type_node **next)
{
    const struct type_node *first = NULL, **link = &first;
    struct item it;
    while (list.n > 0 && read_item(list.p, list.n, &it)) {
        struct type_node *t = (*next)++;
        *link = t;
        link = &t->next;
        t->times = it.times;
        t->elem = GGUF_ARRAY;
        if (starts_array(it.list.p, it.list.n))
            t->inner = make_nodes(it.list, next);
        else
            (void)plain_type(it.list.p, it.list.n, &t->elem);
        size_t behind = it.bytes < list.n ? it.bytes + 1 : list.n;
        list.p += behind;
        list.n -= behind;
    }
    return first;
}

int type_nodes(struct type_list list, struct type_node **ret)
{
    size_t n = 0;
    *ret = NULL;
    for (size_t i = 0; i < list.n; i++)
        n += list.p[i] == '[';
    if (n == 0)
        return 0;
    struct type_node *next = *ret = calloc(n, sizeof(*next));
    if (!next)
        return -ENOMEM;
    (void)make_nodes(list, &next);
    return 0;
}

const struct type_node *type_walk_next(struct type_walk *w)
{
    if (w->at && w->used == w->at->times && w->at->next)
        *w = type_walk(w->at->next);
    if (w->at && w->used < w->at->times)
        w->used++;
    return w->at;
}

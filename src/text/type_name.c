/* SPDX-License-Identifier: MIT */
/* Types as texts: see type_name.h. */
#include "text/type_name.h"

#include <string.h>

#include "gguf/gguf.h"

static const char array_head[] = "array[";
enum { HEAD = sizeof(array_head) - 1 };

/* ---- to text ---- */

static void put_list(const struct gguf_value *array, struct buf *out);

static void put_run(struct buf *out, const struct buf *item, uint64_t n, bool counted, bool first)
{
    buf_str(out, first ? "" : ",");
    buf_add(out, item->data, item->len);
    if (counted && n > 1)
        buf_printf(out, "*%llu", (unsigned long long)n);
}

static bool same(const struct buf *a, const struct buf *b)
{
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

/* The inner arrays of an array of arrays: equal ones together. */
static void put_inner(const struct gguf_value *array, struct buf *out)
{
    CLEANUP(buf_free) struct buf run = BUF_INIT;
    struct gguf_value item;
    uint64_t n = 0, runs = 0;
    for (struct gguf_walk w = gguf_walk(array); gguf_next(&w, &item);) {
        struct buf now = BUF_INIT;
        buf_str(&now, array_head);
        put_list(&item, &now);
        buf_char(&now, ']');
        if (n && !same(&run, &now)) {
            put_run(out, &run, n, true, runs++ == 0);
            n = 0;
        }
        buf_free(&run);
        run = now;
        n++;
        if (out->len > TYPE_NAME_MOST)
            return;
    }
    put_run(out, &run, n, runs > 0, runs == 0);
}

static void put_list(const struct gguf_value *array, struct buf *out)
{
    if (array->elem == GGUF_ARRAY && array->count > 0)
        put_inner(array, out);
    else
        buf_str(out, gguf_types[array->elem].name);
}

void type_name_put(const struct gguf_value *v, struct buf *out)
{
    char brief[GGUF_TYPE_NAME_MAX];
    size_t begin = out->len;
    if (v->type != GGUF_ARRAY || v->elem != GGUF_ARRAY || !v->data) {
        buf_str(out, gguf_type_name(v, brief));
        return;
    }
    buf_str(out, array_head);
    put_list(v, out);
    buf_char(out, ']');
    if (out->len - begin <= TYPE_NAME_MOST)
        return;
    out->len = begin;
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

/* a type that is not an array, or "array" itself. */
static bool plain_type(const char *p, size_t n, uint32_t *type)
{
    for (uint32_t i = 0; i < GGUF_VALUE_TYPES; i++)
        if (strlen(gguf_types[i].name) == n && memcmp(gguf_types[i].name, p, n) == 0) {
            *type = i;
            return true;
        }
    return false;
}

/* Bytes of the "array[...]" at p, to its closing bracket; 0: it does not end. */
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

/* An inner type at the beginning of a list, and what stands behind it. */
struct item {
    struct type_list list; /* in its brackets */
    uint64_t times;        /* 1 if it does not say */
    size_t bytes;          /* with the count */
};

static bool read_count(const char *p, size_t n, size_t *at, uint64_t *ret)
{
    size_t begin = ++*at;
    for (*ret = 0; *at < n && p[*at] >= '0' && p[*at] <= '9'; ++*at)
        *ret = *ret * 10 + (uint64_t)(p[*at] - '0');
    return *at > begin && *at - begin <= 10 && *ret > 0; /* at most GGUF_MAX_COUNT is of use */
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

/* What a list says of the elements' type; false: it is not a list. */
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

bool type_walk_next(struct type_walk *w, uint32_t *elem, struct type_list *inner)
{
    struct item it;
    if (!w->left.p || !read_item(w->left.p, w->left.n, &it))
        return false;
    if (w->used == it.times && it.bytes < w->left.n) {
        w->left.p += it.bytes + 1;
        w->left.n -= it.bytes + 1;
        w->used = 0;
        if (!read_item(w->left.p, w->left.n, &it))
            return false;
    }
    w->used += w->used < it.times;
    *inner = (struct type_list){0};
    if (!starts_array(it.list.p, it.list.n))
        return plain_type(it.list.p, it.list.n, elem);
    *elem = GGUF_ARRAY;
    *inner = it.list;
    return true;
}

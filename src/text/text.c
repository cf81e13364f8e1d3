/* SPDX-License-Identifier: MIT */
/* The text of a metadata value, and back: see text.h. */
#include "text/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"
#include "gguf/gguf.h"
#include "text/json.h"
#include "text/number.h"

void text_value(struct buf *out, const struct gguf_value *v)
{
    struct gguf_value item;
    if (v->type == GGUF_ARRAY) {
        for (struct gguf_walk w = gguf_walk(v); gguf_next(&w, &item);) {
            json_line_value(out, &item);
            buf_char(out, '\n');
        }
        return;
    }
    if (v->type == GGUF_STRING)
        buf_add(out, v->data, (size_t)v->len);
    else
        text_scalar(out, v, &float_names_text);
    buf_char(out, '\n');
}

/* ---- a type as text ---- */

static const char array_head[] = "array[";
enum { HEAD = sizeof(array_head) - 1 };

static bool put_list(const struct gguf_value *array, struct buf *out);

/*
 * End a run of n inner arrays: insert "," or "*N," between the run's text and the text at `at`.
 * Returns the number of inserted bytes.
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
 * written after that of the previous run, and is dropped if the two texts are equal. For arrays of
 * numbers or strings, the types themselves are compared instead. Returns false if memory runs out
 * or the name is too long.
 */
static bool put_inner(const struct gguf_value *array, struct buf *out)
{
    size_t begin = out->len, run = begin,
           end = begin; /* the text of the run extends from `run` to `end` */
    /* Element type of the run's arrays, unless their elements are arrays. */
    uint32_t plain = GGUF_VALUE_TYPES;
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

/* True if the value's inner arrays have the types in the list. */
static bool type_name_is(const struct gguf_value *v, struct text inner)
{
    CLEANUP(buf_free) struct buf name = BUF_INIT;
    type_name_put(v, &name);
    return !buf_error(&name) && name.len == HEAD + inner.len + 1 &&
           memcmp(name.data + HEAD, inner.at, inner.len) == 0;
}

/* Read a type that is not an array, or "array" itself. */
static bool plain_type(struct text name, uint32_t *type)
{
    *type = 0;
    while (*type < GGUF_VALUE_TYPES && !text_is(name, gguf_types[*type].name))
        ++*type;
    return *type < GGUF_VALUE_TYPES;
}

/* Return the length of the "array[...]" at the beginning of t, or 0 if there is none. */
static size_t array_bytes(struct text t)
{
    size_t open = 0, end = text_begins(t, array_head) ? t.len : 0;
    for (size_t i = 0; i < end; i++) {
        open += t.at[i] == '[';
        if (t.at[i] == ']' && --open == 0)
            return i + 1;
    }
    return 0;
}

/* An inner type at the beginning of a list, with its count. */
struct item {
    struct text list; /* the text between the brackets */
    uint64_t times;   /* 1 if no count is given */
    size_t bytes;     /* including the count */
};

static bool read_count(struct text t, size_t *at, uint64_t *ret)
{
    size_t begin = ++*at;
    for (*ret = 0; *at < t.len && t.at[*at] >= '0' && t.at[*at] <= '9'; ++*at)
        *ret = *ret * 10 + (uint64_t)(t.at[*at] - '0');
    return *at > begin && *at - begin <= 10 && *ret > 0; /* GGUF_MAX_COUNT has 10 digits */
}

static bool read_item(struct text t, struct item *ret)
{
    size_t at = array_bytes(t);
    if (at == 0)
        return false;
    *ret = (struct item){.list = {t.at + HEAD, at - HEAD - 1}, .times = 1};
    if (at < t.len && t.at[at] == '*' && !read_count(t, &at, &ret->times))
        return false;
    ret->bytes = at;
    return at == t.len || t.at[at] == ',';
}

/* Read the element type that a list specifies. Returns false if the text is not a valid list. */
static bool read_list(struct text list, unsigned depth, uint32_t *elem, struct text *inner)
{
    *inner = (struct text){0};
    if (!text_begins(list, array_head))
        return plain_type(list, elem);
    *elem = GGUF_ARRAY;
    *inner = list;
    while (depth < GGUF_MAX_DEPTH) {
        struct item it;
        struct text further;
        uint32_t ignored;
        if (!read_item(list, &it) || !read_list(it.list, depth + 1, &ignored, &further))
            return false;
        if (it.bytes == list.len)
            return true;
        list = (struct text){list.at + it.bytes + 1, list.len - it.bytes - 1};
    }
    return false;
}

bool type_name_get(const char *name, size_t n, struct type_name *ret)
{
    const struct text t = {name, n};
    *ret = (struct type_name){0};
    if (n > TYPE_NAME_MOST)
        return false;
    if (!text_begins(t, array_head))
        return plain_type(t, &ret->type) && ret->type != GGUF_ARRAY;
    ret->type = GGUF_ARRAY;
    return array_bytes(t) == n &&
           read_list((struct text){name + HEAD, n - HEAD - 1}, 1, &ret->elem, &ret->inner);
}

/* An inner type of a list. */
struct type_node {
    /* The next type. NULL: this is the last one, and applies to all remaining arrays. */
    const struct type_node *next;
    const struct type_node *inner; /* first node of its own list, or NULL */
    uint64_t times;
    uint32_t elem; /* element type of these arrays */
};

/* Fill in the nodes of a list, starting at *next. Returns the first node, or NULL. */
static const struct type_node *make_nodes(struct text list, struct type_node **next)
{
    const struct type_node *first = NULL, **link = &first;
    struct item it;
    while (read_item(list, &it)) {
        struct type_node *t = (*next)++;
        *link = t;
        link = &t->next;
        t->times = it.times;
        t->elem = GGUF_ARRAY;
        if (text_begins(it.list, array_head))
            t->inner = make_nodes(it.list, next);
        else
            (void)plain_type(it.list, &t->elem);
        size_t behind = it.bytes < list.len ? it.bytes + 1 : list.len;
        list = (struct text){list.at + behind, list.len - behind};
    }
    return first;
}

/*
 * Parse the inner types in a list from type_name_get(). This is done once, no matter how many
 * arrays use the types. Sets *ret to the first node, or to NULL if the list is empty; free(*ret)
 * frees all nodes.
 */
static int type_nodes(struct text list, struct type_node **ret)
{
    size_t n = 0;
    *ret = NULL;
    for (size_t i = 0; i < list.len; i++)
        n += list.at[i] == '[';
    if (n == 0)
        return 0;
    struct type_node *next = *ret = calloc(n, sizeof(*next));
    if (!next)
        return -ENOMEM;
    (void)make_nodes(list, &next);
    return 0;
}

/* A walk over the types of inner arrays. */
struct type_walk {
    const struct type_node *at; /* the current node; NULL: the list specifies no type */
    uint64_t used;              /* number of times the node was used */
};

/* Return the type of the next inner array, or NULL if the list specifies none. */
static const struct type_node *type_walk_next(struct type_walk *w)
{
    if (w->at && w->used == w->at->times && w->at->next)
        *w = (struct type_walk){.at = w->at->next};
    if (w->at && w->used < w->at->times)
        w->used++;
    return w->at;
}

/* ---- contents of a JSON array ---- */

enum shape_kind {
    SHAPE_STRING = 1 << 0,
    SHAPE_BOOL = 1 << 1,
    SHAPE_INTEGER = 1 << 2,
    SHAPE_FLOAT = 1 << 3,
    SHAPE_ARRAY = 1 << 4,
};

struct shape {
    unsigned kinds;        /* kinds of the elements, a set of enum shape_kind; 0 if empty */
    uint64_t max;          /* largest non-negative integer */
    uint64_t max_negative; /* largest magnitude of a negative integer */
    bool huge;             /* an integer is too large for u64 */
    bool minus_zero;       /* an integer is -0, which only float types hold */
    bool wide;             /* a float is outside the range of f32 */
    bool mixed;            /* a nested array has no type (shape_type()) */
    unsigned depth;        /* levels of nesting, including this one */
};

static bool integers_fit(const struct shape *s, uint32_t type)
{
    struct integer low = {true, s->max_negative}, high = {false, s->max};
    return !s->huge && integer_fits(type, &low) && integer_fits(type, &high);
}

/* True if an array of this element type can hold the values. */
static bool shape_fits(const struct shape *s, uint32_t elem)
{
    if (s->kinds == 0)
        return true;
    switch (gguf_types[elem].kind) {
    case GGUF_KIND_UINT:
    case GGUF_KIND_INT:
        return s->kinds == SHAPE_INTEGER && integers_fit(s, elem);
    case GGUF_KIND_FLOAT:
        return !(elem == GGUF_F32 && s->wide) &&
               !(s->kinds & ~(unsigned)(SHAPE_INTEGER | SHAPE_FLOAT));
    case GGUF_KIND_BOOL:
        return s->kinds == SHAPE_BOOL;
    case GGUF_KIND_STRING:
        return s->kinds == SHAPE_STRING;
    default:
        return s->kinds == SHAPE_ARRAY;
    }
}

/*
 * Find the element type for values of one kind: for integers, the first of u32, i32, u64 and i64
 * that can hold all of them; for numbers that include a float or a -0, f32 (f64 if one is out of
 * range for f32); otherwise string, bool or array. Returns false if the kinds are mixed, an integer
 * is too large, or there are no values.
 */
static bool shape_type(const struct shape *s, uint32_t *elem)
{
    static const uint8_t order[] = {GGUF_U32, GGUF_I32,    GGUF_U64,  GGUF_I64,  GGUF_F32,
                                    GGUF_F64, GGUF_STRING, GGUF_BOOL, GGUF_ARRAY};
    /*
     * Integers that no integer type can hold are not silently rounded to floats. Only floats can
     * hold -0.
     */
    bool integers = s->kinds == SHAPE_INTEGER, floats = s->minus_zero && !s->huge;
    for (size_t i = 0; s->kinds && i < sizeof(order); i++) {
        bool is_float = gguf_types[order[i]].kind == GGUF_KIND_FLOAT;
        if ((integers && is_float != floats) || !shape_fits(s, order[i]))
            continue;
        *elem = order[i];
        return true;
    }
    return false;
}

/* Add a value with the text `word`. Returns false if the word is not a JSON value. */
static bool shape_add_word(struct shape *s, const uint8_t *word, size_t n)
{
    struct integer v;
    uint64_t bits;
    int r = scan_integer(word, n, &v);
    if (r == 0) {
        uint64_t *most = v.minus ? &s->max_negative : &s->max;
        *most = max_u64(*most, v.magnitude);
        s->minus_zero |= v.minus && v.magnitude == 0;
        s->kinds |= SHAPE_INTEGER;
    } else if (r == -ERANGE) {
        s->huge = true;
        s->kinds |= SHAPE_INTEGER;
    } else if (scan_is_float(word, n)) {
        s->wide |= scan_scalar(GGUF_F32, word, n, &bits) == -ERANGE;
        s->kinds |= SHAPE_FLOAT;
    } else if (scan_scalar(GGUF_BOOL, word, n, &bits) == 0)
        s->kinds |= SHAPE_BOOL;
    else
        return false;
    return true;
}

static int shape_array(struct reader *r, struct shape *s, unsigned depth);

static int add_array(struct reader *r, struct shape *s, unsigned depth)
{
    struct shape inner;
    uint32_t elem;
    int e = shape_array(r, &inner, depth + 1);
    if (e < 0)
        return e;
    s->kinds |= SHAPE_ARRAY;
    s->mixed |= inner.mixed || (inner.kinds && !shape_type(&inner, &elem));
    if (s->depth <= inner.depth)
        s->depth = inner.depth + 1;
    return 0;
}

static int add_item(struct reader *r, struct shape *s, unsigned depth)
{
    struct buf skipped = BUF_MEASURE;
    const uint8_t *word;
    size_t n;
    if (reader_at(r, '"')) {
        s->kinds |= SHAPE_STRING;
        return reader_string(r, &skipped);
    }
    if (reader_at(r, '['))
        return add_array(r, s, depth);
    int e = reader_word(r, &word, &n);
    if (e < 0 || shape_add_word(s, word, n))
        return e;
    char shown[SHOW_MAX];
    return reader_fail(r, -EINVAL, "'%s' is not a JSON value", show(shown, word, n));
}

/* Read the array that starts with "[" at r->at, and move past its end. */
static int shape_array(struct reader *r, struct shape *s, unsigned depth)
{
    int e;
    *s = (struct shape){.depth = 1};
    if (depth >= GGUF_MAX_DEPTH)
        return reader_fail(r, -EINVAL, "arrays are nested more than %d deep", GGUF_MAX_DEPTH);
    struct items it = items_begin_array(r);
    while ((e = items_next(&it)) > 0)
        if ((e = add_item(r, s, depth)) < 0)
            return e;
    return e;
}

/* ---- a value from its text ---- */

/* The state of a call of text_parse(). */
struct parse {
    const struct gguf_format *fmt;
    struct reader r;
    struct buf *out;
    size_t start; /* where the payload begins in out */
};

/* Append the bytes that follow the type word of an existing value. */
static void keep_payload(struct buf *out, const struct gguf_value *v)
{
    const uint8_t *p = v->data;
    if (v->type == GGUF_STRING || v->type == GGUF_ARRAY)
        p -= v->fmt->len_width + (v->type == GGUF_ARRAY ? 4 : 0);
    buf_add(out, p, (size_t)(gguf_value_end(v) - p));
}

/* True if the text begins with the output of `write` for v. *len: the length of that output. */
static bool writes(void (*write)(struct buf *, const struct gguf_value *),
                   const struct gguf_value *v, const uint8_t *text, size_t n, size_t *len)
{
    struct buf size = BUF_MEASURE;
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    write(&size, v);
    if (size.len > n)
        return false;
    write(&b, v);
    *len = b.len;
    return !buf_error(&b) && (b.len == 0 || memcmp(b.data, text, b.len) == 0);
}

/* Return the length of a string, given its text, which may end in an additional newline. */
static size_t string_len(const uint8_t *text, size_t n)
{
    return n && text[n - 1] == '\n' ? n - 1 : n;
}

static bool unchanged(const struct gguf_value *old, const uint8_t *text, size_t n)
{
    size_t len = string_len(text, n);
    if (old->type == GGUF_STRING)
        return len == old->len && memcmp(old->data, text, len) == 0;
    return writes(text_value, old, text, n, &len) && len == n;
}

static const char *noun(uint32_t type)
{
    switch (gguf_types[type].kind) {
    case GGUF_KIND_UINT:
    case GGUF_KIND_INT:
        return "an integer";
    case GGUF_KIND_FLOAT:
        return "a number";
    default:
        return "true or false";
    }
}

/* Report an error that scan_scalar() returned for a word. */
static int scalar_error(struct err *e, int code, uint32_t type, const uint8_t *word, size_t n)
{
    char s[SHOW_MAX];
    if (code == -ERANGE)
        return err_set(e, code, "%s is outside the range of %s", show(s, word, n),
                       gguf_types[type].name);
    if (code == -EINVAL)
        return err_set(e, code, "'%s' is not %s", show(s, word, n), noun(type));
    return err_set(e, code, "no memory");
}

static bool is_nan(uint32_t type, uint64_t bits)
{
    if (type == GGUF_F32)
        return (bits & 0x7fffffff) > 0x7f800000;
    return (bits & 0x7fffffffffffffff) > 0x7ff0000000000000;
}

/* Keep the bits of an unchanged NaN, and the byte of an unchanged true (any nonzero byte reads as
 * true). */
static uint64_t keep_bits(const struct gguf_value *old, uint64_t bits)
{
    if (!old || (old->type != GGUF_F32 && old->type != GGUF_F64 && old->type != GGUF_BOOL))
        return bits;
    uint64_t was = gguf_uint(old);
    if (old->type == GGUF_BOOL)
        return bits && was ? was : bits;
    return is_nan(old->type, bits) && is_nan(old->type, was) ? was : bits;
}

static int parse_scalar(struct parse *p, uint32_t type, const struct gguf_value *old)
{
    const uint8_t *word = p->r.at;
    size_t n = (size_t)(p->r.end - word);
    uint64_t bits;
    scan_trim(&word, &n);
    int r = scan_scalar(type, word, n, &bits);
    if (r < 0)
        return scalar_error(p->r.err, r, type, word, n);
    buf_uint(p->out, keep_bits(old, bits), gguf_types[type].width, p->fmt->big);
    return 0;
}

static int too_big(const struct parse *p)
{
    return err_set(p->r.err, -EFBIG, "the value is over 1 GiB");
}

static int parse_string(struct parse *p)
{
    const uint8_t *s = p->r.at;
    size_t n = string_len(s, (size_t)(p->r.end - s));
    if (n > GGUF_MAX_STRING)
        return too_big(p);
    size_t valid = utf8_run(s, n);
    if (valid < n)
        return err_set(p->r.err, -EILSEQ, "byte %zu (0x%02x) is not valid UTF-8", valid, s[valid]);
    buf_uint(p->out, n, p->fmt->len_width, p->fmt->big);
    buf_add(p->out, s, n);
    return 0;
}

/* Write a number into the space reserved at `at` in the output. */
static void patch(struct parse *p, size_t at, uint64_t v)
{
    if (!buf_error(p->out))
        put_uint(p->out->data + at, v, p->fmt->len_width, p->fmt->big);
}

static int item_string(struct parse *p)
{
    size_t at = p->out->len;
    buf_zero(p->out, p->fmt->len_width);
    int r = reader_string(&p->r, p->out);
    if (r == 0)
        patch(p, at, p->out->len - at - p->fmt->len_width);
    return r;
}

static int item_scalar(struct parse *p, uint32_t type, const struct gguf_value *old)
{
    const uint8_t *word;
    size_t n;
    uint64_t bits;
    struct reader here = p->r;
    int r = reader_word(&p->r, &word, &n);
    if (r < 0)
        return r;
    r = scan_scalar(type, word, n, &bits);
    if (r < 0) {
        struct err what = {0};
        (void)scalar_error(&what, r, type, word, n);
        return reader_fail(&here, r, "%s", what.msg);
    }
    buf_uint(p->out, keep_bits(old, bits), gguf_types[type].width, p->fmt->big);
    return 0;
}

/* A walk over the elements of the old array in step with those of the text. */
struct beside {
    struct gguf_walk walk;
    struct gguf_value item; /* the current element, or else the last; valid if `any` is set */
    bool any, current;
};

static int parse_items(struct parse *p, struct items *it, uint32_t elem,
                       const struct type_node *inner, const struct gguf_value *old, unsigned depth);

/* Return the element type of the inner array at p->r.at. */
static int inner_type(struct parse *p, const struct beside *b, uint32_t *elem)
{
    struct reader ahead = p->r;
    struct shape s;
    int r = shape_array(&ahead, &s, 0);
    if (r < 0)
        return r;
    *elem = b->any ? b->item.elem : (uint32_t)GGUF_U32;
    if (((b->any || s.kinds == 0) && shape_fits(&s, *elem)) || shape_type(&s, elem))
        return 0;
    if (s.kinds == SHAPE_INTEGER)
        return reader_fail(&p->r, -ERANGE, "an integer is outside the range of u64 and i64");
    return reader_fail(&p->r, -EINVAL, "the values of an array must be of one kind");
}

/* Parse an inner array. types: a walk over the types specified for this array and its siblings. */
static int item_array(struct parse *p, struct type_walk *types, const struct beside *b,
                      unsigned depth)
{
    size_t len;
    const struct type_node *given = type_walk_next(types);
    uint32_t elem = given ? given->elem : 0;
    if (!reader_at(&p->r, '['))
        return reader_fail(&p->r, -EINVAL, "a JSON array [...] is expected");
    if (b->current &&
        writes(json_line_value, &b->item, p->r.at, (size_t)(p->r.end - p->r.at), &len)) {
        keep_payload(p->out, &b->item);
        p->r.at += len;
        return 0;
    }
    if (depth >= GGUF_MAX_DEPTH)
        return reader_fail(&p->r, -EINVAL, "arrays are nested more than %d deep", GGUF_MAX_DEPTH);
    int r = given ? 0 : inner_type(p, b, &elem);
    if (r < 0)
        return r;
    struct items it = items_begin_array(&p->r);
    const struct gguf_value *old = b->current && b->item.elem == elem ? &b->item : NULL;
    return parse_items(p, &it, elem, given ? given->inner : NULL, old, depth);
}

static int parse_item(struct parse *p, uint32_t type, struct type_walk *types,
                      const struct beside *b, unsigned depth)
{
    if (type == GGUF_STRING)
        return item_string(p);
    if (type == GGUF_ARRAY)
        return item_array(p, types, b, depth + 1);
    return item_scalar(p, type, b->current ? &b->item : NULL);
}

/* Write the element type, the count and the elements. old: an array with the same element type, or
 * NULL. */
static int parse_items(struct parse *p, struct items *it, uint32_t elem,
                       const struct type_node *inner, const struct gguf_value *old, unsigned depth)
{
    struct beside b = {.walk = {0}};
    struct type_walk types = {.at = inner};
    uint64_t count = 0;
    int r;
    if (old)
        b.walk = gguf_walk(old);
    buf_uint(p->out, elem, 4, p->fmt->big);
    size_t count_at = p->out->len;
    buf_zero(p->out, p->fmt->len_width);
    for (; (r = items_next(it)) > 0; count++) {
        b.current = gguf_next(&b.walk, &b.item); /* after the end, still the last item */
        b.any |= b.current;
        if ((r = parse_item(p, elem, &types, &b, depth)) < 0)
            return r;
        if (p->out->len - p->start > GGUF_MAX_STRING)
            return too_big(p);
    }
    if (r == 0)
        patch(p, count_at, count);
    return r;
}

static int parse_array(struct parse *p, const struct type_name *t, const struct gguf_value *old)
{
    struct items it = items_begin_text(&p->r, t->elem != GGUF_ARRAY);
    struct type_node *inner;
    int r = type_nodes(t->inner, &inner);
    if (r < 0)
        return err_set(p->r.err, r, "no memory");
    r = parse_items(p, &it, t->elem, inner, old, 0);
    free(inner);
    if (r < 0)
        return r;
    reader_skip_space(&p->r);
    return p->r.at == p->r.end ? 0 : reader_fail(&p->r, -EINVAL, "text follows the array");
}

static int parse_value(struct parse *p, const struct type_name *t, const struct gguf_value *old)
{
    size_t n = (size_t)(p->r.end - p->r.at);
    if (old && unchanged(old, p->r.at, n)) {
        keep_payload(p->out, old);
        return 0;
    }
    if (n > GGUF_MAX_STRING + 1) /* a string's text may end with a newline */
        return too_big(p);
    if (t->type == GGUF_ARRAY)
        return parse_array(p, t, old);
    return t->type == GGUF_STRING ? parse_string(p) : parse_scalar(p, t->type, old);
}

int text_parse(const struct gguf_format *fmt, const struct type_name *t, const uint8_t *text,
               size_t n, const struct gguf_value *old, struct buf *payload, struct err *e)
{
    if (!text)
        text = (const uint8_t *)"";
    struct parse p = {
        .fmt = fmt, .r = {text, text, text + n, e}, .out = payload, .start = payload->len};
    if (old && (old->type != t->type || (t->type == GGUF_ARRAY && old->elem != t->elem)))
        old = NULL;
    if (old && t->inner.at && !type_name_is(old, t->inner))
        old = NULL;
    int r = parse_value(&p, t, old);
    if (r == 0 && buf_error(payload))
        r = err_set(e, buf_error(payload), "no memory");
    if (r < 0)
        payload->len = p.start;
    return r;
}

/* ---- a text while it is still being written ---- */

enum {
    JUDGED = 100,  /* a longer prefix of a number is not checked */
    LOOKED = 4096, /* maximum number of bytes examined, because every write repeats the check */
};

/* Check a prefix of an integer without a space at its end. More digits can only make it larger. */
static int integer_prefix(uint32_t type, const uint8_t *p, size_t n)
{
    uint64_t bits;
    if (n == 1 && (*p == '-' || *p == '+'))
        return 0;
    return scan_scalar(type, p, n, &bits);
}

/*
 * Check a prefix of a float. It may become valid if it is a float, becomes one once a digit follows
 * (5e, -), or is the beginning of a word (-in). More digits can still change the magnitude, so the
 * range is checked only after a space has ended the number.
 */
static int float_prefix(uint32_t type, const uint8_t *p, size_t n, bool ended)
{
    uint8_t digit_follows[JUDGED + 1];
    uint64_t bits;
    if (ended)
        return scan_scalar(type, p, n, &bits);
    memcpy(digit_follows, p, n);
    digit_follows[n] = '0';
    bool ok = scan_is_float(p, n) || scan_is_float(digit_follows, n + 1) || scan_begins_word(p, n);
    return ok ? 0 : -EINVAL;
}

static int bool_prefix(const uint8_t *p, size_t n, bool ended)
{
    const char *word = *p == 't' ? "true" : "false";
    if (n > strlen(word) || memcmp(p, word, n) != 0 || (ended && n < strlen(word)))
        return -EINVAL;
    return 0;
}

static int scalar_prefix(uint32_t type, const uint8_t *p, size_t n)
{
    if (n > LOOKED)
        return 0;
    bool ended = n && is_space(p[n - 1]);
    scan_trim(&p, &n);
    if (n == 0 || n > JUDGED)
        return 0;
    switch (gguf_types[type].kind) {
    case GGUF_KIND_UINT:
    case GGUF_KIND_INT:
        return ended ? scan_scalar(type, p, n, &(uint64_t){0}) : integer_prefix(type, p, n);
    case GGUF_KIND_FLOAT:
        return float_prefix(type, p, n, ended);
    default:
        return bool_prefix(p, n, ended);
    }
}

/* Check the part of the first line that has been written. A text that begins with "[" is not
 * checked further. */
static int array_prefix(uint32_t elem, const uint8_t *p, size_t n)
{
    for (n = n < LOOKED ? n : LOOKED; n && is_space(*p); n--)
        p++;
    if (n == 0 || (elem != GGUF_ARRAY && *p == '['))
        return 0;
    if (elem == GGUF_ARRAY)
        return *p == '[' ? 0 : -EINVAL;
    if (elem == GGUF_STRING)
        return *p == '"' ? 0 : -EINVAL;
    const uint8_t *newline = memchr(p, '\n', n);
    return scalar_prefix(elem, p, newline ? (size_t)(newline - p) + 1 : n);
}

int text_prefix_check(uint32_t type, uint32_t elem, const uint8_t *text, size_t n)
{
    if (n > GGUF_MAX_STRING + 1)
        return -EFBIG;
    if (type == GGUF_STRING)
        return 0;
    return type == GGUF_ARRAY ? array_prefix(elem, text, n) : scalar_prefix(type, text, n);
}

/* ---- the type of a new value ---- */

static bool infer_array(const uint8_t *text, size_t n, uint32_t *elem)
{
    struct reader r = {text, text, text + n, NULL};
    struct shape s;
    if (shape_array(&r, &s, 0) < 0 || r.at != r.end)
        return false;
    if (shape_type(&s, elem)) /* the lines add one level of arrays */
        return *elem != GGUF_ARRAY || (!s.mixed && s.depth < GGUF_MAX_DEPTH);
    *elem = GGUF_STRING;
    return s.kinds == 0;
}

void text_new_type(const struct key_row *row, const uint8_t *text, size_t n, uint32_t *type,
                   uint32_t *elem)
{
    struct integer v;
    struct shape s = {0};
    scan_trim(&text, &n);
    if (!row) {
        *type = *elem = GGUF_STRING;
        if (n && *text == '[')
            *type = infer_array(text, n, elem) ? GGUF_ARRAY : GGUF_STRING;
        else if (shape_add_word(&s, text, n) && !s.huge)
            (void)shape_type(&s, type);
        return;
    }
    *type = row->type;
    *elem = row->elem;
    if ((row->flags & KEY_PER_LAYER) && n && (*text == '[' || memchr(text, '\n', n)))
        *type = GGUF_ARRAY;
    else if ((row->flags & KEY_COUNT) && scan_integer(text, n, &v) == 0 &&
             !integer_fits(row->type, &v) && integer_fits(GGUF_U64, &v))
        *type = GGUF_U64;
}

/* SPDX-License-Identifier: MIT */
/* A GGUF image from its bytes to a struct gguf: see gguf.h, docs/format.md. */
#include "gguf/cursor.h"

#include <stdlib.h>

#include "base/far.h"
#include "gguf/keys.h"
#include "gguf/sniff.h"

/* The fewest bytes that a key-value and a tensor info can take in any version. */
#define LEAST_KEY 10
#define LEAST_TENSOR 20
/* No model has more keys or tensors: a larger count is damage, not a sign of a truncated file. */
#define PLAUSIBLE_COUNT 1000000

/* The magic differs: report what the file is, if it is recognised. */
static int not_gguf(const struct cursor *c)
{
    char magic[SHOW_MAX];
    const struct sniffed *s = sniff_bytes(c->bytes, (size_t)c->have, c->src->size);
    if (s)
        return cursor_fail(c, -EBADMSG, "magic", 0, "this is %s, not a GGUF file: %s", s->what,
                           s->todo);
    return cursor_fail(c, -EBADMSG, "magic", 0, "'%s' is not 'GGUF'",
                       show(magic, c->bytes, (size_t)min_u64(c->have, 4)));
}

/*
 * Magic and version. The magic is the same in both byte orders; a file is big-endian when the low
 * half of its version word, read as little-endian, is zero.
 */
static int parse_version(struct cursor *c)
{
    size_t n = (size_t)min_u64(c->src->size, 4);
    int r = cursor_need(c, n, "magic");
    if (r < 0)
        return r;
    if (n == 0 || memcmp(c->bytes, "GGUF", n) != 0)
        return not_gguf(c);
    r = cursor_need(c, 8, "magic");
    if (r < 0)
        return r;
    uint32_t version = get_u32(c->bytes + 4, false);
    bool big = version != 0 && (version & 0xffff) == 0;
    if (big)
        version = get_u32(c->bytes + 4, true);
    if (version < 1 || version > 3 || (version == 1 && big))
        return cursor_fail(c, -EBADMSG, "version", 4, "%s%u is not a version of GGUF (1, 2, 3)",
                           big ? "big-endian " : "", version);
    c->fmt = (struct gguf_format){
        .version = (uint8_t)version, .big = big, .len_width = version == 1 ? 4 : 8};
    c->pos = 8;
    return 0;
}

static int parse_count(struct cursor *c, const char *field, uint64_t least, uint64_t *ret)
{
    uint64_t at = c->pos;
    int r = cursor_uint(c, c->fmt.len_width, field, ret);
    if (r == 0 && *ret > cursor_left(c) / least)
        return cursor_fail(c, -EBADMSG, field, at, "%llu cannot fit into a file of %llu bytes%s",
                           (unsigned long long)*ret, (unsigned long long)c->src->size,
                           *ret <= PLAUSIBLE_COUNT ? CURSOR_CUT : "");
    if (r == 0 && *ret > GGUF_MAX_ITEMS)
        return cursor_fail(c, -EFBIG, field, at, "%llu is over the limit of %llu",
                           (unsigned long long)*ret, (unsigned long long)GGUF_MAX_ITEMS);
    return r;
}

/*
 * The first draft pads the keys to 64 with zeros, by a formula that adds 64 bytes if they already
 * end on a multiple. Writers did that, or wrote no padding.
 */
static int draft_padding(struct cursor *c)
{
    static const uint8_t zeros[GGUF_DRAFT_ALIGNMENT];
    uint64_t n = GGUF_DRAFT_ALIGNMENT - c->pos % GGUF_DRAFT_ALIGNMENT;
    bool whole = n == GGUF_DRAFT_ALIGNMENT;
    if (whole && cursor_left(c) < n)
        return 0;
    int r = cursor_need(c, n, "padding");
    if (r < 0)
        return r;
    bool zero = memcmp(c->bytes + c->pos, zeros, (size_t)n) == 0;
    if (!zero && !whole)
        return cursor_fail(c, -EBADMSG, "padding", c->pos, "is not zero");
    c->pos += zero ? n : 0;
    return 0;
}

static int parse_body(struct cursor *c, struct gguf *g)
{
    uint64_t n_tensors, n_kv;
    int r = parse_count(c, "number of tensors", LEAST_TENSOR, &n_tensors);
    if (r == 0)
        r = parse_count(c, "number of keys", LEAST_KEY, &n_kv);
    if (r == 0)
        r = parse_keys(c, g, n_kv);
    if (r < 0)
        return r;
    g->kv_end = c->pos;
    if (c->fmt.draft && n_tensors > 0)
        r = draft_padding(c);
    if (r < 0)
        return r;
    g->info_off = c->pos;
    r = parse_tensors(c, g, n_tensors);
    g->head_len = c->pos;
    return r;
}

/*
 * Early writers counted a trailing NUL in the length of every string. A file of version 1 or 2 in
 * which all strings end so comes from one; names and values are then shown without the NUL.
 */
static void trim_nul(struct cursor *c, struct gguf *g)
{
    c->fmt.nul = c->fmt.version <= 2 && c->strings > 0 && c->nul_ends == c->strings;
    for (uint32_t i = 0; c->fmt.nul && i < g->n_kv; i++)
        g->kv[i].key_len--;
    for (uint32_t i = 0; c->fmt.nul && i < g->n_tensors; i++)
        g->tensor[i].name_len--;
}

/* The bytes of the name of key or tensor i. */
struct name {
    const char *bytes;
    size_t len;
};

static struct name name_of(const struct gguf *g, bool keys, uint32_t i)
{
    if (keys)
        return (struct name){gguf_key(g, &g->kv[i]), g->kv[i].key_len};
    return (struct name){gguf_name(g, &g->tensor[i]), g->tensor[i].name_len};
}

/* The name as a reader of C strings sees it. */
static struct name before_nul(struct name n)
{
    return (struct name){n.bytes, strnlen(n.bytes, n.len)};
}

static bool same(struct name a, struct name b)
{
    return a.len == b.len && memcmp(a.bytes, b.bytes, a.len) == 0;
}

/* The number of a name. `whole`: compare all bytes, not only those before the first NUL. */
static uint32_t find(const struct gguf *g, bool keys, struct name n, bool whole)
{
    uint32_t i;
    struct name t = before_nul(n);
    const struct index *ix = keys ? &g->keys : &g->names;
    for (struct probe p = index_probe(ix, hash_name(t.bytes, t.len)); index_next(ix, &p, &i);) {
        struct name other = name_of(g, keys, i);
        if (whole ? same(other, n) : same(before_nul(other), t))
            return i;
    }
    return UINT32_MAX;
}

/*
 * Enter number i under its bytes before the first NUL. Refused: a name that equals another up to
 * there, and a key that equals one that readers look for. Many readers compare C strings: for them,
 * and not for others, such a `general.alignment` would move the data.
 */
static int enter(struct cursor *c, struct gguf *g, bool keys, uint32_t i)
{
    char shown[SHOW_MAX];
    struct name n = name_of(g, keys, i), t = before_nul(n);
    uint32_t first = find(g, keys, n, false);
    bool known = keys && t.len < n.len && key_find(t.bytes, t.len);
    if (first == UINT32_MAX)
        index_insert(keys ? &g->keys : &g->names, hash_name(t.bytes, t.len), i);
    if (first == UINT32_MAX && !known)
        return 0;
    c->item = keys ? "key" : "tensor";
    c->item_no = i;
    c->name_off = (uint64_t)(n.bytes - (const char *)g->head);
    c->name_len = n.len;
    if (first == UINT32_MAX)
        return cursor_fault(c, -EBADMSG, "name", c->name_off,
                            "readers that stop at a NUL read it as '%s'",
                            show(shown, t.bytes, t.len));
    bool equal = same(name_of(g, keys, first), n);
    return cursor_fault(c, -EBADMSG, "name", c->name_off, "the same name as %s %u%s", c->item,
                        first, equal ? "" : " up to a NUL");
}

static int build_indexes(struct cursor *c, struct gguf *g)
{
    int r = index_init(&g->keys, g->n_kv);
    if (r == 0)
        r = index_init(&g->names, g->n_tensors);
    if (r < 0)
        return cursor_fail(c, r, "names", c->pos, "no memory");
    for (uint32_t i = 0; i < g->n_kv && r == 0; i++)
        r = enter(c, g, true, i);
    for (uint32_t i = 0; i < g->n_tensors && r == 0; i++)
        r = enter(c, g, false, i);
    return r;
}

static int find_alignment(struct cursor *c, struct gguf *g)
{
    static const char key[] = "general.alignment";
    g->alignment = c->fmt.draft ? GGUF_DRAFT_ALIGNMENT : GGUF_DEFAULT_ALIGNMENT;
    uint32_t i = gguf_find_key(g, key, sizeof(key) - 1);
    if (i == UINT32_MAX || c->fmt.draft)
        return 0;
    struct gguf_value v = gguf_value(g, &g->kv[i]);
    c->item = "key";
    c->item_no = i;
    c->name_off = g->kv[i].key_off;
    c->name_len = g->kv[i].key_len;
    if (v.type != GGUF_U32)
        return cursor_fault(c, -EBADMSG, "value type", g->kv[i].val_off - 4, "must be u32, is %s",
                            gguf_types[v.type].name);
    if (!is_pow2(gguf_uint(&v)))
        return cursor_fault(c, -EBADMSG, "value", g->kv[i].val_off, "%llu is not a power of two",
                            (unsigned long long)gguf_uint(&v));
    g->alignment = gguf_uint(&v);
    c->item = NULL;
    return 0;
}

static int parse_rest(struct cursor *c, struct gguf *g, unsigned flags)
{
    int r = parse_body(c, g);
    if (r < 0)
        return r;
    trim_nul(c, g);
    g->fmt = c->fmt;
    g->file_size = c->src->size;
    g->head = c->bytes;
    r = build_indexes(c, g);
    if (r == 0)
        r = find_alignment(c, g);
    if (r == 0)
        r = parse_layout(c, g, flags);
    return r;
}

/* Hand the header's bytes to the model, without those loaded beyond its end. */
static void take_bytes(struct cursor *c, struct gguf *g)
{
    uint8_t *exact = c->given ? NULL : realloc(c->bytes, (size_t)g->head_len);
    g->head = exact ? exact : c->bytes;
    c->bytes = NULL;
}

/* Parse in the layout of c->fmt. */
static int parse_as(struct cursor *c, unsigned flags, struct gguf **ret)
{
    struct gguf *g = calloc(1, sizeof(*g));
    if (!g)
        return cursor_fail(c, -ENOMEM, "header", 0, "no memory");
    atomic_init(&g->refs, 1);
    int r = parse_rest(c, g, flags);
    if (r < 0) {
        g->head = NULL; /* still owned by the cursor */
        gguf_free(g);
        return r;
    }
    take_bytes(c, g);
    *ret = g;
    return 0;
}

/*
 * Try version 1 as shipped first. If the file is malformed as a first draft too, report the error
 * of the layout as shipped, which all known files have. Any other error concerns a draft.
 */
static int parse_draft(struct cursor *c, unsigned flags, struct gguf **ret)
{
    struct err why = {0};
    struct cursor d = {.src = c->src,
                       .fmt = {.version = 1, .draft = true, .len_width = 4},
                       .bytes = c->bytes,
                       .have = c->have,
                       .cap = c->cap,
                       .pos = 8,
                       .err = &why};
    int r = parse_as(&d, flags, ret);
    c->bytes = d.bytes;
    if (r < 0 && r != -EBADMSG && c->err)
        *c->err = why;
    return r;
}

/* The header is read in order, in growing pieces: the kernel would fetch as much again behind it. */
static bool begin_exact(const struct source *s)
{
    bool far = s->fd >= 0 && far_file(s->fd);
    if (far)
        far_exact(s->fd, true);
    return far;
}

int gguf_parse(const struct source *s, unsigned flags, struct gguf **ret, struct err *e)
{
    struct cursor c = {.src = s, .err = e};
    bool far = begin_exact(s);
    int r = parse_version(&c);
    if (r == 0)
        r = parse_as(&c, flags, ret);
    if (r == -EBADMSG && c.fmt.version == 1)
        r = parse_draft(&c, flags, ret);
    if (far)
        far_exact(s->fd, false);
    free(c.bytes);
    return r;
}

int gguf_parse_head(const struct source *s, uint8_t *head, uint64_t len, struct gguf **ret,
                    struct err *e)
{
    struct cursor c = {.src = s, .err = e, .bytes = head, .given = true, .have = len, .cap = len};
    int r = parse_version(&c);
    return r < 0 ? r : parse_as(&c, 0, ret);
}

int gguf_parse_faults(const struct source *s, gguf_fault_fn *fault, void *arg, struct gguf **ret,
                      struct err *e)
{
    struct cursor c = {.src = s, .err = e, .fault_arg = arg};
    int r = parse_version(&c);
    c.fault = c.fmt.version == 1 ? NULL : fault;
    if (r == 0)
        r = parse_as(&c, 0, ret);
    if (r == -EBADMSG && c.fmt.version == 1)
        r = parse_draft(&c, 0, ret);
    free(c.bytes);
    return r;
}

struct gguf *gguf_ref(struct gguf *g)
{
    atomic_fetch_add(&g->refs, 1);
    return g;
}

void gguf_free(struct gguf *g)
{
    if (!g || atomic_fetch_sub(&g->refs, 1) != 1)
        return;
    index_free(&g->keys);
    index_free(&g->names);
    free(g->kv);
    free(g->tensor);
    free(g->head);
    free(g);
}

uint32_t gguf_find_key(const struct gguf *g, const void *key, size_t n)
{
    return find(g, true, (struct name){key, n}, true);
}

uint32_t gguf_find_tensor(const struct gguf *g, const void *name, size_t n)
{
    return find(g, false, (struct name){name, n}, true);
}

struct gguf_value gguf_value(const struct gguf *g, const struct gguf_kv *kv)
{
    return gguf_value_at(&g->fmt, kv->type, g->head + kv->val_off);
}

bool gguf_same_value(const struct gguf *a, uint32_t i, const struct gguf *b, uint32_t k)
{
    const struct gguf_kv *x = &a->kv[i], *y = &b->kv[k];
    uint64_t n = x->end - x->val_off;
    return x->type == y->type && n == y->end - y->val_off &&
           memcmp(a->head + x->val_off, b->head + y->val_off, (size_t)n) == 0;
}

uint64_t gguf_dim(const struct gguf *g, const struct gguf_tensor *t, uint32_t i)
{
    return get_uint(g->head + t->dims_off + (uint64_t)i * g->fmt.len_width, g->fmt.len_width,
                    g->fmt.big);
}

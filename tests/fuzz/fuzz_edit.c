/* SPDX-License-Identifier: MIT */
/*
 * Treats arbitrary bytes as a model, and the last 64 bytes also as a list of edits. If the model
 * can be edited, the new image must parse, have the strict layout, and keep the bytes of every
 * unedited tensor and key. Edits that are taken back leave no trace.
 */
#include "fuzz.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "edit/plan.h"
#include "../lib/changes.h"
#include "gguf/value.h"

#define SCRIPT 64
#define LARGEST ((uint64_t)1 << 24) /* limit on the new image, whose padding may be large */

struct script {
    const uint8_t *at, *end;
    bool odd; /* a value has other bytes than one of its type */
};

static uint8_t next(struct script *s)
{
    return s->at < s->end ? *s->at++ : 0;
}

/* Pick a key of the model, a new key, or one with a special meaning. */
static size_t pick(struct script *s, const struct gguf *g, char dst[64])
{
    static const char *const names[] = {"new.a",         "new.b",       "general.alignment",
                                        "ggufs.reserve", "split.count", "general.architecture"};
    uint8_t n = next(s);
    if (n & 1 && g->n_kv) {
        const struct gguf_kv *kv = &g->kv[(n >> 1) % g->n_kv];
        size_t len = kv->key_len < 64 ? kv->key_len : 63;
        memcpy(dst, gguf_key(g, kv), len);
        return len;
    }
    const char *name = names[(n >> 1) % (sizeof(names) / sizeof(names[0]))];
    memcpy(dst, name, strlen(name) + 1);
    return strlen(name);
}

/* Make bytes that are usually a value of the type. */
static size_t make_value(struct script *s, const struct gguf *g, uint32_t type, uint8_t dst[64])
{
    size_t n = next(s) % 32;
    memset(dst, 0, 64);
    if (type == GGUF_STRING) {
        put_u64(dst, n, g->fmt.big);
        return 8 + n;
    }
    if (type == GGUF_ARRAY) {
        put_u32(dst, GGUF_U8, g->fmt.big);
        put_u64(dst + 4, n, g->fmt.big);
        return 12 + n;
    }
    put_u32(dst, (uint32_t)1 << n, g->fmt.big);
    s->odd |= n == 31;
    return n == 31 ? n : gguf_types[type].width;
}

/* Pick the name of a tensor of the model, or one of two fixed names. */
static size_t pick_tensor(struct script *s, const struct gguf *g, char dst[64])
{
    uint8_t n = next(s);
    dst[0] = n & 2 ? 'x' : 'y';
    if (!(n & 1) || !g->n_tensors)
        return 1;
    const struct gguf_tensor *t = &g->tensor[(n >> 1) % g->n_tensors];
    size_t len = t->name_len < 64 ? t->name_len : 63;
    memcpy(dst, gguf_name(g, t), len);
    return len;
}

static int tensor_op(struct script *s, const struct gguf *g, struct edit_change *c, uint8_t kind,
                     struct err *e)
{
    char name[64], other[64];
    size_t len = pick_tensor(s, g, name), other_len = pick_tensor(s, g, other), n = next(s) % 64;
    struct tensor_shape shape = {24, 1 + n % 4, {n, 1, 1, 1}};
    static const char bytes[] = "The bytes of a tensor that is new, or was written, 64 at the most";
    struct log *d = memory_draft(bytes, n);
    if (!d)
        return -ENOMEM;
    struct tensor_piece p = {kind & 8 ? next(s) : 0, n, 0, d};
    int r;
    if (kind % 4 == 0)
        r = edit_tensor_remove(c, name, len, e);
    else if (kind % 4 == 1)
        r = edit_tensor_rename(c, name, len, other, other_len, e);
    else if (kind % 4 == 2)
        r = edit_tensor_set(c, name, len, NULL, &p, 1, e);
    else if (kind & 16)
        r = edit_tensor_set(c, name, len, &shape, &p, kind & 4 ? 1 : 0, e);
    else
        r = edit_tensor_add(c, name, len, &shape, &p, 1, 0, e);
    log_unref(d);
    return r;
}

/* Returns whether the operation was taken back. */
static bool add_op(struct script *s, const struct gguf *g, struct edit_change *c)
{
    char key[64], other[64];
    uint8_t kind = next(s), value[64];
    size_t key_len = pick(s, g, key), other_len = pick(s, g, other);
    uint32_t type = next(s) % GGUF_VALUE_TYPES;
    size_t n = make_value(s, g, type, value);
    struct err e = {0};
    size_t mark = edit_mark(c);
    int r = 0;
    if (kind & 0x20)
        r = tensor_op(s, g, c, kind, &e);
    else if (kind % 4 == 0)
        r = edit_remove(c, key, key_len, &e);
    else if (kind % 4 == 1)
        r = edit_rename(c, key, key_len, other, other_len, &e);
    else
        r = set_bytes(c, key, key_len, type, value, n, &e);
    FUZZ_CHECK(e.code == r && (r == 0 || (e.msg[0] && !strchr(e.msg, '\n'))));
    FUZZ_CHECK(r == 0 || edit_mark(c) == mark);
    if (kind & 0x80)
        edit_undo(c, mark);
    if (kind & 0x40)
        edit_keep(c, edit_mark(c));
    return kind & 0x80;
}

/* True if an operation has named a key of the old model. */
static bool touched(const struct edit_change *c, uint32_t kv)
{
    return c->slot_of && c->slot_of[kv];
}

static void check_keys(const struct gguf *old, const struct gguf *new, const struct edit_change *c)
{
    uint32_t before = 0;
    for (uint32_t i = 0; i < old->n_kv; i++) {
        const struct gguf_kv *a = &old->kv[i];
        const char *key = gguf_key(old, a);
        bool own = a->key_len == 13 && memcmp(key, KEY_RESERVE, 13) == 0;
        if (own || touched(c, i))
            continue;
        uint32_t k = gguf_find_key(new, key, a->key_len);
        FUZZ_CHECK(k != UINT32_MAX && k >= before);
        const struct gguf_kv *b = &new->kv[k];
        FUZZ_CHECK(b->end - b->off == a->end - a->off);
        FUZZ_CHECK(memcmp(new->head + b->off, old->head + a->off, a->end - a->off) == 0);
        before = k;
    }
}

/* A tensor's bytes in the new file are those in the old one, except for those of drafts. */
static void check_content(const struct edit_tensor *t, const struct gguf *old, const uint8_t *from,
                          const uint8_t *to, uint64_t n)
{
    const uint8_t *was = t->old == EDIT_NONE ? NULL : from + old->tensor[t->old].off;
    for (uint64_t at = 0, len; at < n; at += len) {
        const struct tensor_piece *piece = NULL;
        uint8_t bytes[64];
        len = tensor_content_stretch(t->content, at, min_u64(n - at, sizeof(bytes)), &piece);
        if (piece) {
            const struct source s = log_source(piece->log);
            FUZZ_CHECK(s.read(&s, piece->src + at - piece->at, bytes, (size_t)len) == 0);
        }
        FUZZ_CHECK((piece || was) && memcmp(to + at, piece ? bytes : was + at, (size_t)len) == 0);
    }
}

/* What lies between tensors is zero. */
static uint64_t check_padding(const uint8_t *bytes, uint64_t at, uint64_t end)
{
    for (; at < end; at++)
        FUZZ_CHECK(bytes[at] == 0);
    return end;
}

static void check_tensors(const struct gguf *old, const struct gguf *new, const uint8_t *from,
                          const uint8_t *to, const struct edit_plan *p)
{
    uint64_t at = check_padding(to, new->head_len, new->data_off), next;
    FUZZ_CHECK(p->tensor || new->n_tensors == old->n_tensors);
    for (uint32_t i = 0; i < new->n_tensors; i++) {
        const struct gguf_tensor *b = &new->tensor[i], *a = b;
        uint32_t k = p->tensor ? p->tensor[i].old : i;
        FUZZ_CHECK(b->off == at);
        if (k != EDIT_NONE && !(p->tensor && p->tensor[i].content)) {
            a = &old->tensor[k];
            FUZZ_CHECK(b->nbytes >= a->nbytes && b->type_id == a->type_id);
            FUZZ_CHECK(gguf_type(a) && gguf_type(a)->block_len ? a->nbytes == b->nbytes : true);
            FUZZ_CHECK(a->nbytes == 0 || memcmp(from + a->off, to + b->off, a->nbytes) == 0);
            FUZZ_CHECK(i + 1 < new->n_tensors || a->nbytes == b->nbytes);
            FUZZ_CHECK(!p->inplace || a->off == b->off);
        } else if (!gguf_type(b) || !gguf_type(b)->block_len) {
            a = k == EDIT_NONE ? b : &old->tensor[k];
        }
        if (p->tensor && p->tensor[i].content)
            check_content(&p->tensor[i], old, from, to + b->off, a->nbytes);
        FUZZ_CHECK(align_u64(at + a->nbytes, new->alignment, &next));
        at = check_padding(to, at + a->nbytes, min_u64(next, new->file_size));
    }
    FUZZ_CHECK(at == new->file_size);
    FUZZ_CHECK((new->anomalies & ~(unsigned)(GGUF_ANOMALY_UNKNOWN | GGUF_ANOMALY_NO_TAIL)) == 0);
}

static void check_plan(const struct gguf *g, const struct edit_change *c, const struct edit_plan *p,
                       const uint8_t *data, size_t size)
{
    p->image->file[EDIT_OLD_FILE] = source_mem(data, size);
    struct source s = image_source(p->image);
    struct gguf *new = NULL;
    if (s.size > LARGEST)
        return;
    uint8_t *bytes = malloc((size_t)s.size);
    FUZZ_CHECK(bytes && s.read(&s, 0, bytes, (size_t)s.size) == 0);
    struct source mem = source_mem(bytes, (size_t)s.size);
    FUZZ_CHECK(gguf_parse(&mem, 0, &new, NULL) == 0);
    check_keys(g, new, c);
    check_tensors(g, new, data, bytes, p);
    FUZZ_CHECK(!p->inplace || (p->changed ? s.size >= size : s.size == size));
    FUZZ_CHECK(!p->inplace || new->data_off == g->data_off);
    FUZZ_CHECK(!p->same || memcmp(bytes, data, (size_t)g->head_len) == 0);
    gguf_free(new);
    free(bytes);
}

/* The plans must describe the same file. */
static void same_plan(const struct edit_change *c, const struct edit_change *d,
                      const struct edit_options *o, const uint8_t *data, size_t size)
{
    const struct edit_change *const of[] = {c, d};
    struct edit_plan p[2] = {0};
    uint8_t *bytes[2] = {NULL};
    int r[2];
    for (int i = 0; i < 2; i++) {
        r[i] = edit_plan_make(of[i], o, &p[i], NULL);
        if (r[i] < 0 || p[i].image->size > LARGEST)
            continue;
        p[i].image->file[EDIT_OLD_FILE] = source_mem(data, size);
        bytes[i] = malloc((size_t)p[i].image->size);
        FUZZ_CHECK(bytes[i] &&
                   image_read(p[i].image, NULL, 0, bytes[i], (size_t)p[i].image->size) == 0);
    }
    FUZZ_CHECK(r[0] == r[1] && !bytes[0] == !bytes[1]);
    FUZZ_CHECK(r[0] < 0 || p[0].image->size == p[1].image->size);
    FUZZ_CHECK(!bytes[0] || memcmp(bytes[0], bytes[1], (size_t)p[0].image->size) == 0);
    for (int i = 0; i < 2; i++) {
        free(bytes[i]);
        edit_plan_free(&p[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct source src = source_mem(data, size);
    struct gguf *g = NULL;
    if (size < SCRIPT || gguf_parse(&src, 0, &g, NULL) < 0)
        return 0;
    struct script s = {data + size - SCRIPT, data + size, false};
    static const uint64_t reserves[] = {0, 100, 5000, EDIT_RESERVE_AUTO};
    struct edit_options o = {.strategy = next(&s) % 4, .reserve = reserves[next(&s) % 4]};
    CLEANUP(edit_change_free) struct edit_change c, kept; /* kept: what was not taken back */
    CLEANUP(edit_plan_free) struct edit_plan p = EDIT_PLAN_INIT;
    struct err e = {0};
    edit_change_init(&c, &(struct edit_base){.g = g});
    edit_change_init(&kept, &(struct edit_base){.g = g});
    for (uint32_t i = 0; i < g->n_kv; i++) /* no other key may be equal up to a NUL */
        s.odd |= memchr(gguf_key(g, &g->kv[i]), 0, g->kv[i].key_len) != NULL;
    for (unsigned n = next(&s) % 8; n > 0; n--) {
        struct script again = s;
        if (!add_op(&s, g, &c))
            (void)add_op(&again, g, &kept);
    }
    int r = edit_plan_make(&c, &o, &p, &e);
    FUZZ_CHECK(e.code == r && (r == 0 || (e.msg[0] && !strchr(e.msg, '\n'))));
    FUZZ_CHECK(r != -EINVAL || s.odd);
    if (r == 0)
        check_plan(g, &c, &p, data, size);
    same_plan(&c, &kept, &o, data, size);
    gguf_free(g);
    return 0;
}

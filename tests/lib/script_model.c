/* SPDX-License-Identifier: MIT */
/* Makes and reads the model of a script: see script_model.h. */
#include "script_model.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "build_gguf.h"
#include "gguf/gguf.h"
#include "gguf/value.h"
#include "model_dir.h"
#include "text/text.h"

#define FIRST "model-00001-of-00002.gguf"
#define SECOND "model-00002-of-00002.gguf"

/* ---- make ---- */

static void put_split(struct build *b, unsigned no, unsigned tensors)
{
    build_num(b, "split.no", GGUF_U16, no);
    build_num(b, "split.tensors.count", GGUF_I32, tensors);
    build_num(b, "split.count", GGUF_U16, 2);
}

static struct content finish(struct build *b)
{
    struct content i;
    i.bytes = build_finish(b, &i.n);
    return i;
}

static struct content make_second(unsigned tensors)
{
    struct build b;
    uint8_t dashes[9001];
    memset(dashes, '-', sizeof(dashes));
    build_init(&b, 3, false);
    put_split(&b, 1, tensors);
    build_tensor(&b, tensors > 2 ? "other" : "b", I8, SHAPE(sizeof(dashes)), dashes,
                 sizeof(dashes));
    return finish(&b);
}

static void put_tensors(struct build *b, bool large)
{
    uint8_t values[24];
    for (unsigned i = 0; i < 6; i++) {
        float value = (float)(i + 1);
        uint32_t bits;
        memcpy(&bits, &value, 4);
        put_u32(values + (size_t)4 * i, bits, b->fmt.big);
    }
    build_tensor(b, "a", I8, SHAPE(8), "abcdefgh", 8);
    build_tensor(b, "b", F32, SHAPE(3, 2), values, 24);
    build_tensor(b, "c", I8, SHAPE(4), "wxyz", 4);
    size_t n = large ? SCRIPT_LARGE_SIZE : 20000;
    uint8_t *dots = malloc(n);
    CU_ASSERT_PTR_NOT_NULL_FATAL(dots);
    memset(dots, '.', n);
    build_tensor(b, large ? "big" : "z", I8, SHAPE(n), dots, n);
    free(dots);
}

static void put_deep(struct build *b)
{
    build_array(b, "a.deep", GGUF_ARRAY, 2);
    build_item_array(b, GGUF_U8, 2);
    build_item_num(b, GGUF_U8, 1);
    build_item_num(b, GGUF_U8, 2);
    build_item_array(b, GGUF_U8, 1);
    build_item_num(b, GGUF_U8, 3);
}

void script_model_make(struct script_model *m, unsigned how)
{
    struct build b;
    bool split = how & SCRIPT_SPLIT;
    build_init(&b, 3, how & SCRIPT_BIG);
    build_str(&b, "general.architecture", "test");
    build_str(&b, "a.name", "one");
    build_u32(&b, "a.count", 7);
    build_u32(&b, "a.other", 8);
    build_array(&b, "a.list", GGUF_I32, 3);
    for (unsigned i = 1; i <= 3; i++)
        build_item_num(&b, GGUF_I32, i);
    if (how & SCRIPT_DEEP)
        put_deep(&b);
    const unsigned tensors = how & SCRIPT_TENSORS ? 5 : 2;
    const size_t second = how & SCRIPT_LARGE ? SCRIPT_LARGE_SIZE : 9001;
    if (split)
        put_split(&b, 0, tensors);
    if (how & SCRIPT_TENSORS)
        put_tensors(&b, how & SCRIPT_LARGE);
    else
        build_tensor(&b, "a", F32, SHAPE(5), NULL, 20);
    if (!split && !(how & SCRIPT_TENSORS))
        build_tensor(&b, "b", I8, SHAPE(second), NULL, second);
    *m = (struct script_model){.old = finish(&b)};
    make_place(&m->place, &m->old);
    if (!split)
        return;
    m->other = make_second(tensors);
    put_file(m->place.dir, SECOND, m->other.bytes, m->other.n);
    (void)snprintf(m->place.model, sizeof(m->place.model), "%s/" FIRST, m->place.folder);
    CU_ASSERT_EQUAL_FATAL(renameat(m->place.dir, NAME, m->place.dir, FIRST), 0);
}

void script_model_drop(struct script_model *m)
{
    drop_place(&m->place);
    free(m->old.bytes);
    free(m->other.bytes);
}

/* ---- read back ---- */

static bool is_own(const char *key, size_t n)
{
    static const char *const whole[] = {"general.architecture", KEY_RESERVE};
    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++)
        if (n == strlen(whole[i]) && memcmp(key, whole[i], n) == 0)
            return true;
    return n > 6 && memcmp(key, "split.", 6) == 0;
}

static void put_key(const struct gguf *g, const struct gguf_kv *kv, struct buf *out)
{
    char type[GGUF_TYPE_NAME_MAX];
    struct gguf_value v = gguf_value(g, kv);
    buf_printf(out, "%.*s:%s=", (int)kv->key_len, gguf_key(g, kv), gguf_type_name(&v, type));
    size_t from = out->len;
    text_value(out, &v);
    if (out->len > from) /* replace the last newline */
        out->len--;
    for (size_t i = from; i < out->len; i++)
        if (out->data[i] == '\n')
            out->data[i] = ',';
    buf_char(out, ' ');
}

bool script_model_keys(const void *bytes, size_t n, struct buf *out)
{
    struct gguf *g = NULL;
    struct source s = source_mem(bytes, n);
    if (gguf_parse(&s, 0, &g, NULL) < 0)
        return false;
    for (uint32_t i = 0; i < g->n_kv; i++)
        if (!is_own(gguf_key(g, &g->kv[i]), g->kv[i].key_len))
            put_key(g, &g->kv[i], out);
    buf_char(out, '\0');
    bool good = g->anomalies == 0 && gguf_find_key(g, "general.architecture", 20) == 0;
    gguf_free(g);
    return good && buf_error(out) == 0;
}

static bool same_tensors(const struct content *a, const struct content *b)
{
    struct gguf *ga = NULL, *gb = NULL;
    struct source sa = source_mem(a->bytes, a->n), sb = source_mem(b->bytes, b->n);
    bool good = gguf_parse(&sa, 0, &ga, NULL) == 0 && gguf_parse(&sb, 0, &gb, NULL) == 0 &&
                ga->n_tensors == gb->n_tensors;
    for (uint32_t i = 0; good && i < ga->n_tensors; i++)
        good = ga->tensor[i].nbytes == gb->tensor[i].nbytes &&
               memcmp(a->bytes + ga->tensor[i].off, b->bytes + gb->tensor[i].off,
                      (size_t)ga->tensor[i].nbytes) == 0;
    gguf_free(ga);
    gguf_free(gb);
    return good;
}

void script_model_brief(struct buf *out, const void *bytes, size_t n)
{
    const char *text = bytes;
    for (size_t i = 0, same; i < n; i += same) {
        for (same = 1; i + same < n && text[i + same] == text[i];)
            same++;
        if (same > 8)
            buf_printf(out, "%c{%zu}", text[i], same);
        else
            buf_add(out, text + i, same);
    }
}

static void put_tensor(const struct gguf *g, const struct gguf_tensor *t, const uint8_t *bytes,
                       struct buf *out)
{
    const struct quant_type *type = gguf_type(t);
    buf_printf(out, "%.*s:%s:", (int)t->name_len, gguf_name(g, t), type ? type->name : "unknown");
    for (uint32_t i = t->n_dims; i-- > 0;)
        buf_printf(out, "%llu%s", (unsigned long long)gguf_dim(g, t, i), i ? "x" : "=");
    if (t->type_id == I8)
        script_model_brief(out, bytes, (size_t)t->nbytes);
    else if (t->type_id != F32)
        buf_printf(out, "%llu", (unsigned long long)t->nbytes);
    for (uint64_t at = 0; t->type_id == F32 && at < t->nbytes; at += 4) {
        uint32_t bits = get_u32(bytes + at, g->fmt.big);
        float value;
        memcpy(&value, &bits, 4);
        buf_printf(out, "%s%g", at ? "," : "", (double)value);
    }
    buf_char(out, ' ');
}

static bool put_file_tensors(const struct content *file, struct buf *out)
{
    struct gguf *g = NULL;
    struct source s = source_mem(file->bytes, file->n);
    if (gguf_parse(&s, 0, &g, NULL) < 0)
        return false;
    for (uint32_t i = 0; i < g->n_tensors; i++)
        put_tensor(g, &g->tensor[i], (const uint8_t *)file->bytes + g->tensor[i].off, out);
    bool good = g->anomalies == 0;
    gguf_free(g);
    return good;
}

static struct content read_back(const struct script_model *m, const char *name)
{
    struct content i;
    i.bytes = get_file(m->place.dir, name, &i.n);
    return i;
}

struct content script_model_file(const struct script_model *m)
{
    return read_back(m, m->other.bytes ? FIRST : NAME);
}

bool script_model_tensors(const struct script_model *m, struct buf *out)
{
    struct content first = script_model_file(m), second = {0};
    if (m->other.bytes)
        second = read_back(m, SECOND);
    bool good = put_file_tensors(&first, out) && (!second.bytes || put_file_tensors(&second, out));
    buf_char(out, '\0');
    free(first.bytes);
    free(second.bytes);
    return good && buf_error(out) == 0;
}

bool script_model_whole(const struct script_model *m)
{
    bool split = m->other.bytes != NULL;
    struct content now = script_model_file(m);
    bool good = same_tensors(&m->old, &now) && files_in(&m->place) == 1 + split;
    free(now.bytes);
    if (split) {
        now = read_back(m, SECOND);
        good &= same(&now, &m->other);
        free(now.bytes);
    }
    return good;
}

bool script_model_alone(const struct script_model *m)
{
    return files_in(&m->place) == 1 + (m->other.bytes != NULL);
}

/* ---- copies held and failed, a full disk ---- */

static struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool hold;
    bool full;     /* no room is left */
    unsigned held; /* number of waiting copies */
    int spoilt;    /* result of the waiting copies; 0: success */
    int error;     /* error that copies return */
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

void script_copies_hold(void)
{
    (void)pthread_mutex_lock(&gate.lock);
    gate.hold = true;
    (void)pthread_mutex_unlock(&gate.lock);
}

void script_disk_full(bool full)
{
    (void)pthread_mutex_lock(&gate.lock);
    gate.full = full;
    (void)pthread_mutex_unlock(&gate.lock);
}

void script_copies_go(int error)
{
    (void)pthread_mutex_lock(&gate.lock);
    gate.hold = false;
    gate.spoilt = error;
    (void)pthread_cond_broadcast(&gate.changed);
    (void)pthread_mutex_unlock(&gate.lock);
}

bool script_copies_are_held(void)
{
    (void)pthread_mutex_lock(&gate.lock);
    const bool hold = gate.hold;
    (void)pthread_mutex_unlock(&gate.lock);
    return hold;
}

bool script_copies_held(void)
{
    struct timespec until;
    int r = 0;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_MOST;
    (void)pthread_mutex_lock(&gate.lock);
    while (gate.held == 0 && r == 0)
        r = pthread_cond_timedwait(&gate.changed, &gate.lock, &until);
    (void)pthread_mutex_unlock(&gate.lock);
    return r == 0;
}

void script_copies_fail(int error)
{
    (void)pthread_mutex_lock(&gate.lock);
    gate.error = error;
    (void)pthread_mutex_unlock(&gate.lock);
}

/* Wait while copies are held. Returns true if the call had to wait. *error: the copy's error, or
 * 0. */
static bool pass(int *error)
{
    (void)pthread_mutex_lock(&gate.lock);
    bool held = gate.hold;
    if (held) {
        gate.held++;
        (void)pthread_cond_broadcast(&gate.changed);
        while (gate.hold)
            (void)pthread_cond_wait(&gate.changed, &gate.lock);
        gate.held--;
    }
    *error = held && gate.spoilt ? gate.spoilt : gate.error;
    (void)pthread_mutex_unlock(&gate.lock);
    return held;
}

/* Replaces the C library's function. A copy that was held then moves only one byte, so it is not
 * finished yet. */
ssize_t copy_file_range(int from, off64_t *from_off, int to, off64_t *to_off, size_t n,
                        unsigned flags)
{
    int error;
    bool held = pass(&error);
    if (error) {
        errno = error;
        return -1;
    }
    return syscall(SYS_copy_file_range, from, from_off, to, to_off, held ? 1 : n, flags);
}

int fstatvfs(int fd, struct statvfs *ret)
{
    struct statfs st;
    if (fstatfs(fd, &st) < 0)
        return -1;
    (void)pthread_mutex_lock(&gate.lock);
    if (gate.full)
        st.f_bfree = st.f_bavail = 0;
    (void)pthread_mutex_unlock(&gate.lock);
    *ret = (struct statvfs){.f_bsize = (unsigned long)st.f_bsize,
                            .f_frsize = (unsigned long)st.f_frsize,
                            .f_blocks = st.f_blocks,
                            .f_bfree = st.f_bfree,
                            .f_bavail = st.f_bavail};
    return 0;
}

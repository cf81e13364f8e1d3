/* SPDX-License-Identifier: MIT */
/* Drafts of tensor views and how they are judged. For many types, every view and both byte orders,
 * random writes are compared with a plain array, and with quant_write() of the whole tensor. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "live/tensor_judge.h"
#include "quant/encode.h"
#include "quant/types.h"
#include "soak.h"
#include "tensor_dir.h"

/* A draft, and an array with its content. */
struct pair {
    struct tensor_dir x;
    struct tensor_base *base; /* the tensor after the last edit */
    struct draft *d;
    enum tensor_view view;
    uint8_t *shown;
    size_t n, most;
    bool meanwhile; /* also write to the draft while it is being judged */
};

static void pair_make(struct pair *p, uint32_t type, bool big, enum tensor_view view,
                      const uint64_t *dims, uint32_t n_dims)
{
    struct err e = {0};
    *p = (struct pair){0};
    tensor_dir_make(&p->x, type, big, dims, n_dims, NULL);
    p->base = tensor_base_ref(p->x.base);
    p->view = view;
    p->shown = tensor_dir_bytes(p->base, view, &p->n);
    p->most = p->n;
    CU_ASSERT_EQUAL_FATAL(tensor_draft_make(&p->x.logs, p->base, view, &p->d, &e), 0);
}

static void pair_free(struct pair *p)
{
    draft_free(p->d);
    tensor_base_unref(p->base);
    free(p->shown);
    tensor_dir_free(&p->x);
}

/* Check that part of the draft equals the same part of the array. */
static void check_shown(struct pair *p, size_t off, size_t n)
{
    size_t got = 99, want = off < p->n ? (size_t)min_u64(n, p->n - off) : 0;
    uint8_t *bytes = malloc(n + 1);
    CU_ASSERT_EQUAL(tensor_draft_read(p->d, off, bytes, n, &got), 0);
    CU_ASSERT_EQUAL_FATAL(got, want);
    CU_ASSERT_EQUAL_FATAL(memcmp(bytes, p->shown + off, want), 0);
    free(bytes);
}

static void put(struct pair *p, size_t off, const void *bytes, size_t n)
{
    struct err e = {0};
    int r = tensor_draft_write(p->d, false, off, bytes, n, &e);
    if (off + n > p->most) {
        CU_ASSERT_EQUAL(r, -EFBIG);
        CU_ASSERT_EQUAL(e.code, -EFBIG);
        return;
    }
    CU_ASSERT_EQUAL_FATAL(r, 0);
    if (off > p->n)
        memset(p->shown + p->n, 0, off - p->n);
    memcpy(p->shown + off, bytes, n);
    p->n = p->n > off + n ? p->n : off + n;
    CU_ASSERT_EQUAL(p->d->size, p->n);
}

static void cut(struct pair *p, size_t n)
{
    struct err e = {0};
    int r = tensor_draft_truncate(p->d, n, &e);
    if (n > p->most) {
        CU_ASSERT_EQUAL(r, -EFBIG);
        return;
    }
    CU_ASSERT_EQUAL_FATAL(r, 0);
    if (n > p->n)
        memset(p->shown + p->n, 0, n - p->n);
    p->n = n;
}

/* Draw values, most of which fit any type. */
static void draw_values(uint8_t *dst, size_t n, unsigned width)
{
    for (size_t i = 0; i + width <= n; i += width) {
        float v = (float)tensor_dir_draw(64) - 32;
        uint16_t half = (uint16_t)(0x3c00 + tensor_dir_draw(1024));
        if (width == 4)
            memcpy(dst + i, &v, 4);
        else
            put_u16(dst + i, half, false);
    }
}

#define MOST 2500000 /* maximum bytes per write */

static void write_some(struct pair *p)
{
    static uint8_t bytes[MOST];
    unsigned width = p->view == TENSOR_RAW ? 1 : tensor_views[p->view].form->width;
    size_t n = 1 + tensor_dir_draw(tensor_dir_draw(3) ? 300 : tensor_dir_draw(4) ? 9000 : 300000);
    size_t off = tensor_dir_draw(p->most);
    if (p->most > MOST && tensor_dir_draw(3) == 0) { /* a large write */
        n = MOST - tensor_dir_draw(2000000);
        off = tensor_dir_draw(p->most - n);
    }
    if (p->view == TENSOR_RAW) {
        for (size_t i = 0; i < n; i++)
            bytes[i] = (uint8_t)tensor_dir_draw(256);
    } else {
        off -= off % width;
        n = (n + width - 1) / width * width;
        draw_values(bytes, n, width);
    }
    if (n > p->most - off && tensor_dir_draw(10))
        n = p->most - off;
    if (tensor_dir_draw(4) == 0 && off < p->n) { /* write the bytes that are already there */
        n = n < p->n - off ? n : p->n - off;
        memcpy(bytes, p->shown + off, n);
    }
    put(p, off, bytes, n);
}

/* Return the bytes of the tensor after quant_write() of the array, or NULL if that fails. *want:
 * its result. */
static uint8_t *expected(const struct pair *p, int *want)
{
    const struct quant_type *t = quant_find(p->base->type);
    struct quant_fault fault;
    size_t n;
    uint8_t *raw = tensor_dir_bytes(p->base, TENSOR_RAW, &n);
    if (p->view == TENSOR_RAW)
        memcpy(raw, p->shown, n);
    else
        *want = quant_write(t, p->base->big, tensor_views[p->view].values, raw, p->shown,
                            (size_t)p->base->n_elem / t->block_len, raw, NULL, &fault);
    if (*want == 0)
        return raw;
    free(raw);
    return NULL;
}

/* Bytes written after a judgement, before its result is recorded, are not part of it. */
static void write_meanwhile(struct pair *p)
{
    for (uint64_t i = tensor_dir_draw(4); i > 0; i--) {
        if (tensor_dir_draw(3) == 0)
            cut(p, tensor_dir_draw(p->most));
        else
            write_some(p);
        check_shown(p, tensor_dir_draw(p->most), tensor_dir_draw(100000));
    }
}

static void check_passed(struct pair *p, struct tensor_edit *edit, const uint8_t *raw, size_t n)
{
    size_t got;
    struct tensor_base *now = tensor_dir_after(&p->x, p->base, edit);
    uint8_t *bytes = tensor_dir_bytes(now, TENSOR_RAW, &got);
    CU_ASSERT_EQUAL_FATAL(got, n);
    CU_ASSERT_EQUAL_FATAL(memcmp(bytes, raw, n), 0);
    free(bytes);
    CU_ASSERT_FALSE(edit->shaped);
    if (p->meanwhile)
        write_meanwhile(p);
    tensor_draft_passed(p->d, now);
    tensor_base_unref(p->base);
    p->base = now;
}

static void check_judged(struct pair *p)
{
    struct tensor_edit edit = TENSOR_EDIT_INIT;
    struct err e = {0};
    bool written = draft_is_due(p->d->state);
    int r = tensor_draft_judge(p->d, NULL, &edit, &e), want = 0;
    if (!written) {
        CU_ASSERT_EQUAL(r, TENSOR_SAME);
        return;
    }
    if (p->n < p->most) {
        CU_ASSERT_EQUAL(r, TENSOR_SHORT);
        CU_ASSERT_EQUAL(e.code, -EINVAL);
        return;
    }
    uint8_t *raw = expected(p, &want);
    if (want < 0) {
        CU_ASSERT_EQUAL(r, want);
        CU_ASSERT_EQUAL(e.code, want);
        CU_ASSERT_TRUE(draft_is_due(p->d->state));
    } else {
        size_t n;
        uint8_t *before = tensor_dir_bytes(p->base, TENSOR_RAW, &n);
        CU_ASSERT_EQUAL(r, memcmp(raw, before, n) ? TENSOR_CHANGED : TENSOR_SAME);
        bool fails = r == TENSOR_CHANGED && tensor_dir_draw(8) == 0;
        if (fails && p->meanwhile)
            write_meanwhile(p);
        if (fails)
            tensor_draft_failed(p->d);
        else if (r == TENSOR_CHANGED)
            check_passed(p, &edit, raw, n);
        free(before);
        CU_ASSERT_TRUE(draft_is_due(p->d->state) == fails || p->meanwhile);
        CU_ASSERT_TRUE(draft_is_due(p->d->state) || !fails);
    }
    tensor_edit_free(&edit);
    free(raw);
}

static void random_step(struct pair *p)
{
    switch (tensor_dir_draw(12)) {
    case 0:
        cut(p, tensor_dir_draw(3) ? tensor_dir_draw(p->most + 2) : 0);
        break;
    case 1:
        cut(p, p->most);
        break;
    case 2:
    case 3:
        check_judged(p);
        break;
    default:
        write_some(p);
    }
    check_shown(p, tensor_dir_draw(p->most), tensor_dir_draw(10000));
}

static void random_draft(uint32_t type, bool big, enum tensor_view view, uint64_t rows)
{
    const uint64_t dims[] = {512, rows};
    struct pair p;
    pair_make(&p, type, big, view, dims, 2);
    for (unsigned i = 0; i < 40; i++)
        random_step(&p);
    cut(&p, p.most);
    check_judged(&p);
    check_shown(&p, 0, p.most);
    pair_free(&p);
}

static const uint32_t types[] = {F32_ID,  F16_ID,  BF16_ID, F64_ID,   I8_ID,      I64_ID,
                                 Q8_0_ID, Q4_0_ID, Q4_K_ID, NVFP4_ID, IQ2_XXS_ID, IQ4_NL_ID};

/* Run a test of one draft for every type and view. */
static void each_draft(uint64_t rows)
{
    const char *seed = getenv("GGUFS_SEED");
    size_t n = sizeof(types) / sizeof(types[0]);
    tensor_dir_seed = seed ? strtoull(seed, NULL, 10) : 1;
    for (size_t i = 0; i < soak_size(3 * 4 * n); i++) {
        enum tensor_view view = (enum tensor_view)(i / n % 4);
        bool big = tensor_dir_draw(4) == 0 && quant_has_values(quant_find(types[i % n]), true);
        random_draft(types[i % n], big, view, rows);
    }
    soak_count("random drafts of tensors", soak_size(3 * 4 * n));
}

static void test_random(void)
{
    each_draft(301); /* more than two units of work */
}

static void test_random_few(void)
{
    each_draft(3);
    each_draft(33);
}

static void test_large(void)
{
    static const uint64_t dims[] = {512, 1501}; /* 3 MB */
    struct pair p;
    for (unsigned i = 0; i < soak_size(8); i++) {
        pair_make(&p, F32_ID, false, TENSOR_RAW, dims, 2);
        p.meanwhile = true;
        for (unsigned k = 0; k < 30; k++)
            random_step(&p);
        cut(&p, p.most);
        check_judged(&p);
        check_shown(&p, 0, p.most);
        pair_free(&p);
    }
    soak_count("large random drafts", soak_size(8));
}

/* ---- sent to the disk ---- */

static pthread_mutex_t sent_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t sent_changed = PTHREAD_COND_INITIALIZER;
static unsigned sent; /* protected by the lock, as is the last range sent */
static uint64_t sent_off, sent_n;

static int note_sent(const struct sys *s, int fd, uint64_t off, uint64_t n)
{
    (void)s;
    (void)fd;
    (void)pthread_mutex_lock(&sent_lock);
    sent++;
    sent_off = off;
    sent_n = n;
    (void)pthread_cond_broadcast(&sent_changed);
    (void)pthread_mutex_unlock(&sent_lock);
    return 0;
}

/* If 4 MiB are written in order before a judgement, they are sent to the disk. Scattered writes are
 * not. */
static void test_sent(void)
{
    enum { STEP = 1 << 20 };
    static const uint64_t dims[] = {1024, 3000}; /* 12 MB */
    static const uint64_t starts[] = {0, 3 * STEP + 4096, STEP, 4096};
    static uint8_t bytes[STEP];
    struct sys sys = sys_libc;
    struct pair p;
    sys.begin_sync = note_sent;
    pair_make(&p, F32_ID, false, TENSOR_RAW, dims, 2);
    p.x.f.sys = &sys;
    for (size_t i = 0; i < 4; i++) /* only the last run is long enough */
        for (size_t k = 0; k < i + 1; k++)
            put(&p, starts[i] + k * STEP, bytes, STEP);
    (void)pthread_mutex_lock(&sent_lock);
    while (sent == 0)
        (void)pthread_cond_wait(&sent_changed, &sent_lock);
    CU_ASSERT_TRUE(sent == 1 && sent_off == p.d->room.src + 4096 && sent_n == 4 * STEP);
    (void)pthread_mutex_unlock(&sent_lock);
    pair_free(&p);
}

static CU_TestInfo tests[] = {
    {"sequential writes are sent to the disk", test_sent},
    {"a large raw is written, also while it is judged", test_large},
    {"random writes agree with a plain array and quant_write()", test_random},
    {"random writes to small tensors agree with a plain array", test_random_few},
    CU_TEST_INFO_NULL,
};

CU_MAIN("tensor_draft", tests)

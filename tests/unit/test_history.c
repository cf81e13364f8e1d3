/* SPDX-License-Identifier: MIT */
/* edit/history: the keys that an undo restores, states, limits, and damaged or planted files. */
#include "cu_test.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/hash.h"
#include "build_gguf.h"
#include "changes.h"
#include "edit/change.h"
#include "edit/plan.h"
#include "faultsys.h"
#include "model_dir.h"
#include "soak.h"

#define FOLDER "state/ggufs/history/"

struct three {
    struct home x;
    struct gguf *a, *b, *c;
    char path[96]; /* of the history's file */
};

static struct history *three_setup(struct three *t)
{
    home_setup(&t->x);
    t->a = keys_of("a");
    t->b = keys_of("b");
    t->c = keys_of("c");
    (void)snprintf(t->path, sizeof(t->path), FOLDER "%016llx",
                   (unsigned long long)xxh64(0, "/models/m.gguf", 14));
    return &t->x.h;
}

static void three_free(struct three *t)
{
    gguf_free(t->a);
    gguf_free(t->b);
    gguf_free(t->c);
    home_teardown(&t->x);
}

/* Restoring these keys makes exactly them, with the same alignment, but for ggufs' own. */
static void restores(const struct gguf *now, const struct gguf *keys)
{
    CLEANUP(edit_change_free) struct edit_change c;
    CLEANUP(edit_plan_free) struct edit_plan p = EDIT_PLAN_INIT;
    edit_change_init(&c, &(struct edit_base){.g = now});
    CU_ASSERT_EQUAL(edit_restore(&c, keys, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(edit_plan_make(&c, &EDIT_OPTIONS_INIT, &p, NULL), 0);
    CU_ASSERT_TRUE(same_keys(p.next, keys));
    CU_ASSERT_EQUAL(p.next->alignment, keys->alignment);
    CU_ASSERT_EQUAL(gguf_find_key(p.next, "split.count", 11) == UINT32_MAX,
                    gguf_find_key(now, "split.count", 11) == UINT32_MAX);
}

/* Check what an undo would restore. number 0: the last edits. words: what it says. */
static void undoes(const struct history *h, uint64_t number, const struct gguf *now, int want,
                   const struct gguf *keys, const char *words)
{
    struct history_pick p;
    struct err e = {0};
    CU_ASSERT_EQUAL(history_pick(h, number, now, &p, &e), want);
    if (want == 0) {
        CU_ASSERT_PTR_NOT_NULL_FATAL(p.keys);
        CU_ASSERT_TRUE(same_keys(p.keys, keys));
        restores(now, p.keys);
        buf_char(&p.said, '\0');
        (void)snprintf(e.msg, sizeof(e.msg), "%s", buf_text(&p.said));
    }
    CU_SAYS(strstr(e.msg, words), "'%s' lacks '%s'\n", e.msg, words);
    history_pick_free(&p);
}

static void edit(struct history *h, const struct gguf *from, const struct gguf *to, int64_t now,
                 uint64_t restored)
{
    CU_ASSERT_EQUAL(save(h, from, to, now, restored, NULL), 0);
}

/* List the numbers of the states that are shown if these are the present keys: "1 2 3". */
static void states_of(const struct history *h, const struct gguf *now, char *dst, size_t room)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    CU_ASSERT_EQUAL(history_text(h, edit_keys_id(now), &text, NULL), 0);
    buf_char(&text, '\0');
    size_t n = 0;
    dst[0] = '\0';
    for (char *line = (char *)text.data; *line; line = strchr(line, '\n') + 1)
        n += (size_t)snprintf(dst + n, room - n, "%s%.*s", n ? " " : "", (int)strcspn(line, "\t"),
                              line);
}

/* Check the numbers of the states and, if not NULL, that the list contains the words. */
static void shows(const struct history *h, const struct gguf *now, const char *numbers,
                  const char *words)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    char got[4000];
    states_of(h, now, got, sizeof(got));
    CU_ASSERT_STRING_EQUAL(got, numbers);
    CU_ASSERT_EQUAL(history_text(h, edit_keys_id(now), &text, NULL), 0);
    buf_char(&text, '\0');
    CU_ASSERT_TRUE(!words || strstr(buf_text(&text), words));
}

/* ---- states ---- */

TEST("an undo restores the keys before the last edits, or those of a state")
{
    CLEANUP(three_free) struct three t;
    struct history *h = three_setup(&t);
    undoes(h, 0, t.a, -ENOENT, NULL, "no edit of this model is recorded");
    undoes(h, 1, t.a, -ENOENT, NULL, "no state 1 (ggufs --history shows");
    edit(h, t.a, t.b, 1000, 0);
    undoes(h, 0, t.b, 0, t.a, "back to state 1; taken back: changed text");
    edit(h, t.b, t.c, 1100, 0);
    undoes(h, 0, t.c, 0, t.b, "back to state 2");
    undoes(h, 1, t.c, 0, t.a, "back to state 1");
    /* An undo, and the undo of that undo, are states of their own; so is an edit right after. */
    edit(h, t.c, t.b, 1200, 2);
    undoes(h, 0, t.b, 0, t.c, "back to state 3");
    edit(h, t.b, t.c, 1201, 3);
    undoes(h, 0, t.c, 0, t.b, "back to state 4");
    edit(h, t.c, t.a, 1202, 0);
    undoes(h, 0, t.a, 0, t.c, "back to state 5");
    undoes(h, 3, t.a, 0, t.c, "back to state 3");
    shows(h, t.a, "1 2 3 4 5", "\tundo, back to 2: changed text\n4\t");
}

TEST("edits in quick succession are one state")
{
    CLEANUP(three_free) struct three t;
    struct history *h = three_setup(&t);
    edit(h, t.a, t.b, 1000, 0);
    edit(h, t.b, t.c, 1009, 0);
    undoes(h, 0, t.c, 0, t.a, "back to state 1");
    edit(h, t.c, t.b, 1018, 0);
    shows(h, t.b, "1", NULL);
    edit(h, t.b, t.c, 1028, 0);
    shows(h, t.c, "1 2", NULL);
    edit(h, t.c, t.b, 1020, 0); /* the clock was set back */
    shows(h, t.b, "1 2 3", NULL);
    CU_ASSERT_EQUAL(begin_save(h, t.b, t.c, 1040, 0, NULL), 0);
    h->ended = 1099; /* it took a minute */
    edit(h, t.c, t.a, 1108, 0);
    shows(h, t.a, "1 2 3 4", NULL);
    undoes(h, 0, t.a, 0, t.b, "back to state 4");
}

TEST("another process may write the file between two edits")
{
    CLEANUP(three_free) struct three t;
    struct history *h = three_setup(&t), other;
    CU_ASSERT_EQUAL(history_open(&other, h->sys, h->home, h->model, h->keep, NULL), 0);
    edit(h, t.a, t.b, 1000, 0);
    edit(h, t.b, t.c, 1100, 0);
    edit(&other, t.c, t.b, 1200, 0);
    edit(h, t.b, t.a, 1300, 0);
    shows(h, t.a, "1 2 3 4", NULL);
    undoes(h, 3, t.a, 0, t.c, "back to state 3");
    CU_ASSERT_EQUAL(history_clear(&other, NULL), 0);
    edit(h, t.a, t.b, 1400, 0);
    shows(h, t.b, "5", NULL);
    history_close(&other);
}

/* Keys that no record has left are never overwritten. */
TEST("keys that no record has left are not overwritten")
{
    CLEANUP(three_free) struct three t;
    struct history *h = three_setup(&t);
    edit(h, t.a, t.b, 1000, 0);
    undoes(h, 0, t.c, -ESTALE, NULL, "another program changed or replaced the file");
    undoes(h, 1, t.c, -ESTALE, NULL, "another program changed or replaced the file");
    shows(h, t.c, "1", "(cannot be restored");
    edit(h, t.c, t.a, 1100, 0); /* the next edit is based on what the other program wrote */
    undoes(h, 0, t.a, 0, t.c, "back to state 2");
    undoes(h, 1, t.a, -ESTALE, NULL, "state 1 cannot be restored");
    shows(h, t.a, "1 2", "(cannot be restored: the keys were changed without a record since)\n2");
}

/* ---- random edits ---- */

enum { KEYS = 9, EDITS = 24 };

/* The keys of a model in order, with their values. */
struct list {
    unsigned n;
    struct {
        unsigned key, value;
    } at[KEYS + 1]; /* the last is for what moves */
};

static uint64_t state;

static void change_one(struct list *l)
{
    unsigned i = l->n ? soak_draw(&state, l->n) : 0, k = soak_draw(&state, KEYS),
             to = soak_draw(&state, l->n + 1), way = soak_draw(&state, 4);
    for (unsigned j = 0; j < l->n && way == 0; j++)
        if (l->at[j].key == k)
            way = 1;
    if (way == 1 && l->n) {
        l->at[i].value = soak_draw(&state, 3);
    } else if (way == 0) { /* add a key anywhere */
        memmove(&l->at[to + 1], &l->at[to], (l->n - to) * sizeof(l->at[0]));
        l->at[to].key = k;
        l->at[to].value = soak_draw(&state, 3);
        l->n++;
    } else if (l->n) { /* remove a key, or move it to the end */
        l->at[KEYS] = l->at[i];
        memmove(&l->at[i], &l->at[i + 1], (l->n - i - 1) * sizeof(l->at[0]));
        l->at[l->n - 1] = l->at[KEYS];
        l->n -= way == 2;
    }
}

/* own: include ggufs' own keys, which are not part of the history. */
static struct gguf *model_of(const struct list *l, bool big, bool own)
{
    char name[24];
    struct build b = build_of(3, big);
    for (unsigned i = 0; i < l->n; i++) {
        const bool is_own = l->at[i].key % 4 == 3;
        (void)snprintf(name, sizeof(name), is_own ? "split.%u" : "key.%u", l->at[i].key);
        if (own || !is_own)
            build_u32(&b, name, l->at[i].value);
    }
    return gguf_of(&b);
}

/* Make a series of edits, some of which move keys; some start a state, some join one, and some are
 * never written. The keys of every state come back in their order, through any of the others. */
static void random_edits(uint64_t seed)
{
    CLEANUP(home_teardown) struct home x;
    struct list now = {0}, of[EDITS + 1] = {0};
    int64_t at = 1000;
    uint64_t states = 0;
    state = seed;
    bool big = soak_draw(&state, 2);
    home_setup(&x);
    for (unsigned i = 0; i < EDITS; i++) {
        struct list then = now;
        for (unsigned k = soak_draw(&state, 4); k < 4; k++)
            change_one(&then);
        struct gguf *a = model_of(&now, big, true), *b = model_of(&then, big, true);
        const bool changes = edit_keys_id(a) != edit_keys_id(b),
                   lands = !changes || soak_draw(&state, 6);
        const int64_t step = soak_draw(&state, 3) ? 3 : 100;
        if (changes)
            CU_ASSERT_EQUAL(begin_save(&x.h, a, b, at + step, 0, NULL), 0);
        if (changes && lands && (step > 10 || states == 0))
            of[states++] = now;
        if (changes && lands && soak_draw(&state, 3)) /* or else killed before the end */
            x.h.ended = at + step;
        if (changes && lands)
            at += step;
        if (lands)
            now = then;
        gguf_free(a);
        gguf_free(b);
    }
    CLEANUP(gguf_drop) struct gguf *g = model_of(&now, big, true);
    for (uint64_t i = 0; i < states; i++) {
        CLEANUP(gguf_drop) struct gguf *want = model_of(&of[i], big, false);
        undoes(&x.h, i + 1, g, 0, want, "");
    }
}

TEST("after random edits, the keys of each state come back in their order")
{
    for (uint64_t seed = 1; seed <= soak_size(300); seed++) {
        unsigned before = CU_get_number_of_failures();
        random_edits(seed);
        if (CU_get_number_of_failures() > before)
            (void)printf("\nseed %llu\n", (unsigned long long)seed);
    }
}

/* ---- states that no edit can make ---- */

enum odd { PLAIN, BIG, NO_ARCHITECTURE, NO_KEYS, ALIGNED_4, ALIGNED_128, BACKWARDS, ODDS };

/* Make a model with unusual bytes, nested arrays, and keys of ggufs' own. */
static struct gguf *odd_model(enum odd odd)
{
    static const char *const keys[] = {"a.a", "a.b", "a.c", "a.d"};
    struct build b = build_of(3, odd == BIG);
    if (odd != NO_ARCHITECTURE && odd != NO_KEYS)
        build_str(&b, "general.architecture", "test");
    if (odd == ALIGNED_4 || odd == ALIGNED_128) {
        b.alignment = odd == ALIGNED_4 ? 4 : 128; /* 4 is too small to be set */
        build_u32(&b, "general.alignment", (uint32_t)b.alignment);
    }
    for (size_t i = 0; i < 4 && odd != NO_KEYS; i++)
        build_str(&b, keys[odd == BACKWARDS ? 3 - i : i], odd == BACKWARDS && i % 2 ? "y" : "x");
    if (odd == PLAIN) {
        build_text(&b, "split.count=odd|a.nan:f32=0x7fc01234|a.bool:bool=7|"
                       "a.nested:array=array[i16[3]]");
        build_str_n(&b, "no dots, / and \n", "\xff\x00\n", 3);
        build_str(&b, "ggufs.reserve", "     ");
    }
    build_tensor(&b, "t", 0, (uint64_t[]){5}, 1, NULL, 20);
    return gguf_of(&b);
}

TEST("states that no edit can make are restored")
{
    struct gguf *g[ODDS];
    for (enum odd i = PLAIN; i < ODDS; i++)
        g[i] = odd_model(i);
    for (size_t i = 0; i < ODDS * ODDS; i++)
        if (i / ODDS != BIG && i % ODDS != BIG)
            restores(g[i / ODDS], g[i % ODDS]);
    CLEANUP(edit_change_free) struct edit_change c;
    edit_change_init(&c, &(struct edit_base){.g = g[PLAIN]});
    CU_ASSERT_EQUAL(edit_restore(&c, g[BIG], NULL), -EINVAL);
    for (enum odd i = PLAIN; i < ODDS; i++)
        gguf_free(g[i]);
}

/* ---- edits of tensors ---- */

static struct gguf *with_tensors(const char *name)
{
    struct build b = build_of(3, false);
    build_str(&b, "general.name", name);
    build_text(&b, ">blk.0.attn_q.weight F16 64|>other F32 4");
    return gguf_of(&b);
}

/* Record the change, at `now`. Returns the model after it. */
static struct gguf *make(struct history *h, struct edit_change *c, int64_t now)
{
    CLEANUP(edit_plan_free) struct edit_plan p = EDIT_PLAN_INIT;
    CU_ASSERT_EQUAL_FATAL(edit_plan_make(c, &EDIT_OPTIONS_INIT, &p, NULL), 0);
    struct gguf *next = REF(p.next);
    for (int done = 0; done < 2; done++)
        CU_ASSERT_EQUAL(history_append(h, &(struct history_edit){c, next, 0, now, done}, NULL), 0);
    h->ended = now;
    edit_change_free(c);
    return next;
}

TEST("an edit of tensors is shown, and an undo says what it did not restore")
{
    static uint8_t bytes[36];
    CLEANUP(home_teardown) struct home x;
    struct edit_change c;
    CLEANUP(log_drop) struct log *d = memory_draft(bytes, sizeof(bytes));
    const struct tensor_piece all = {.len = sizeof(bytes), .log = d};
    const struct tensor_shape q4 = {.type = 2, .n_dims = 1, .dims = {64}};
    struct gguf *g = with_tensors("one"), *named, *next;
    struct history *h = &x.h;
    home_setup(&x);
    edit_change_init(&c, &(struct edit_base){.g = g});
    CU_ASSERT_EQUAL(edit_tensor_set(&c, "blk.0.attn_q.weight", 19, &q4, &all, 1, NULL), 0);
    next = make(h, &c, 1000);
    shows(h, next, "1", "\tblk.0.attn_q.weight: F16 -> Q4_0; cannot be undone\n");
    undoes(h, 0, next, -ENOENT, NULL, "nothing to undo: edits of tensors cannot be undone");
    /* Over such an edit, the keys come back, and what does not is said. */
    edit_change_init(&c, &(struct edit_base){.g = next});
    CU_ASSERT_EQUAL(set_bytes(&c, "general.name", 12, GGUF_STRING, "\1\0\0\0\0\0\0\0y", 9, NULL),
                    0);
    named = make(h, &c, 2000);
    gguf_free(next);
    edit_change_init(&c, &(struct edit_base){.g = named});
    CU_ASSERT_EQUAL(edit_tensor_rename(&c, "other", 5, "more", 4, NULL), 0);
    CU_ASSERT_EQUAL(edit_tensor_remove(&c, "blk.0.attn_q.weight", 19, NULL), 0);
    next = make(h, &c, 3000);
    undoes(h, 0, next, 0, g,
           "back to state 2; not restored: other: renamed to more, blk.0.attn_q.weight: removed; "
           "taken back: changed general.name");
    undoes(h, 3, next, 0, next, "the keys are already those of state 3; not restored: other:");
    shows(h, next, "1 2 3", NULL);
    gguf_free(g);
    gguf_free(named);
    gguf_free(next);
}

TEST("a number that was shown stays after a power cut")
{
    struct edit_change c;
    struct gguf *g = with_tensors("one");
    for (uint64_t seed = 1; seed <= 8; seed++) {
        CLEANUP(home_teardown) struct home x;
        struct faultsys fs;
        home_setup(&x);
        faultsys_init(&fs, FAULT_POWER, UINT_MAX, 0);
        fs.seed = seed * 1000003;
        x.h.sys = &fs.sys;
        for (int i = 0; i < 2; i++) {
            edit_change_init(&c, &(struct edit_base){.g = g});
            CU_ASSERT_EQUAL(edit_tensor_rename(&c, "other", 5, "more", 4, NULL), 0);
            gguf_free(make(&x.h, &c, 1000 + 1000 * i));
        }
        shows(&x.h, g, "1 2", NULL);
        faultsys_power_cut(&fs);
        x.h.sys = &sys_libc;
        shows(&x.h, g, "1 2", NULL);
    }
    gguf_free(g);
}

/* ---- limits ---- */

static size_t size_of(const struct three *t)
{
    struct stat st;
    CU_ASSERT_EQUAL_FATAL(fstatat(t->x.dir, t->path, &st, 0), 0);
    return (size_t)st.st_size;
}

TEST("the last edits are kept, and numbers are not used again")
{
    CLEANUP(three_free) struct three t;
    struct history *h = three_setup(&t);
    struct gguf *g[2] = {t.a, t.b};
    h->keep = 3;
    for (unsigned i = 0; i < 8; i++)
        edit(h, g[i % 2], g[(i + 1) % 2], 1000 + 100 * i, 0);
    shows(h, t.a, "6 7 8", NULL);
    undoes(h, 5, t.a, -ENOENT, NULL, "no state 5 any more: it was dropped");
    h->keep = 1;
    edit(h, t.a, t.b, 3000, 0);
    shows(h, t.b, "9", NULL);
    /* An edit that fails is not shown, and the next one takes the place of its record. */
    CU_ASSERT_EQUAL(begin_save(h, t.b, t.c, 4000, 0, NULL), 0);
    shows(h, t.b, "", NULL);
    /* Of a state that is larger than the limit, the last edits can be undone. */
    h->keep = 2;
    edit(h, t.b, t.a, 5000, 0);
    edit(h, t.a, t.c, 5001, 0);
    edit(h, t.c, t.b, 5002, 0);
    undoes(h, 0, t.b, 0, t.a, "back to state 10; taken back: changed text; its first edits were");
    shows(h, t.b, "10", "(its first edits were dropped)");
}

static struct gguf *long_text(char letter, size_t n)
{
    char *text = malloc(n + 1);
    memset(text, letter, n);
    text[n] = '\0';
    struct gguf *g = keys_of(text);
    free(text);
    return g;
}

/* Old values count. The last record stays, whatever its size. */
TEST("old values up to a limit are kept, and always those of the last edit")
{
    CLEANUP(three_free) struct three t;
    struct history *h = three_setup(&t);
    struct gguf *g[2] = {long_text('x', 3 << 20), long_text('y', 3 << 20)};
    CLEANUP(gguf_drop) struct gguf *huge = long_text('z', 20 << 20);
    for (unsigned i = 0; i < 9; i++) {
        edit(h, g[i % 2], g[(i + 1) % 2], 1000 + 100 * i, 0);
        CU_ASSERT_TRUE(size_of(&t) <= HISTORY_BYTES);
    }
    shows(h, g[1], "5 6 7 8 9", NULL);
    edit(h, g[1], huge, 3000, 0);
    edit(h, huge, t.a, 4000, 0);
    shows(h, t.a, "11", NULL);
    undoes(h, 0, t.a, 0, huge, "back to state 11");
    edit(h, t.a, t.b, 5000, 0);
    shows(h, t.b, "12", NULL);
    CU_ASSERT_TRUE(size_of(&t) < 1000);
    gguf_free(g[0]);
    gguf_free(g[1]);
}

/* The disk is full after a few more bytes. */
static ssize_t write_little(const struct sys *s, int fd, const void *p, size_t n, uint64_t off)
{
    (void)s;
    return n > 20 ? sys_libc.pwrite(&sys_libc, fd, p, 20, off) : -ENOSPC;
}

TEST("a record for which there is no room leaves the others as they were")
{
    CLEANUP(three_free) struct three t;
    struct history *h = three_setup(&t);
    struct sys full = sys_libc;
    full.pwrite = write_little;
    edit(h, t.a, t.b, 1000, 0);
    const size_t n = size_of(&t);
    h->sys = &full;
    CU_ASSERT_EQUAL(save(h, t.b, t.c, 2000, 0, NULL), -ENOSPC);
    CU_ASSERT_EQUAL(size_of(&t), n);
    h->sys = &sys_libc;
    undoes(h, 0, t.c, -ESTALE, NULL, "edited without a history");
    undoes(h, 0, t.b, 0, t.a, "back to state 1");
}

TEST("a history can be forgotten")
{
    CLEANUP(three_free) struct three t;
    struct history *h = three_setup(&t);
    CU_ASSERT_EQUAL(history_clear(h, NULL), 0);
    edit(h, t.a, t.b, 1000, 0);
    edit(h, t.b, t.c, 2000, 0);
    CU_ASSERT_EQUAL(history_clear(h, NULL), 0);
    shows(h, t.c, "", NULL);
    undoes(h, 0, t.c, -ENOENT, NULL, "nothing to undo: the history was cleared");
    undoes(h, 2, t.c, -ENOENT, NULL, "no state 2 any more: it was forgotten");
    edit(h, t.c, t.a, 2001, 0);
    shows(h, t.a, "3", NULL);
    CU_ASSERT_EQUAL(home_files(&t.x), 1);
}

/* ---- damaged and planted files ---- */

/* Write this instead of the history. */
static void put(const struct three *t, const uint8_t *bytes, size_t n)
{
    (void)unlinkat(t->x.dir, t->path, 0);
    put_file(t->x.dir, t->path, bytes, n);
}

/* Whatever a damaged file is, an undo restores what was there, or is refused; and the next edit can
 * be undone. */
static void still_good(struct three *t, const uint8_t *bytes, size_t n)
{
    struct history_pick p;
    struct history *h = &t->x.h;
    put(t, bytes, n);
    for (uint64_t number = 0; number < 4; number++) {
        int r = history_pick(h, number, t->c, &p, NULL);
        CU_ASSERT_TRUE(r == -ENOENT || r == -ESTALE || r == -EBADMSG ||
                       (r == 0 && (same_keys(p.keys, t->a) || same_keys(p.keys, t->b))));
        history_pick_free(&p);
    }
    static int64_t now = 9000;
    edit(h, t->c, t->a, now += 100, 0);
    undoes(h, 0, t->a, 0, t->c, "back to state");
}

/* Each bit that flips, and each end that a power cut leaves; and anything after the end. */
TEST("a damaged file restores nothing wrong")
{
    CLEANUP(three_free) struct three t;
    struct history *h = three_setup(&t);
    size_t n, one;
    edit(h, t.a, t.b, 1000, 0);
    one = size_of(&t);
    edit(h, t.b, t.c, 2000, 0);
    uint8_t *bytes = get_file(t.x.dir, t.path, &n), *more = calloc(n + 600, 1);
    memcpy(more, bytes, n);
    for (size_t i = 0; i < n; i++) {
        bytes[i] ^= (uint8_t)(1 << i % 8);
        still_good(&t, bytes, n);
        bytes[i] ^= (uint8_t)(1 << i % 8);
        still_good(&t, bytes, i);
    }
    for (size_t i = 0; i < 600; i += 7) /* the disk has extended the file, but lost the data */
        still_good(&t, more, n + i);
    put(&t, more, n + 300);
    undoes(h, 0, t.c, 0, t.b, "back to state 2");
    shows(h, t.c, "1 2", NULL);
    bytes[n - 1] ^= 1;
    put(&t, bytes, n);
    undoes(h, 0, t.b, 0, t.a, "back to state 1"); /* as if the torn record's edit was not done */
    undoes(h, 0, t.c, -ESTALE, NULL, "the rest of the history is damaged");
    shows(h, t.c, "1 -", "the rest of the history is damaged");
    put(&t, more, one);
    undoes(h, 0, t.b, 0, t.a, "back to state 1");
    free(bytes);
    free(more);
}

/* A file with another head, such as that of an older version or of another model, is not used, and
 * is replaced. */
TEST("a file with another head is replaced")
{
    CLEANUP(three_free) struct three t;
    struct history other, *h = three_setup(&t);
    size_t n;
    CU_ASSERT_EQUAL(open_history(&t.x, &other, "/models/another.gguf", 20), 0);
    edit(&other, t.a, t.b, 100, 0);
    char path[96];
    (void)snprintf(path, sizeof(path), FOLDER "%016llx",
                   (unsigned long long)xxh64(0, "/models/another.gguf", 20));
    CLEANUP(free_it) uint8_t *bytes = get_file(t.x.dir, path, &n);
    for (int i = 0; i < 3; i++) {
        put(&t, i == 0 ? bytes : (const uint8_t *)"GGUFSHS5 and more",
            i == 0   ? n
            : i == 1 ? 17
                     : 0);
        undoes(h, 0, t.b, -ENOENT, NULL, "no edit of this model is recorded");
        edit(h, t.a, t.b, 1000, 0);
        undoes(h, 0, t.b, 0, t.a, "back to state 1");
    }
    history_close(&other);
}

/* Anything but our own regular file and our own directories is neither read nor written. */
TEST("links, and what belongs to others, are not used")
{
    static const struct {
        const char *at; /* NULL: the file */
        char what;      /* l: a link, f: a FIFO, d: a directory, h: a second name, o: of others */
        mode_t mode;
    } rows[] = {
        {NULL, 'l', 0},
        {NULL, 'f', 0},
        {NULL, 'd', 0},
        {NULL, 'h', 0},
        {NULL, 'o', 0},
        {"state/ggufs", 'l', 0},
        {"state/ggufs/history", 'l', 0},
        {"state/ggufs", 'f', 0},
        {"state/ggufs", 'o', 0},
        {"state/ggufs/history", 'o', 0},
        {"state/ggufs", 'm', 0720},
        {"state/ggufs", 'm', 0702},
        {"state/ggufs/history", 'm', 0710},
        {"state/ggufs/history", 'm', 0704},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        CLEANUP(three_free) struct three t;
        struct err e = {0};
        struct history_pick p;
        struct history *h = three_setup(&t);
        const char *at = rows[i].at ? rows[i].at : t.path;
        if (rows[i].what == 'o' && geteuid() != 0)
            continue; /* only root can change the owner */
        edit(h, t.a, t.b, 100, 0);
        if (strchr("lfd", rows[i].what))
            CU_ASSERT_EQUAL(renameat(t.x.dir, at, t.x.dir, "aside"), 0);
        int r = rows[i].what == 'l'   ? symlinkat("/proc/self/cwd", t.x.dir, at)
                : rows[i].what == 'f' ? mkfifoat(t.x.dir, at, 0600)
                : rows[i].what == 'd' ? mkdirat(t.x.dir, at, 0700)
                : rows[i].what == 'o' ? fchownat(t.x.dir, at, 12345, 12345, 0)
                : rows[i].what == 'm' ? fchmodat(t.x.dir, at, rows[i].mode, 0)
                                      : linkat(t.x.dir, at, t.x.dir, "second", 0);
        CU_ASSERT_EQUAL(r, 0);
        CU_ASSERT_EQUAL(history_pick(h, 1, t.b, &p, &e), -EPERM);
        CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "/state/ggufs/history: not this user's own"));
        CU_ASSERT_EQUAL(save(h, t.b, t.c, 300, 0, NULL), -EPERM);
        CU_ASSERT_EQUAL(history_clear(h, NULL), -EPERM);
    }
}

/* ---- the directory ---- */

/* Check where the history is kept, for this user or for root. */
static void home_is(const char *state_home, const char *home, const char *root, const char *user)
{
    struct history h;
    (void)(state_home ? setenv("XDG_STATE_HOME", state_home, 1) : unsetenv("XDG_STATE_HOME"));
    (void)(home ? setenv("HOME", home, 1) : unsetenv("HOME"));
    const char *want = geteuid() == 0 ? root : user;
    CU_ASSERT_EQUAL(history_open(&h, calm(), NULL, "/m", 20, NULL), 0);
    CU_ASSERT_TRUE(want ? h.home && strcmp(h.home, want) == 0 : !h.home);
    history_close(&h);
}

TEST("the state directory depends on the environment and the user")
{
    home_is("/state", "/home/me", "/state", "/state");
    home_is("state", "/home/me", "/var/lib", "/home/me/.local/state");
    home_is(NULL, "/home/me", "/var/lib", "/home/me/.local/state");
    home_is("", "me", "/var/lib", NULL);
    home_is(NULL, NULL, "/var/lib", NULL);
    if (geteuid() == 0) {
        CU_ASSERT_EQUAL_FATAL(seteuid(65534), 0);
        home_is(NULL, "/home/me", NULL, "/home/me/.local/state");
        struct history h;
        struct err e = {0};
        struct buf text = BUF_INIT;
        (void)unsetenv("HOME");
        CU_ASSERT_EQUAL(history_open(&h, calm(), NULL, "/m", 20, NULL), 0);
        CU_ASSERT_EQUAL(history_text(&h, 0, &text, &e), -ENXIO);
        CU_ASSERT_STRING_EQUAL(e.msg, "neither XDG_STATE_HOME nor HOME is set");
        history_close(&h);
        CU_ASSERT_EQUAL_FATAL(seteuid(0), 0);
    }
}

/* What is missing is made, for this user alone, again if it was removed. Nothing is made for
 * readers. */
TEST("the directory is made when it is needed")
{
    CLEANUP(three_free) struct three t;
    struct history *h = three_setup(&t), deep;
    struct stat st;
    char path[96];
    undoes(h, 0, t.b, -ENOENT, NULL, "no edit");
    CU_ASSERT_EQUAL(history_clear(h, NULL), 0);
    CU_ASSERT_EQUAL(faccessat(t.x.dir, "state", F_OK, 0), -1);
    for (int i = 0; i < 2; i++) {
        edit(h, t.a, t.b, 1000, 0);
        CU_ASSERT_EQUAL(fstatat(t.x.dir, "state/ggufs", &st, 0), 0);
        CU_ASSERT_EQUAL(st.st_mode & 07777, 0700);
        CU_ASSERT_EQUAL(fstatat(t.x.dir, "state/ggufs/history", &st, 0), 0);
        CU_ASSERT_EQUAL(st.st_mode & 07777, 0700);
        CU_ASSERT_EQUAL(fstatat(t.x.dir, t.path, &st, 0), 0);
        CU_ASSERT_EQUAL(st.st_mode & 07777, 0600);
        (void)snprintf(path, sizeof(path), "gone.%d", i);
        CU_ASSERT_EQUAL(renameat(t.x.dir, "state", t.x.dir, path), 0);
    }
    CU_ASSERT_EQUAL(symlinkat("gone.0", t.x.dir, "linked"), 0); /* links lead to it */
    (void)snprintf(path, sizeof(path), "%s/linked/a/b/", t.x.path);
    CU_ASSERT_EQUAL(history_open(&deep, calm(), path, "/m", 20, NULL), 0);
    edit(&deep, t.a, t.b, 1000, 0);
    undoes(&deep, 0, t.b, 0, t.a, "back to state 1");
    history_close(&deep);
    (void)snprintf(path, sizeof(path), "/proc/none/state");
    CU_ASSERT_EQUAL(history_open(&deep, calm(), path, "/m", 20, NULL), 0);
    CU_ASSERT_TRUE(save(&deep, t.a, t.b, 1000, 0, NULL) < 0);
    history_close(&deep);
}

/* The clock of this program goes as fast as it sleeps. */
static unsigned slept;
int __wrap_nanosleep(const struct timespec *t, struct timespec *left);
int __wrap_nanosleep(const struct timespec *t, struct timespec *left)
{
    (void)left;
    slept += (unsigned)(t->tv_nsec / 1000000);
    return 0;
}

/* A lock is waited for, but not forever. */
TEST("another process's lock is waited for, but not forever")
{
    CLEANUP(three_free) struct three t;
    struct err e = {0};
    struct history *h = three_setup(&t);
    edit(h, t.a, t.b, 1000, 0);
    int dir = openat(t.x.dir, FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CU_ASSERT_EQUAL(flock(dir, LOCK_EX), 0);
    CU_ASSERT_EQUAL(save(h, t.b, t.c, 1100, 0, &e), -EAGAIN);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "another process has locked it"));
    CU_ASSERT_EQUAL(history_clear(h, NULL), -EAGAIN);
    CU_ASSERT_EQUAL(slept, 2 * HISTORY_PATIENCE);
    undoes(h, 0, t.b, 0, t.a, "back to state 1");
    (void)close(dir);
    edit(h, t.b, t.c, 1200, 0);
}

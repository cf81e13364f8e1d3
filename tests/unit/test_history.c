/* SPDX-License-Identifier: MIT */
/*
 * edit/history: recorded changes and the keys reconstructed from them, limits, and damaged or
 * planted files.
 */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "alloc.h"
#include "base/bytes.h"
#include "build_gguf.h"
#include "edit/change.h"
#include "faultsys.h"
#include "history_dir.h"
#include "model_dir.h"
#include "soak.h"

#define FOLDER "state/ggufs/history/"

/* Check which keys an undo would restore. number 0: undo the last edit. */
static int picks(struct history *h, uint64_t number, struct gguf *now, const struct gguf *want,
                 bool fits)
{
    struct history_pick p;
    struct err e = {0};
    int r = history_pick(h, number, now, &p, &e);
    if (r == 0) {
        CU_ASSERT_TRUE(same_keys(p.keys, want));
        CU_ASSERT_EQUAL(p.fits, fits);
    }
    CU_ASSERT_EQUAL(e.code, r);
    history_pick_free(&p);
    return r;
}

struct three {
    struct home x;
    struct gguf *a, *b, *c;
};

static struct history *three_setup(struct three *t)
{
    home_setup(&t->x);
    t->a = keys_of("a");
    t->b = keys_of("b");
    t->c = keys_of("c");
    return &t->x.h;
}

static void three_free(struct three *t)
{
    gguf_free(t->a);
    gguf_free(t->b);
    gguf_free(t->c);
    home_teardown(&t->x);
}

static void edit(struct history *h, struct gguf *from, struct gguf *to, int64_t now,
                 uint64_t restored)
{
    CU_ASSERT_TRUE(save(h, from, to, now, restored, NULL) > 0);
}

/* Record an edit that fails, or whose outcome stays unknown. */
static void begin(struct history *h, struct gguf *from, struct gguf *to, int64_t now)
{
    const struct recorded_edit e = {from, to, 0, now, 0};
    CU_ASSERT_EQUAL(history_record(h, &e, NULL), 0);
}

/* ---- restored keys ---- */

static void test_pick(void)
{
    struct three t;
    struct history *h = three_setup(&t);
    CU_ASSERT_EQUAL(picks(h, 0, t.a, NULL, true), -ENOENT);
    CU_ASSERT_EQUAL(picks(h, 1, t.a, NULL, true), -ENOENT);
    edit(h, t.a, t.b, 1000, 0);
    CU_ASSERT_EQUAL(picks(h, 0, t.b, t.a, true), 0);
    edit(h, t.b, t.c, 1100, 0);
    CU_ASSERT_EQUAL(picks(h, 0, t.c, t.b, true), 0);
    CU_ASSERT_EQUAL(picks(h, 1, t.c, t.a, true), 0);
    /* Undo the last edit, then undo that undo. */
    edit(h, t.c, t.b, 1200, 2);
    CU_ASSERT_EQUAL(picks(h, 0, t.b, t.c, true), 0);
    edit(h, t.b, t.c, 1201, 3);
    CU_ASSERT_EQUAL(picks(h, 0, t.c, t.b, true), 0);
    CU_ASSERT_TRUE(numbers_are(h, 1, 4));
    /* An edit right after an undo starts its own state. */
    edit(h, t.c, t.a, 1202, 0);
    CU_ASSERT_EQUAL(picks(h, 0, t.a, t.c, true), 0);
    CU_ASSERT_EQUAL(picks(h, 3, t.a, t.c, true), 0);
    three_free(&t);
}

/* An undo restores the keys changed by recorded edits, and leaves all others as they are. */
static void test_foreign(void)
{
    struct three t;
    struct history *h = three_setup(&t);
    struct build b;
    struct gguf *other, *mixed;
    build_init(&b, 3, false);
    build_str(&b, "general.architecture", "other");
    for (int i = 0; i < 2; i++) {
        size_t n;
        struct build copy = b;
        copy.keys = BUF_INIT;
        buf_add(&copy.keys, b.keys.data, b.keys.len);
        if (i)
            build_str(&copy, "text", "a");
        uint8_t *image = build_finish(&copy, &n);
        struct source s = source_mem(image, n);
        CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, 0, i ? &mixed : &other, NULL), 0);
        free(image);
    }
    buf_free(&b.keys);
    edit(h, t.a, t.b, 1000, 0);
    CU_ASSERT_EQUAL(picks(h, 0, other, NULL, false), -ESTALE);
    CU_ASSERT_EQUAL(picks(h, 0, t.a, NULL, false), -ESTALE);
    CU_ASSERT_EQUAL(picks(h, 1, other, mixed, false), 0);
    CU_ASSERT_EQUAL(picks(h, 1, t.c, t.a, false), 0);
    gguf_free(other);
    gguf_free(mixed);
    three_free(&t);
}

static void test_failed(void)
{
    struct three t;
    struct history *h = three_setup(&t);
    edit(h, t.a, t.b, 1000, 0);
    for (int64_t now = 2000; now < 2500; now += 50)
        begin(h, t.b, t.c, now);
    CU_ASSERT_TRUE(numbers_are(h, 1, 2));
    CU_ASSERT_EQUAL(picks(h, 0, t.b, t.a, true), 0);
    edit(h, t.b, t.c, 3000, 0);
    CU_ASSERT_TRUE(numbers_are(h, 1, 2));
    CU_ASSERT_EQUAL(picks(h, 0, t.c, t.b, true), 0);
    three_free(&t);
}

/* A failed edit never removes the only state that can be restored. */
static void test_failed_one(void)
{
    struct three t;
    struct history *h = three_setup(&t);
    h->keep = 1;
    for (int64_t now = 1000; now < 3000; now += 1000) {
        edit(h, t.a, t.b, now, 0);
        begin(h, t.b, t.c, now + 500);
        CU_ASSERT_EQUAL(picks(h, 0, t.b, t.a, true), 0);
    }
    three_free(&t);
}

static void test_join(void)
{
    struct three t;
    struct history *h = three_setup(&t);
    edit(h, t.a, t.b, 1000, 0);
    edit(h, t.b, t.c, 1009, 0);
    CU_ASSERT_TRUE(numbers_are(h, 1, 1));
    CU_ASSERT_EQUAL(picks(h, 0, t.c, t.a, true), 0);
    edit(h, t.c, t.b, 1018, 0);
    CU_ASSERT_TRUE(numbers_are(h, 1, 1));
    edit(h, t.b, t.c, 1028, 0);
    CU_ASSERT_TRUE(numbers_are(h, 1, 2));
    /* First the clock is set back, then another program writes keys. */
    edit(h, t.c, t.b, 1020, 0);
    CU_ASSERT_TRUE(numbers_are(h, 1, 3));
    edit(h, t.a, t.b, 1021, 0);
    CU_ASSERT_TRUE(numbers_are(h, 1, 4));
    /* The previous edit took a long time. */
    const struct recorded_edit late = {t.b, t.c, 0, 1050, 1045};
    CU_ASSERT_EQUAL(history_record(h, &late, NULL), 0);
    CU_ASSERT_TRUE(numbers_are(h, 1, 4));
    three_free(&t);
}

/* ---- limits ---- */

static int no_unlink(const struct sys *s, int dir, const char *name)
{
    (void)s;
    (void)dir;
    (void)name;
    return -EROFS;
}

static void test_keep(void)
{
    struct three t;
    struct history many, *h = three_setup(&t);
    CU_ASSERT_EQUAL(open_history(&t.x, &many, "/models/m.gguf", 30), 0);
    h->keep = 3;
    for (unsigned i = 1; i <= 7; i++)
        edit(h, i % 2 ? t.a : t.b, i % 2 ? t.b : t.a, i * 100, 0);
    CU_ASSERT_TRUE(numbers_are(h, 5, 7));
    CU_ASSERT_EQUAL(picks(h, 4, t.b, NULL, true), -ENOENT);
    CU_ASSERT_EQUAL(picks(h, 6, t.b, t.b, true), 0);
    /* An undo from the command line does not know the mount's limit, so it drops only the oldest
     * state. */
    for (unsigned i = 8; i <= 40; i++)
        edit(&many, i % 2 ? t.a : t.b, i % 2 ? t.b : t.a, i * 100, 0);
    h->keep = HISTORY_KEEP_SAME;
    CU_ASSERT_TRUE(numbers_are(h, 11, 40));
    edit(h, t.a, t.b, 5000, 0);
    CU_ASSERT_TRUE(numbers_are(h, 12, 41));
    /* A state that cannot be removed stays until a later attempt succeeds. */
    struct faultsys fs;
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    fs.sys.unlinkat = no_unlink;
    h->sys = &fs.sys;
    h->keep = 3;
    edit(h, t.b, t.a, 6000, 0);
    CU_ASSERT_TRUE(numbers_are(h, 12, 42));
    h->sys = calm();
    edit(h, t.a, t.b, 7000, 0);
    CU_ASSERT_TRUE(numbers_are(h, 41, 43));
    history_close(&many);
    three_free(&t);
}

/* The clock is set back by a day before each edit. No edit joins a state, state numbers still rise,
 * and the newest states are kept. */
static void test_clock(void)
{
    struct three t;
    struct history *h = three_setup(&t);
    for (unsigned i = 0; i < 30; i++)
        edit(h, i % 2 ? t.b : t.a, i % 2 ? t.a : t.b, 1000000 - (int64_t)i * 86400, 0);
    CU_ASSERT_TRUE(numbers_are(h, 11, 30));
    three_free(&t);
}

/* If there is nothing to clear, `--history=clear` reports why. */
static void test_clear(void)
{
    struct three t;
    struct err e = {0};
    struct history other, *h = three_setup(&t);
    struct history_pick p;
    size_t n;
    CU_ASSERT_EQUAL(open_history(&t.x, &other, "/other/m.gguf", 2), 0);
    CU_ASSERT_EQUAL(history_clear(h, &n, &e), 0);
    CU_ASSERT_EQUAL(n, 0);
    CU_ASSERT_EQUAL(home_files(&t.x), 0);
    CU_ASSERT_EQUAL(history_pick(h, 0, t.a, &p, &e), -ENOENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "no edit of this model is recorded"));
    for (unsigned i = 1; i <= 4; i++) {
        edit(h, t.a, t.b, 100 * i, 0);
        edit(&other, t.a, t.b, 100 * i, 0);
    }
    CU_ASSERT_EQUAL(history_pick(&other, 2, t.b, &p, &e), -ENOENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "there is no state 2 any more: only the latest are kept"));
    CU_ASSERT_EQUAL(history_pick(&other, 5, t.b, &p, &e), -ENOENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "there is no state 5 (ggufs"));
    CU_ASSERT_EQUAL(history_clear(h, &n, &e), 0);
    CU_ASSERT_EQUAL(n, 4);
    CU_ASSERT_TRUE(numbers_are(h, 1, 0));
    CU_ASSERT_EQUAL(history_clear(h, &n, &e), 0);
    CU_ASSERT_EQUAL(n, 0);
    CU_ASSERT_TRUE(numbers_are(&other, 3, 4));
    CU_ASSERT_EQUAL(history_pick(h, 0, t.b, &p, &e), -ENOENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "the states were forgotten (--history=clear)"));
    CU_ASSERT_EQUAL(history_pick(h, 4, t.b, &p, &e), -ENOENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "there is no state 4 any more: it was forgotten"));
    edit(h, t.a, t.b, 1000, 0); /* numbers are not reused */
    CU_ASSERT_TRUE(numbers_are(h, 5, 5));
    CU_ASSERT_EQUAL(history_clear(h, &n, &e), 0);
    edit(h, t.a, t.b, 2000, 0);
    CU_ASSERT_TRUE(numbers_are(h, 6, 6));
    history_close(&other);
    three_free(&t);
}

/* ---- foreign and damaged files ---- */

/* Write the path of a state's file into `path`. */
static void in_folder(const struct home *x, uint64_t hash, uint64_t number, char path[96])
{
    (void)snprintf(path, 96, FOLDER "%016llx-%llu", (unsigned long long)(hash ? hash : x->h.hash),
                   (unsigned long long)number);
}

/* Anything that has a state's name but is not our own regular file is neither read nor written. */
static void test_planted(void)
{
    for (int i = 0; i < (geteuid() == 0 ? 5 : 4); i++) { /* only root can change the owner */
        struct three t;
        struct err e = {0};
        struct history_pick p;
        struct history *h = three_setup(&t);
        char path[96], more[100];
        edit(h, t.a, t.b, 100, 0);
        in_folder(&t.x, 0, 1, path);
        (void)snprintf(more, sizeof(more), "%s.x", path);
        if (i < 3)
            CU_ASSERT_EQUAL(unlinkat(t.x.dir, path, 0), 0);
        int r = i == 0   ? symlinkat("/etc/passwd", t.x.dir, path)
                : i == 1 ? mkfifoat(t.x.dir, path, 0600)
                : i == 2 ? mkdirat(t.x.dir, path, 0700)
                : i == 4 ? fchownat(t.x.dir, path, 12345, 12345, 0)
                         : linkat(t.x.dir, path, t.x.dir, more, 0);
        CU_ASSERT_EQUAL(r, 0);
        CU_ASSERT_EQUAL(history_pick(h, 1, t.b, &p, &e), -EPERM);
        CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "was not made by ggufs"));
        CU_ASSERT_EQUAL(save(h, t.b, t.c, 300, 0, NULL), -EPERM);
        three_free(&t);
    }
}

/* Store a state of another model under this model's name. */
static void of_another(const char *model)
{
    struct three t;
    struct history other, *h = three_setup(&t);
    char from[96], to[96];
    CU_ASSERT_EQUAL(open_history(&t.x, &other, model, 20), 0);
    edit(&other, t.a, t.b, 100, 0);
    in_folder(&t.x, other.hash, 1, from);
    in_folder(&t.x, 0, 1, to);
    CU_ASSERT_EQUAL(renameat(t.x.dir, from, t.x.dir, to), 0);
    CU_ASSERT_EQUAL(picks(h, 1, t.b, NULL, true), -ESTALE);
    history_close(&other);
    three_free(&t);
}

static void test_of_another(void)
{
    of_another("/other/m.gguf");
    of_another("/others/m.gguf"); /* the path is as long as this model's */
}

/* ---- requests by users while something fails ---- */

static int text_of(struct history *h, struct gguf *now, struct err *e)
{
    CLEANUP(buf_free) struct buf out = BUF_INIT;
    return history_text(h, now, &out, e);
}

static int pick_one(struct history *h, struct gguf *now, struct err *e)
{
    struct history_pick p;
    int r = history_pick(h, 0, now, &p, e);
    history_pick_free(&p);
    return r;
}

static int clear(struct history *h, struct gguf *now, struct err *e)
{
    size_t n;
    (void)now;
    return history_clear(h, &n, e);
}

/* Each call and each allocation fails once. No state is lost unless it was being cleared. */
static void test_asked_faults(void)
{
    int (*const asked[])(struct history *, struct gguf *, struct err *) = {text_of, pick_one,
                                                                           clear};
    for (size_t i = 0; i < 6; i++)
        for (unsigned n = 1, hit = 1; hit; n++) {
            struct three t;
            struct err e = {0};
            struct faultsys fs;
            struct history again, *h = three_setup(&t);
            const bool calls = i < 3;
            edit(h, t.a, t.b, 1000, 0);
            edit(h, t.b, t.c, 2000, 0);
            faultsys_init(&fs, calls ? FAULT_FAIL : FAULT_NONE, n, -EIO);
            alloc_arm(calls ? 0 : n, false);
            int r = open_history(&t.x, &again, "/models/m.gguf", 20);
            again.sys = &fs.sys;
            if (r == 0)
                r = asked[i % 3](&again, t.c, &e);
            hit = alloc_disarm() || fs.hit;
            history_close(&again);
            CU_ASSERT_TRUE(r == 0 || (hit && r == (calls ? -EIO : -ENOMEM)));
            CU_ASSERT_TRUE(numbers_are(h, 1, 2) || (i % 3 == 2 && numbers_are(h, 1, 0)));
            CU_ASSERT_TRUE(home_files(&t.x) <= 2);
            three_free(&t);
        }
}

/* ---- as text ---- */

static void test_text(void)
{
    struct three t;
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    struct err e = {0};
    setenv("TZ", "UTC", 1);
    struct history *h = three_setup(&t);
    CU_ASSERT_EQUAL(history_text(h, t.a, &text, &e), 0);
    CU_ASSERT_EQUAL(text.len, 0);
    edit(h, t.a, t.b, 1000000000, 0);
    /* Another program has reverted the edit, so an undo would change nothing. */
    CU_ASSERT_EQUAL(history_text(h, t.a, &text, &e), 0);
    CU_ASSERT_EQUAL(text.len, 0);
    edit(h, t.b, t.c, 1100000000, 0);
    edit(h, t.c, t.b, 1200000000, 2);
    CU_ASSERT_EQUAL(history_text(h, t.b, &text, &e), 0);
    buf_char(&text, '\0');
    CU_ASSERT_STRING_EQUAL(buf_text(&text),
                           "1\t2001-09-09 01:46:40\tchanged text\n"
                           "2\t2004-11-09 11:33:20\tchanged text\n"
                           "3\t2008-01-10 21:20:00\tundo, back to 2: changed text\n");
    buf_free(&text);
    CU_ASSERT_EQUAL(history_text(h, t.a, &text, &e), 0);
    buf_char(&text, '\0');
    CU_ASSERT_PTR_NOT_NULL(strstr(buf_text(&text), "text (also by another program)\n"));
    three_free(&t);
}

static struct gguf *with_keys(const char *const *keys, size_t n)
{
    struct build b;
    struct gguf *g = NULL;
    size_t size;
    build_init(&b, 3, false);
    for (size_t i = 0; i < n; i++)
        build_str(&b, keys[i], "x");
    uint8_t *image = build_finish(&b, &size);
    struct source s = source_mem(image, size);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, 0, &g, NULL), 0);
    free(image);
    return g;
}

static void test_describe(void)
{
    static const char *const first[] = {"k.a", "k.b", "split.no", "k.\n"};
    static const char *const second[] = {"k.b", "k.1", "k.2", "k.3", "k.4", "k.5", "k.6", "k.7"};
    static const char *const third[] = {"k.b", "k.a"};
    struct gguf *a = with_keys(first, 4), *b = with_keys(second, 8), *c = with_keys(third, 2);
    struct gguf *d = with_keys(first, 2);
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    history_describe(a, b, &text);
    buf_char(&text, '\0');
    CU_ASSERT_STRING_EQUAL(buf_text(&text),
                           "added k.1, k.2, k.3, k.4, k.5 and 2 more; removed k.a, k.\\x0a");
    buf_free(&text);
    history_describe(d, c, &text);
    buf_char(&text, '\0');
    CU_ASSERT_STRING_EQUAL(buf_text(&text), "changed the order of the keys");
    gguf_free(a);
    gguf_free(b);
    gguf_free(c);
    gguf_free(d);
}

/* ---- its location ---- */

static void home_is(const char *state_home, const char *home, const char *want)
{
    struct err e = {0};
    struct history h;
    if (!state_home || setenv("XDG_STATE_HOME", state_home, 1) < 0)
        (void)unsetenv("XDG_STATE_HOME");
    if (!home || setenv("HOME", home, 1) < 0)
        (void)unsetenv("HOME");
    int r = history_open(&h, &sys_libc, NULL, "/m", 20, &e);
    if (!want && geteuid() == 0)
        want = "/var/lib";
    CU_ASSERT_EQUAL(r, want ? 0 : -ENOENT);
    if (r == 0 && want)
        CU_ASSERT_STRING_EQUAL(h.home, want);
    history_close(&h);
}

static void test_home(void)
{
    home_is("/state", "/home/me", "/state");
    home_is("state", "/home/me", "/home/me/.local/state");
    home_is(NULL, "/home/me", "/home/me/.local/state");
    home_is("", "/home/me", "/home/me/.local/state");
    home_is("", "me", NULL);
    home_is(NULL, "", NULL);
    home_is(NULL, NULL, NULL);
}

/* The directory, and those of its parents that belong to ggufs, are created for this user alone,
 * and are not used if other users can enter or write to them. */
static void test_folder(void)
{
    static const struct {
        const char *name;
        mode_t mode;
        int want;
    } rows[] = {{"state/ggufs", 0755, 1},
                {"state/ggufs", 0720, -EPERM},
                {"state/ggufs", 0702, -EPERM},
                {"state/ggufs/history", 0710, -EPERM},
                {"state/ggufs/history", 0704, -EPERM},
                {"state", 0777, 1}};
    struct three t;
    struct history *h = three_setup(&t);
    struct stat st;
    struct err e = {0};
    edit(h, t.a, t.b, 1000, 0);
    CU_ASSERT_EQUAL(fstatat(t.x.dir, "state/ggufs", &st, 0), 0);
    CU_ASSERT_EQUAL(st.st_mode & 07777, 0700);
    CU_ASSERT_EQUAL(fstatat(t.x.dir, "state/ggufs/history", &st, 0), 0);
    CU_ASSERT_EQUAL(st.st_mode & 07777, 0700);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct history again;
        CU_ASSERT_EQUAL(open_history(&t.x, &again, "/models/m.gguf", 20), 0);
        CU_ASSERT_EQUAL(fchmodat(t.x.dir, rows[i].name, rows[i].mode, 0), 0);
        int r = (int)save(&again, t.b, t.a, 1000, 0, &e);
        CU_ASSERT_EQUAL(r > 0 ? 1 : r, rows[i].want);
        if (rows[i].want < 0)
            CU_ASSERT_PTR_NOT_NULL(
                strstr(e.msg, "history: other users can enter it or write to it (chmod"));
        CU_ASSERT_EQUAL(fchmodat(t.x.dir, rows[i].name, 0700, 0), 0);
        history_close(&again);
    }
    three_free(&t);
}

static void test_links(void)
{
    static const char *const links[] = {"state/ggufs", "state/ggufs/history"};
    for (size_t i = 0; i < 4; i++) {
        struct three t;
        struct err e = {0};
        struct history *h = three_setup(&t);
        CU_ASSERT_EQUAL(mkdirat(t.x.dir, "state", 0700), 0);
        CU_ASSERT_EQUAL(mkdirat(t.x.dir, "elsewhere", 0700), 0);
        if (i % 2)
            CU_ASSERT_EQUAL(mkdirat(t.x.dir, "state/ggufs", 0700), 0);
        if (i < 2) {
            CU_ASSERT_EQUAL(symlinkat(i ? "../../elsewhere" : "../elsewhere", t.x.dir, links[i]),
                            0);
        } else {
            (void)close(openat(t.x.dir, links[i % 2], O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
        }
        int r = (int)save(h, t.a, t.b, 1000, 0, &e);
        CU_ASSERT_TRUE(r == -ENOTDIR || r == -ELOOP);
        CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "it, or a directory above it, is not a directory"));
        three_free(&t);
    }
}

/* A directory that belongs to another user is not used, but the state directory itself may belong
 * to root. */
static void test_other_users(void)
{
    static const char *const given[] = {"state", "state/ggufs", "state/ggufs/history"};
    if (geteuid() != 0)
        return; /* only root may change a directory's owner */
    for (size_t i = 0; i < 3; i++) {
        struct three t;
        struct err e = {0};
        struct history again, *h = three_setup(&t);
        CU_ASSERT_EQUAL(mkdirat(t.x.dir, "state", 0700), 0);
        if (i > 0)
            edit(h, t.a, t.b, 1000, 0);
        CU_ASSERT_EQUAL(fchownat(t.x.dir, given[i], 12345, 12345, 0), 0);
        CU_ASSERT_EQUAL(open_history(&t.x, &again, "/models/m.gguf", 20), 0);
        CU_ASSERT_EQUAL(save(&again, t.b, t.a, 1000, 0, &e), -EPERM);
        CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "belongs to another user"));
        CU_ASSERT_EQUAL(home_files(&t.x), i > 0);
        history_close(&again);
        three_free(&t);
    }
    struct three t;
    struct history *h = three_setup(&t);
    CU_ASSERT_EQUAL(fchmod(t.x.dir, 0711), 0);
    CU_ASSERT_EQUAL(mkdirat(t.x.dir, "state", 0700), 0);
    CU_ASSERT_EQUAL(fchmodat(t.x.dir, "state", 0777, 0), 0);
    CU_ASSERT_EQUAL_FATAL(seteuid(65534), 0);
    edit(h, t.a, t.b, 1000, 0);
    CU_ASSERT_EQUAL(picks(h, 0, t.b, t.a, true), 0);
    CU_ASSERT_EQUAL_FATAL(seteuid(0), 0);
    three_free(&t);
}

static void make_state(void *arg)
{
    CU_ASSERT_EQUAL(mkdirat(((const struct home *)arg)->dir, "state", 0700), 0);
}

static int no_folder(const struct sys *s, int dir, const char *name, mode_t mode)
{
    (void)s;
    (void)dir;
    (void)name;
    (void)mode;
    return -EROFS;
}

/* A home that another process creates at the same time is used. A home that would have to be
 * created in the root directory, or that is a link to itself, is refused. */
static void test_odd_homes(void)
{
    struct three t;
    struct faultsys fs;
    struct err e = {0};
    struct history h, *made = three_setup(&t);
    char path[128];
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    fs.before = "mkdirat";
    fs.hook = make_state;
    fs.arg = &t.x;
    made->sys = &fs.sys;
    edit(made, t.a, t.b, 1000, 0);
    CU_ASSERT_PTR_NULL(fs.before);
    made->sys = calm();
    fs.sys.mkdirat = no_folder;
    CU_ASSERT_EQUAL(history_open(&h, &fs.sys, "/ggufs-none/state", "/m", 20, &e), 0);
    CU_ASSERT_EQUAL(save(&h, t.a, t.b, 1, 0, &e), -EROFS);
    history_close(&h);
    CU_ASSERT_EQUAL(symlinkat("loop", t.x.dir, "loop"), 0);
    (void)snprintf(path, sizeof(path), "%s/loop", t.x.path);
    CU_ASSERT_EQUAL(history_open(&h, calm(), path, "/m", 20, &e), 0);
    CU_ASSERT_EQUAL(save(&h, t.a, t.b, 1, 0, &e), -ELOOP);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "it, or a directory above it, is not a directory"));
    history_close(&h);
    three_free(&t);
}

/* A missing home directory is created along with its missing parents. Each call fails in turn. */
static void test_missing(void)
{
    unsigned n = 1;
    struct faultsys fs;
    do {
        struct three t;
        struct err e = {0};
        char path[128];
        struct history h;
        (void)three_setup(&t);
        faultsys_init(&fs, FAULT_FAIL, n++, -EIO);
        (void)snprintf(path, sizeof(path), "%s/deep/er//still/", t.x.path);
        CU_ASSERT_EQUAL(history_open(&h, &fs.sys, path, "/m", 20, &e), 0);
        int r = (int)save(&h, t.a, t.b, 1, 0, &e);
        if (!fs.hit) {
            CU_ASSERT_EQUAL(r, 1);
            CU_ASSERT_EQUAL(faccessat(t.x.dir, "deep/er/still/ggufs/history", X_OK, 0), 0);
        }
        if (r < 0)
            CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "still/ggufs/history"));
        history_close(&h);
        CU_ASSERT_EQUAL(history_open(&h, calm(), path, "/m", 20, &e), 0);
        CU_ASSERT_TRUE(save(&h, t.a, t.b, 1, 0, &e) > 0);
        CU_ASSERT_EQUAL(picks(&h, 0, t.b, t.a, true), 0);
        history_close(&h);
        three_free(&t);
    } while (fs.hit);
    CU_ASSERT_TRUE(n > 25);
}

static int remove_one(void *arg, const char *name)
{
    return unlinkat(*(int *)arg, name, 0);
}

/* Remove the directory of histories, like `rm -r`. */
static void remove_folder(void *arg)
{
    const struct home *x = arg;
    int dir = openat(x->dir, "state/ggufs/history", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CU_ASSERT_TRUE_FATAL(dir >= 0);
    CU_ASSERT_EQUAL(sys_libc.list(&sys_libc, dir, remove_one, &dir), 0);
    (void)close(dir);
    CU_ASSERT_EQUAL(unlinkat(x->dir, "state/ggufs/history", AT_REMOVEDIR), 0);
    CU_ASSERT_EQUAL(unlinkat(x->dir, "state/ggufs", AT_REMOVEDIR), 0);
}

/* If the directory was removed, the next edit creates it again, even if that edit would have joined
 * a state. */
static void test_folder_removed(void)
{
    for (int64_t later = 1; later <= 1000; later += 999) {
        struct three t;
        struct history *h = three_setup(&t), other;
        edit(h, t.a, t.b, 1000, 0);
        remove_folder(&t.x);
        CU_ASSERT_EQUAL(picks(h, 0, t.b, NULL, false), -ENOENT);
        CU_ASSERT_EQUAL(open_history(&t.x, &other, "/models/m.gguf", 20), 0);
        edit(&other, t.b, t.c, 1000 + later, 0);
        CU_ASSERT_EQUAL(picks(&other, 0, t.c, t.b, true), 0);
        CU_ASSERT_TRUE(numbers_are(&other, 1, 1));
        history_close(&other);
        three_free(&t);
    }
}

static void test_folder_removed_meanwhile(void)
{
    struct three t;
    struct faultsys fs;
    struct history *h = three_setup(&t);
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    h->sys = &fs.sys;
    fs.hook = remove_folder;
    fs.arg = &t.x;
    fs.before = "rename";
    CU_ASSERT_EQUAL(save(h, t.b, t.c, 2000, 0, NULL), -ENOENT);
    h->sys = &sys_libc;
    three_free(&t);
}

static CU_TestInfo tests[] = {
    {"an undo restores the right state", test_pick},
    {"keys that another program wrote are left alone", test_foreign},
    {"a failed edit is not a state", test_failed},
    {"a failed edit never costs the only state", test_failed_one},
    {"an edit soon after another joins its state", test_join},
    {"the last N states of a model are kept", test_keep},
    {"a clock that is set back does not disturb the states", test_clock},
    {"numbers continue after the history is cleared", test_clear},
    {"objects planted by others are not used", test_planted},
    {"a history of another model is refused", test_of_another},
    {"requests lose nothing if a call or allocation fails", test_asked_faults},
    {"the history is shown as text", test_text},
    {"differences are described in words", test_describe},
    {"the state directory is found from the environment", test_home},
    {"the state directory is private to the user", test_folder},
    {"links in place of ggufs' own directories are not followed", test_links},
    {"directories of other users are not used", test_other_users},
    {"a home made by another process is used; unsuitable ones are refused", test_odd_homes},
    {"a missing home is created with its parents", test_missing},
    {"a removed directory is created again by the next edit", test_folder_removed},
    {"an edit fails if its directory is removed meanwhile", test_folder_removed_meanwhile},
    CU_TEST_INFO_NULL,
};

CU_MAIN("history", tests)

/* SPDX-License-Identifier: MIT */
/* edit/history_look: a history as text, and which state an undo means. */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "build_gguf.h"
#include "edit/history_look.h"
#include "edit/history_names.h"
#include "edit/recorder.h"
#include "edit/restore.h"
#include "faultsys.h"
#include "history_dir.h"

static void end(struct recorder *r, bool landed, int64_t now)
{
    recorder_end(r, landed, now);
    CU_ASSERT_EQUAL(recorder_settle(r, NULL), 0);
    CU_ASSERT_TRUE(recorder_is_settled(r));
}

/* Record an edit from one set of keys to another. */
static void edit(struct recorder *r, const struct gguf *from, const struct gguf *to, int64_t now,
                 uint64_t restored)
{
    struct recorded_edit e = {from,         edit_keys_id(from), edit_keys_id(to),
                              restored > 0, restored,           now};
    CU_ASSERT_EQUAL(recorder_begin(r, &e, NULL), 0);
    end(r, true, now);
}

/* The keys that an undo would restore are these; number 0: the last edit. */
static int picks(struct history *h, uint64_t number, const struct gguf *now,
                 const struct gguf *want, bool fits)
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
    struct recorder r;
    struct gguf *a, *b, *c;
};

static void three_setup(struct three *t)
{
    home_setup(&t->x);
    t->r = (struct recorder){.h = &t->x.h};
    t->a = keys_of("a");
    t->b = keys_of("b");
    t->c = keys_of("c");
}

static void three_free(struct three *t)
{
    gguf_free(t->a);
    gguf_free(t->b);
    gguf_free(t->c);
    home_teardown(&t->x);
}

static void test_pick(void)
{
    struct three t;
    three_setup(&t);
    struct history *h = &t.x.h;
    CU_ASSERT_EQUAL(picks(h, 0, t.a, NULL, true), -ENOENT);
    CU_ASSERT_EQUAL(picks(h, 1, t.a, NULL, true), -ENOENT);
    edit(&t.r, t.a, t.b, 1000, 0);
    CU_ASSERT_EQUAL(picks(h, 0, t.b, t.a, true), 0);
    edit(&t.r, t.b, t.c, 1100, 0);
    CU_ASSERT_EQUAL(picks(h, 0, t.c, t.b, true), 0);
    CU_ASSERT_EQUAL(picks(h, 1, t.c, t.a, true), 0);
    /* The undo of the last one, and the undo of that. */
    edit(&t.r, t.c, t.b, 1200, 2);
    CU_ASSERT_EQUAL(picks(h, 0, t.b, t.c, true), 0);
    edit(&t.r, t.b, t.c, 1201, 3);
    CU_ASSERT_EQUAL(picks(h, 0, t.c, t.b, true), 0);
    CU_ASSERT_TRUE(numbers_are(h, 1, 4));
    /* An edit just after an undo has a state of its own. */
    edit(&t.r, t.c, t.a, 1202, 0);
    CU_ASSERT_EQUAL(picks(h, 0, t.a, t.c, true), 0);
    three_free(&t);
}

static void test_foreign(void)
{
    struct three t;
    three_setup(&t);
    struct gguf *other = keys_of("by another program");
    edit(&t.r, t.a, t.b, 1000, 0);
    CU_ASSERT_EQUAL(picks(&t.x.h, 0, other, NULL, false), -ESTALE);
    CU_ASSERT_EQUAL(picks(&t.x.h, 0, t.a, NULL, false), -ESTALE);
    CU_ASSERT_EQUAL(picks(&t.x.h, 1, other, t.a, false), 0);
    gguf_free(other);
    three_free(&t);
}

/* Edits that fail make no row of states, and hide none. */
static void test_failed(void)
{
    struct three t;
    three_setup(&t);
    edit(&t.r, t.a, t.b, 1000, 0);
    for (int64_t now = 2000; now < 2500; now += 50) {
        struct recorded_edit e = {t.b, edit_keys_id(t.b), edit_keys_id(t.c), false, 0, now};
        struct recorder fresh = {.h = &t.x.h};
        struct recorder *r = now % 100 ? &fresh : &t.r;
        CU_ASSERT_EQUAL(recorder_begin(r, &e, NULL), 0);
        end(r, false, now);
    }
    CU_ASSERT_TRUE(numbers_are(&t.x.h, 1, 2));
    CU_ASSERT_EQUAL(picks(&t.x.h, 0, t.b, t.a, true), 0);
    edit(&t.r, t.b, t.c, 3000, 0);
    CU_ASSERT_TRUE(numbers_are(&t.x.h, 1, 2));
    CU_ASSERT_EQUAL(picks(&t.x.h, 0, t.c, t.b, true), 0);
    three_free(&t);
}

static void test_join(void)
{
    struct three t;
    three_setup(&t);
    edit(&t.r, t.a, t.b, 1000, 0);
    edit(&t.r, t.b, t.c, 1009, 0);
    CU_ASSERT_TRUE(numbers_are(&t.x.h, 1, 1));
    CU_ASSERT_EQUAL(picks(&t.x.h, 0, t.c, t.a, true), 0);
    /* By another process, too. */
    t.r.open = false;
    edit(&t.r, t.c, t.b, 1018, 0);
    CU_ASSERT_TRUE(numbers_are(&t.x.h, 1, 1));
    edit(&t.r, t.b, t.c, 1028, 0);
    CU_ASSERT_TRUE(numbers_are(&t.x.h, 1, 2));
    /* A clock that went back, and keys that another program wrote. */
    edit(&t.r, t.c, t.b, 1020, 0);
    CU_ASSERT_TRUE(numbers_are(&t.x.h, 1, 3));
    edit(&t.r, t.a, t.b, 1021, 0);
    CU_ASSERT_TRUE(numbers_are(&t.x.h, 1, 4));
    three_free(&t);
}

/* What was written of a state whose edit is given up is gone, and the folder is free for others. */
static void test_given_up(void)
{
    struct three t;
    struct history other;
    three_setup(&t);
    CU_ASSERT_EQUAL(open_history(&t.x, &other, "/other/m.gguf", 20), 0);
    edit(&t.r, t.a, t.b, 1000, 0);
    struct recorded_edit e = {t.b, edit_keys_id(t.b), 0, false, 0, 2000};
    CU_ASSERT_EQUAL(recorder_prepare(&t.r, &e, NULL), 0);
    CU_ASSERT_EQUAL(home_files(&t.x), 2);
    recorder_drop(&t.r);
    CU_ASSERT_EQUAL(home_files(&t.x), 1);
    CU_ASSERT_EQUAL(save(&other, t.a, 2000, NULL), 1);
    CU_ASSERT_EQUAL(picks(&t.x.h, 0, t.b, t.a, true), 0);
    /* One that joins has nothing to give up; nor has a recorder that is ended in between. */
    e.now = 1001;
    CU_ASSERT_EQUAL(recorder_prepare(&t.r, &e, NULL), 0);
    CU_ASSERT_EQUAL(home_files(&t.x), 2);
    recorder_drop(&t.r);
    e.now = 3000;
    CU_ASSERT_EQUAL(recorder_prepare(&t.r, &e, NULL), 0);
    history_close(&t.x.h);
    CU_ASSERT_EQUAL(home_files(&t.x), 2);
    CU_ASSERT_EQUAL(save(&other, t.a, 3000, NULL), 2);
    history_close(&other);
    three_free(&t);
}

/* True if somebody has the lock of the folder of states. */
static bool folder_locked(const struct home *x)
{
    int dir = openat(x->dir, "state/ggufs/history", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = flock(dir, LOCK_EX | LOCK_NB);
    (void)close(dir);
    return r < 0 && errno == EWOULDBLOCK;
}

/* Nothing is settled while a state is prepared, whose lock of the folder that would give up. */
static void test_settle_while_prepared(void)
{
    struct three t;
    three_setup(&t);
    struct recorded_edit first = {t.a, edit_keys_id(t.a), edit_keys_id(t.b), false, 0, 1000};
    struct recorded_edit e = {t.b, edit_keys_id(t.b), edit_keys_id(t.c), false, 0, 2000};
    CU_ASSERT_EQUAL(recorder_begin(&t.r, &first, NULL), 0);
    recorder_end(&t.r, true, 1000);
    CU_ASSERT_FALSE(recorder_is_settled(&t.r));
    CU_ASSERT_EQUAL(recorder_prepare(&t.r, &e, NULL), 0);
    CU_ASSERT_TRUE(recorder_is_settled(&t.r));
    CU_ASSERT_EQUAL(recorder_settle(&t.r, NULL), 0);
    CU_ASSERT_TRUE(folder_locked(&t.x));
    CU_ASSERT_EQUAL(recorder_begin(&t.r, &e, NULL), 0);
    CU_ASSERT_FALSE(folder_locked(&t.x));
    end(&t.r, true, 2000);
    CU_ASSERT_TRUE(numbers_are(&t.x.h, 1, 2));
    CU_ASSERT_EQUAL(picks(&t.x.h, 0, t.c, t.b, true), 0);
    three_free(&t);
}

static void test_text(void)
{
    struct three t;
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    struct err e = {0};
    setenv("TZ", "UTC", 1);
    three_setup(&t);
    CU_ASSERT_EQUAL(history_text(&t.x.h, t.a, &text, &e), 0);
    CU_ASSERT_EQUAL(text.len, 0);
    edit(&t.r, t.a, t.b, 1000000000, 0);
    edit(&t.r, t.b, t.c, 1100000000, 0);
    edit(&t.r, t.c, t.b, 1200000000, 2);
    CU_ASSERT_EQUAL(history_text(&t.x.h, t.b, &text, &e), 0);
    buf_char(&text, '\0');
    CU_ASSERT_STRING_EQUAL((char *)text.data,
                           "1\t2001-09-09 01:46:40\tchanged text\n"
                           "2\t2004-11-09 11:33:20\tchanged text\n"
                           "3\t2008-01-10 21:20:00\tundo, back to 2: changed text\n");
    buf_free(&text);
    CU_ASSERT_EQUAL(history_text(&t.x.h, t.a, &text, &e), 0);
    buf_char(&text, '\0');
    CU_ASSERT_PTR_NOT_NULL(strstr((char *)text.data, "text (also by another program)\n"));
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
    CU_ASSERT_STRING_EQUAL((char *)text.data,
                           "added k.1, k.2, k.3, k.4, k.5 and 2 more; removed k.a, k.\\x0a");
    buf_free(&text);
    history_describe(d, c, &text);
    buf_char(&text, '\0');
    CU_ASSERT_STRING_EQUAL((char *)text.data, "changed the order of the keys");
    gguf_free(a);
    gguf_free(b);
    gguf_free(c);
    gguf_free(d);
}

/* The clock goes back by a day before each edit: none joins, numbers rise, the newest are kept. */
static void test_clock(void)
{
    struct home x;
    struct err e = {0};
    struct recorder r = {.h = &x.h};
    home_setup(&x);
    struct gguf *g = keys_of("one");
    for (unsigned i = 0; i < 30; i++) {
        int64_t now = 1000000 - (int64_t)i * 86400; /* at last before 1970 */
        struct recorded_edit edit = {.keys = g, .before = i, .after = i + 1, .now = now};
        CU_ASSERT_EQUAL(recorder_begin(&r, &edit, &e), 0);
        end(&r, true, now);
    }
    CU_ASSERT_TRUE(numbers_are(&x.h, 11, 30));
    CU_ASSERT_EQUAL(home_files(&x), 20);
    gguf_free(g);
    home_teardown(&x);
}

/* A command that undoes does not have the number of a mount: it drops only the oldest one. */
static void test_keep_same(void)
{
    struct home x;
    struct err e = {0};
    home_setup(&x);
    struct gguf *g = keys_of("one");
    struct history many, same;
    CU_ASSERT_EQUAL(open_history(&x, &many, "/models/m.gguf", 30), 0);
    CU_ASSERT_EQUAL(open_history(&x, &same, "/models/m.gguf", HISTORY_KEEP_SAME), 0);
    for (unsigned i = 1; i <= 22; i++)
        CU_ASSERT_EQUAL(save(&same, g, i * 100, &e), i);
    CU_ASSERT_TRUE(numbers_are(&same, 3, 22));
    for (unsigned i = 23; i <= 40; i++)
        CU_ASSERT_EQUAL(save(&many, g, i * 100, &e), i);
    CU_ASSERT_TRUE(numbers_are(&same, 11, 40));
    CU_ASSERT_EQUAL(save(&same, g, 5000, &e), 41);
    CU_ASSERT_TRUE(numbers_are(&same, 12, 41));
    history_close(&many);
    history_close(&same);
    gguf_free(g);
    home_teardown(&x);
}

/* A state's file gets the name of another number, or ends `cut` bytes earlier. */
static void damage(struct history *h, const char *from, uint64_t number, size_t cut)
{
    struct history_name n;
    char to[HISTORY_NAME_MAX];
    CU_ASSERT_TRUE_FATAL(history_name_get(from, &n));
    if (cut) {
        int fd = openat(h->place.dir, from, O_RDWR | O_CLOEXEC);
        CU_ASSERT_EQUAL(ftruncate(fd, (off_t)(n.size - cut)), 0);
        (void)close(fd);
    }
    n.number = number;
    history_name_put(&n, to);
    CU_ASSERT_EQUAL(renameat(h->place.dir, from, h->place.dir, to), 0);
}

static int damage_one(void *arg, const char *name)
{
    struct history *h = arg;
    struct history_name n;
    if (history_name_get(name, &n) && n.hash == h->hash && n.number <= 2)
        damage(h, name, n.number == 1 ? 7 : 2, n.number - 1);
    return 0;
}

/* Damaged states are in the list, with the reason, and are not restored; the others are. */
static void test_damaged(void)
{
    struct three t;
    struct err e = {0};
    struct history_pick p;
    CLEANUP(buf_free) struct buf out = BUF_INIT;
    three_setup(&t);
    CU_ASSERT_EQUAL(save(&t.x.h, t.a, 1000, &e), 1);
    CU_ASSERT_EQUAL(save(&t.x.h, t.b, 2000, &e), 2);
    CU_ASSERT_EQUAL(save(&t.x.h, t.c, 3000, &e), 3);
    CU_ASSERT_EQUAL(sys_libc.list(&sys_libc, t.x.h.place.dir, damage_one, &t.x.h), 0);
    CU_ASSERT_EQUAL(history_text(&t.x.h, t.a, &out, &e), 0);
    buf_char(&out, '\0');
    const char *text = (const char *)out.data;
    const char *two = strstr(text, "2\tcannot be restored: state 2 in "),
               *three = strstr(text, "3\t19"),
               *seven = strstr(text, "7\tcannot be restored: state 7 in ");
    CU_ASSERT_TRUE_FATAL(two == text && three && seven && two < three && three < seven);
    CU_ASSERT_PTR_NOT_NULL(strstr(two, ": it is damaged: "));
    CU_ASSERT_PTR_NOT_NULL(strstr(two, " bytes, its name says "));
    CU_ASSERT_PTR_NOT_NULL(strstr(seven, ": it is damaged: its number is another\n"));
    CU_ASSERT_EQUAL(history_pick(&t.x.h, 2, t.a, &p, &e), -EBADMSG);
    history_pick_free(&p);
    CU_ASSERT_EQUAL(history_pick(&t.x.h, 7, t.a, &p, &e), -EBADMSG);
    history_pick_free(&p);
    CU_ASSERT_EQUAL(history_pick(&t.x.h, 0, t.a, &p, &e), -EBADMSG); /* the last edit's */
    history_pick_free(&p);
    CU_ASSERT_EQUAL(picks(&t.x.h, 3, t.a, t.c, false), 0);
    three_free(&t);
}

static unsigned listings;

static int counted_list(const struct sys *s, int dir, int (*fn)(void *arg, const char *name),
                        void *arg)
{
    (void)s;
    listings++;
    return sys_libc.list(&sys_libc, dir, fn, arg);
}

/* The folder has the states of all models: it is listed once, not for each state. */
static void test_listed_once(void)
{
    struct three t;
    struct history_pick p;
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    three_setup(&t);
    for (int64_t now = 1000; now < 2000; now += 200) {
        edit(&t.r, t.a, t.b, now, 0);
        edit(&t.r, t.b, t.a, now + 100, 0);
    }
    struct sys calls = sys_libc;
    calls.list = counted_list;
    t.x.h.sys = &calls;
    listings = 0;
    CU_ASSERT_EQUAL(history_text(&t.x.h, t.a, &text, NULL), 0);
    CU_ASSERT_EQUAL(listings, 1);
    CU_ASSERT_EQUAL(history_pick(&t.x.h, 0, t.a, &p, NULL), 0);
    CU_ASSERT_TRUE(same_keys(p.keys, t.b));
    CU_ASSERT_EQUAL(listings, 2);
    history_pick_free(&p);
    CU_ASSERT_EQUAL(history_pick(&t.x.h, 3, t.a, &p, NULL), 0);
    CU_ASSERT_TRUE(same_keys(p.keys, t.a));
    history_pick_free(&p);
    three_free(&t);
}

static int remove_one(void *arg, const char *name)
{
    return unlinkat(*(int *)arg, name, 0);
}

/* What `rm -r` of the folder of all histories does. */
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

/* The folder goes while it is open: the next edit makes it anew, also one that would have joined a state. */
static void test_folder_removed(void)
{
    for (int64_t later = 1; later <= 1000; later += 999) {
        struct three t;
        struct history_list l;
        three_setup(&t);
        edit(&t.r, t.a, t.b, 1000, 0);
        remove_folder(&t.x);
        CU_ASSERT_EQUAL(picks(&t.x.h, 0, t.b, NULL, false), -ENOENT);
        CU_ASSERT_EQUAL(history_list(&t.x.h, &l, NULL), 0);
        CU_ASSERT_EQUAL(l.n, 0);
        edit(&t.r, t.b, t.c, 1000 + later, 0);
        CU_ASSERT_EQUAL(picks(&t.x.h, 0, t.c, t.b, true), 0);
        struct history other; /* as another process sees it */
        CU_ASSERT_EQUAL(open_history(&t.x, &other, "/models/m.gguf", 20), 0);
        CU_ASSERT_TRUE(numbers_are(&other, 1, 1));
        CU_ASSERT_EQUAL(picks(&other, 0, t.c, t.b, true), 0);
        history_close(&other);
        three_free(&t);
    }
}

/* It goes between the look for it and the lock, and while a state is written. */
static void test_folder_removed_meanwhile(void)
{
    struct three t;
    struct faultsys fs;
    three_setup(&t);
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    t.x.h.sys = &fs.sys;
    fs.hook = remove_folder;
    fs.arg = &t.x;
    fs.before = "flock";
    edit(&t.r, t.a, t.b, 1000, 0);
    CU_ASSERT_EQUAL(picks(&t.x.h, 0, t.b, t.a, true), 0);
    fs.before = "rename";
    struct recorded_edit e = {t.b, edit_keys_id(t.b), edit_keys_id(t.c), false, 0, 2000};
    CU_ASSERT_EQUAL(recorder_begin(&t.r, &e, NULL), -ENOENT);
    edit(&t.r, t.c, t.a, 3000, 0);
    CU_ASSERT_EQUAL(picks(&t.x.h, 0, t.a, t.c, true), 0);
    CU_ASSERT_TRUE(numbers_are(&t.x.h, 1, 1));
    t.x.h.sys = &sys_libc;
    three_free(&t);
}

static CU_TestInfo tests[] = {
    {"which state an undo restores", test_pick},
    {"keys that another program wrote", test_foreign},
    {"edits that failed are no states", test_failed},
    {"edits that join a state", test_join},
    {"a state whose edit is given up", test_given_up},
    {"nothing is settled while a state is prepared", test_settle_while_prepared},
    {"a history as text", test_text},
    {"differences in words", test_describe},
    {"states that are damaged", test_damaged},
    {"a folder that is listed once", test_listed_once},
    {"a folder that is removed while it is open", test_folder_removed},
    {"a folder that is removed meanwhile", test_folder_removed_meanwhile},
    {"a clock that goes back", test_clock},
    {"a command keeps as many states as a mount has kept", test_keep_same},
    CU_TEST_INFO_NULL,
};

CU_MAIN("history_look", tests)

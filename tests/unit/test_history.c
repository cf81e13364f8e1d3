/* SPDX-License-Identifier: MIT */
/* edit/history: states kept in files, their bounds, and files that are damaged or planted. */
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

/* ---- kept and read ---- */

static void test_keep(void)
{
    struct home x;
    struct err e = {0};
    home_setup(&x);
    struct gguf *g = keys_of("one"), *other = keys_of("two"), *back = NULL;
    struct history_record rec;
    CU_ASSERT_EQUAL(save(&x.h, g, 1000, &e), 1);
    CU_ASSERT_EQUAL(save(&x.h, other, 2000, &e), 2);
    CU_ASSERT_EQUAL(history_read(&x.h, 1, &rec, &back, &e), 0);
    CU_ASSERT_TRUE(same_keys(back, g));
    CU_ASSERT_EQUAL(rec.before, edit_keys_id(g));
    CU_ASSERT_EQUAL(rec.begin, 1000);
    gguf_free(back);
    CU_ASSERT_EQUAL(history_read(&x.h, 2, &rec, &back, &e), 0);
    CU_ASSERT_TRUE(same_keys(back, other));
    gguf_free(back);
    CU_ASSERT_EQUAL(history_read(&x.h, 3, &rec, &back, &e), -ENOENT);
    rec.landed = rec.planned = 77;
    CU_ASSERT_EQUAL(history_update(&x.h, &rec, &e), 0);
    CU_ASSERT_EQUAL(history_sync(&x.h, &rec, &e), 0);
    CU_ASSERT_EQUAL(history_read(&x.h, 2, &rec, NULL, &e), 0);
    CU_ASSERT_EQUAL(rec.landed, 77);
    gguf_free(g);
    gguf_free(other);
    home_teardown(&x);
}

/* The folder, and what is above it up to the state folder, are made for the user alone. */
static void test_folder(void)
{
    struct home x;
    struct stat st;
    struct err e = {0};
    home_setup(&x);
    struct gguf *g = keys_of("one");
    CU_ASSERT_EQUAL(save(&x.h, g, 1000, &e), 1);
    CU_ASSERT_EQUAL(fstatat(x.dir, "state/ggufs", &st, 0), 0);
    CU_ASSERT_EQUAL(st.st_mode & 07777, 0700);
    CU_ASSERT_EQUAL(fstatat(x.dir, "state/ggufs/history", &st, 0), 0);
    CU_ASSERT_EQUAL(st.st_mode & 07777, 0700);
    CU_ASSERT_EQUAL(fchmodat(x.dir, "state/ggufs/history", 0750, 0), 0);
    struct history again;
    CU_ASSERT_EQUAL(open_history(&x, &again, "/models/m.gguf", 20), 0);
    CU_ASSERT_EQUAL(save(&again, g, 1000, &e), -EPERM);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "chmod 700"));
    history_close(&again);
    gguf_free(g);
    home_teardown(&x);
}

/* A link in the place of one of our folders is not followed. */
static void test_links(void)
{
    static const char *const links[] = {"state/ggufs", "state/ggufs/history"};
    for (size_t i = 0; i < 2; i++) {
        struct home x;
        struct err e = {0};
        home_setup(&x);
        CU_ASSERT_EQUAL(mkdirat(x.dir, "state", 0700), 0);
        CU_ASSERT_EQUAL(mkdirat(x.dir, "elsewhere", 0700), 0);
        if (i)
            CU_ASSERT_EQUAL(mkdirat(x.dir, "state/ggufs", 0700), 0);
        CU_ASSERT_EQUAL(symlinkat(i ? "../../elsewhere" : "../elsewhere", x.dir, links[i]), 0);
        struct gguf *g = keys_of("one");
        CU_ASSERT_EQUAL(save(&x.h, g, 1000, &e), -ENOTDIR);
        CU_ASSERT_TRUE(e.msg[0] != '\0');
        gguf_free(g);
        home_teardown(&x);
    }
}

/* ---- bounds ---- */

static void test_keep_n(void)
{
    struct home x;
    struct err e = {0};
    home_setup(&x);
    struct gguf *g = keys_of("one");
    struct history three, other;
    CU_ASSERT_EQUAL(open_history(&x, &three, "/models/m.gguf", 3), 0);
    CU_ASSERT_EQUAL(open_history(&x, &other, "/other/m.gguf", 20), 0);
    for (unsigned i = 1; i <= 7; i++) {
        CU_ASSERT_EQUAL(save(&three, g, i * 100, &e), i);
        CU_ASSERT_EQUAL(save(&other, g, i * 100, &e), i);
    }
    CU_ASSERT_TRUE(numbers_are(&three, 5, 7));
    CU_ASSERT_TRUE(numbers_are(&other, 1, 7));
    history_close(&three);
    history_close(&other);
    gguf_free(g);
    home_teardown(&x);
}

static void test_clear(void)
{
    struct home x;
    struct err e = {0};
    size_t n;
    home_setup(&x);
    struct gguf *g = keys_of("one");
    struct history other;
    CU_ASSERT_EQUAL(open_history(&x, &other, "/other/m.gguf", 20), 0);
    CU_ASSERT_EQUAL(history_clear(&x.h, &n, &e), 0);
    CU_ASSERT_EQUAL(n, 0);
    CU_ASSERT_EQUAL(save(&other, g, 100, &e), 1);
    for (unsigned i = 1; i <= 4; i++)
        CU_ASSERT_EQUAL(save(&x.h, g, 100, &e), i);
    CU_ASSERT_EQUAL(history_clear(&x.h, &n, &e), 0);
    CU_ASSERT_EQUAL(n, 4);
    CU_ASSERT_TRUE(numbers_are(&x.h, 1, 0));
    CU_ASSERT_TRUE(numbers_are(&other, 1, 1));
    /* Numbers are not used again. */
    CU_ASSERT_EQUAL(save(&x.h, g, 100, &e), 5);
    CU_ASSERT_EQUAL(save(&other, g, 100, &e), 2);
    CU_ASSERT_EQUAL(history_clear(&x.h, &n, &e), 0);
    CU_ASSERT_EQUAL(save(&x.h, g, 100, &e), 6);
    history_close(&other);
    gguf_free(g);
    home_teardown(&x);
}

/* A file whose name says that it is a state of so many bytes. */
static void claim(const struct home *x, uint64_t hash, uint64_t number, uint64_t time,
                  uint64_t size)
{
    char name[HISTORY_NAME_MAX], path[HISTORY_NAME_MAX + 32];
    struct history_name n = {hash, number, time, size};
    history_name_put(&n, name);
    (void)snprintf(path, sizeof(path), "state/ggufs/history/%s", name);
    (void)close(openat(x->dir, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

/* 256 MiB of all models together; the oldest go, of whatever model, and their numbers stay used. */
static void test_all_models(void)
{
    struct home x;
    struct err e = {0};
    home_setup(&x);
    struct gguf *g = keys_of("one");
    uint64_t mib = 1 << 20;
    CU_ASSERT_EQUAL(save(&x.h, g, 500, &e), 1);
    claim(&x, 5, 30, 100, 100 * mib);
    claim(&x, 6, 40, 600, 100 * mib);
    claim(&x, 7, 50, 300, 55 * mib);
    CU_ASSERT_EQUAL(save(&x.h, g, 700, &e), 2);
    CU_ASSERT_EQUAL(home_files(&x), 5);
    claim(&x, 8, 2, 650, 2 * mib);
    CU_ASSERT_EQUAL(save(&x.h, g, 710, &e), 3);
    CU_ASSERT_EQUAL(home_files(&x), 7); /* one went, the floor came */
    struct history fresh;
    CU_ASSERT_EQUAL(open_history(&x, &fresh, "/fresh.gguf", 20), 0);
    CU_ASSERT_EQUAL(save(&fresh, g, 720, &e), 31);
    claim(&x, 9, 60, 10000, 256 * mib - 3 * HISTORY_BLOCK);
    CU_ASSERT_EQUAL(save(&fresh, g, 730, &e), 32);
    /* All that was older is gone, but for what was kept last. */
    CU_ASSERT_TRUE(numbers_are(&fresh, 32, 32) || numbers_are(&fresh, 31, 32));
    CU_ASSERT_TRUE(numbers_are(&x.h, 1, 0) || numbers_are(&x.h, 3, 3));
    history_close(&fresh);
    gguf_free(g);
    home_teardown(&x);
}

static void test_too_large(void)
{
    struct home x;
    struct err e = {0};
    struct history_record rec = {0};
    home_setup(&x);
    struct gguf *g = keys_of("one");
    uint64_t end = g->kv[g->n_kv - 1].end;
    g->kv[g->n_kv - 1].end += HISTORY_BYTES_MAX; /* as of a longer value, which is not looked at */
    CU_ASSERT_EQUAL(history_save(&x.h, &rec, g, &e), -EFBIG);
    CU_ASSERT_EQUAL(home_files(&x), 0);
    g->kv[g->n_kv - 1].end = end;
    gguf_free(g);
    home_teardown(&x);
}

/* Ten thousand edits without a pause, each a state of its own or joined. */
static void test_many(void)
{
    struct home x;
    struct err e = {0};
    struct recorder r = {.h = &x.h};
    home_setup(&x);
    struct gguf *g = keys_of("one");
    int64_t now = 1000;
    for (unsigned i = 0; i < 10000; i++) {
        struct recorded_edit edit = {.keys = g, .before = i, .after = i + 1, .now = now};
        CU_ASSERT_EQUAL(recorder_begin(&r, &edit, &e), 0);
        recorder_end(&r, true, now);
        CU_ASSERT_TRUE(home_files(&x) <= 20 + 4);
        now += i % 3 == 2 ? 60 : 3;
    }
    CU_ASSERT_EQUAL(recorder_settle(&r, &e), 0);
    CU_ASSERT_EQUAL(home_files(&x), 20);
    CU_ASSERT_TRUE(numbers_are(&x.h, 3334 - 19, 3334));
    gguf_free(g);
    home_teardown(&x);
}

/* ---- what is not ours ---- */

static void test_foreign_names(void)
{
    static const char *const names[] = {"readme",
                                        "0-1-1-1",
                                        "0000000000000005-1-1",
                                        "0000000000000005-1-1-1-",
                                        "+000000000000005-1-1-1",
                                        "000000000000000A-1-1-1",
                                        "0000000000000005-01-1-1",
                                        " 000000000000005-1-1-1"};
    struct history_name n;
    CU_ASSERT_TRUE(history_name_get("0000000000000005-1-1-1", &n));
    CU_ASSERT_EQUAL(n.hash, 5);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        CU_ASSERT_FALSE(history_name_get(names[i], &n));
}

/* What has a state's name and is no file of ours is not read, and does not stop the next state. */
static void test_planted(void)
{
    struct home x;
    struct err e = {0};
    struct gguf *keys = NULL;
    struct history_record rec;
    char name[HISTORY_NAME_MAX];
    home_setup(&x);
    struct gguf *g = keys_of("one");
    CU_ASSERT_EQUAL(save(&x.h, g, 100, &e), 1);
    int dir = openat(x.dir, "state/ggufs/history", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct history_name n = {x.h.hash, 2, 200, 1000};
    history_name_put(&n, name);
    CU_ASSERT_EQUAL(symlinkat("/etc/passwd", dir, name), 0);
    n.number = 3;
    history_name_put(&n, name);
    CU_ASSERT_EQUAL(mkfifoat(dir, name, 0600), 0);
    n.number = 4;
    history_name_put(&n, name);
    CU_ASSERT_EQUAL(mkdirat(dir, name, 0700), 0);
    for (uint64_t i = 2; i <= 4; i++) {
        e = (struct err){0};
        CU_ASSERT_EQUAL(history_read(&x.h, i, &rec, &keys, &e), -EPERM);
        CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "not a file that this program made"));
    }
    CU_ASSERT_EQUAL(save(&x.h, g, 300, &e), 5);
    struct recorder r = {.h = &x.h};
    struct recorded_edit edit = {.keys = g, .before = 1, .after = 2, .now = 400};
    CU_ASSERT_EQUAL(recorder_begin(&r, &edit, &e), 0);
    CU_ASSERT_EQUAL(r.rec.number, 6);
    CU_ASSERT_EQUAL(unlinkat(dir, name, AT_REMOVEDIR), 0);
    (void)close(dir);
    gguf_free(g);
    home_teardown(&x);
}

/* A state of another model that has come to this one's name, whole. */
static void test_of_another(void)
{
    struct home x;
    struct err e = {0};
    struct gguf *keys = NULL;
    struct history_record rec;
    struct history other;
    char from[HISTORY_NAME_MAX], to[HISTORY_NAME_MAX];
    home_setup(&x);
    struct gguf *g = keys_of("one");
    CU_ASSERT_EQUAL(open_history(&x, &other, "/other/m.gguf", 20), 0);
    CU_ASSERT_EQUAL(save(&other, g, 100, &e), 1);
    struct history_record head;
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    CU_ASSERT_EQUAL(history_head(&head, "/other/m.gguf", g, &b), 0);
    struct history_name n = {other.hash, 1, 100, b.len - 24 + head.image_len};
    history_name_put(&n, from);
    n.hash = x.h.hash;
    history_name_put(&n, to);
    int dir = openat(x.dir, "state/ggufs/history", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CU_ASSERT_EQUAL(renameat(dir, from, dir, to), 0);
    (void)close(dir);
    CU_ASSERT_EQUAL(history_read(&x.h, 1, &rec, &keys, &e), -ESTALE);
    history_close(&other);
    gguf_free(g);
    home_teardown(&x);
}

/* The file of a state; free() it. */
static uint8_t *file_of(const char *path, const struct gguf *g, struct history_record *rec,
                        size_t *n)
{
    struct buf b = BUF_INIT;
    const uint8_t *bytes;
    uint32_t at = 0;
    CU_ASSERT_EQUAL_FATAL(history_head(rec, path, g, &b), 0);
    while (history_run(g, &at, &bytes, n))
        buf_add(&b, bytes, *n);
    history_record_put(rec, b.data);
    *n = b.len;
    CU_ASSERT_EQUAL(*n, HISTORY_RECORD + rec->path_len + rec->image_len);
    return buf_steal(&b);
}

/* The flags of a record, as older versions read them. */
static void test_flags(void)
{
    struct gguf *g = keys_of("one");
    size_t n;
    for (unsigned closed = 0; closed < 2; closed++) {
        struct history_record rec = {.before = edit_keys_id(g), .closed = closed};
        uint8_t *file = file_of("/m", g, &rec, &n);
        CU_ASSERT_EQUAL(file[64], closed);
        free(file);
    }
    gguf_free(g);
}

/* Any byte of a state's file that is another one is noticed. */
static void test_damage(void)
{
    struct gguf *g = keys_of("one");
    struct history_record rec = {.before = edit_keys_id(g)}, got;
    struct gguf *keys = NULL;
    size_t n;
    uint8_t *file = file_of("/m", g, &rec, &n);
    CU_ASSERT_EQUAL(history_parse(file, n, "/m", &got, &keys, NULL), 0);
    CU_ASSERT_TRUE(same_keys(keys, g));
    gguf_free(keys);
    for (size_t i = 0; i < 8 * n; i++) {
        struct err e = {0};
        file[i / 8] ^= (uint8_t)(1 << i % 8);
        int r = history_parse(file, n, "/m", &got, &keys, &e);
        CU_ASSERT_EQUAL(r, -EBADMSG);
        CU_ASSERT_TRUE(e.msg[0] != '\0');
        file[i / 8] ^= (uint8_t)(1 << i % 8);
    }
    for (size_t i = 0; i < n; i++)
        CU_ASSERT_TRUE(history_parse(file, i, "/m", &got, &keys, NULL) < 0);
    /* Sums that are right do not make its keys right. */
    rec.before++;
    history_record_put(&rec, file);
    CU_ASSERT_EQUAL(history_parse(file, n, "/m", &got, &keys, NULL), -EBADMSG);
    free(file);
    gguf_free(g);
}

/* The newest state is damaged: an edit does not join it, and gets one of its own. */
static void test_newest_damaged(void)
{
    struct home x;
    struct err e = {0};
    struct recorder first = {.h = &x.h}, again = {.h = &x.h};
    char name[HISTORY_NAME_MAX];
    home_setup(&x);
    struct gguf *g = keys_of("one");
    struct recorded_edit edit = {.keys = g, .before = 1, .after = 2, .now = 100};
    CU_ASSERT_EQUAL(recorder_begin(&first, &edit, &e), 0);
    recorder_end(&first, true, 100);
    CU_ASSERT_EQUAL(recorder_settle(&first, &e), 0);
    int dir = openat(x.dir, "state/ggufs/history", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct history_name n = {x.h.hash, 1, 100,
                             HISTORY_RECORD + first.rec.path_len + first.rec.image_len};
    history_name_put(&n, name);
    int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);
    CU_ASSERT_EQUAL(pwrite(fd, "?", 1, 100), 1);
    (void)close(fd);
    (void)close(dir);
    edit = (struct recorded_edit){.keys = g, .before = 2, .after = 3, .now = 101};
    CU_ASSERT_EQUAL(recorder_begin(&again, &edit, &e), 0);
    CU_ASSERT_EQUAL(again.rec.number, 2);
    gguf_free(g);
    home_teardown(&x);
}

/* The program's own keys are left out, wherever they stand. */
static void test_own_keys(void)
{
    struct build b;
    struct gguf *g = NULL, *keys = NULL;
    struct history_record rec = {0};
    size_t n;
    build_init(&b, 3, true);
    build_num(&b, "split.no", GGUF_U16, 0);
    build_str(&b, "general.architecture", "test");
    build_num(&b, "split.count", GGUF_U16, 1);
    build_num(&b, "a.b", GGUF_U8, 7);
    build_str(&b, "ggufs.reserve", "   ");
    uint8_t *image = build_finish(&b, &n);
    struct source s = source_mem(image, n);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, 0, &g, NULL), 0);
    free(image);
    rec.before = edit_keys_id(g);
    uint8_t *file = file_of("/m", g, &rec, &n);
    CU_ASSERT_EQUAL_FATAL(history_parse(file, n, "/m", &rec, &keys, NULL), 0);
    CU_ASSERT_EQUAL(keys->n_kv, 2);
    CU_ASSERT_TRUE(same_keys(keys, g));
    gguf_free(keys);
    gguf_free(g);
    free(file);
}

static int no_lock(const struct sys *s, int fd, int how)
{
    (void)s;
    (void)fd;
    return how == LOCK_UN ? 0 : -ENOLCK;
}

/* A folder that cannot be locked: nothing is kept in it. */
static void test_no_lock(void)
{
    struct home x;
    struct err e = {0};
    home_setup(&x);
    struct gguf *g = keys_of("one");
    struct faultsys fs;
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    fs.sys.flock = no_lock;
    x.h.sys = &fs.sys;
    CU_ASSERT_EQUAL(save(&x.h, g, 1000, &e), -ENOLCK);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "cannot lock it: "));
    CU_ASSERT_EQUAL(home_files(&x), 0);
    gguf_free(g);
    home_teardown(&x);
}

/* ---- where it is ---- */

/* A home that is missing is made as far as it can be; one that is no folder is refused. */
static void test_no_home(void)
{
    struct home x;
    struct err e = {0};
    char path[128];
    home_setup(&x);
    struct gguf *g = keys_of("one");
    struct history h;
    (void)snprintf(path, sizeof(path), "%s/deep/er//still/", x.path);
    CU_ASSERT_EQUAL(history_open(&h, x.h.sys, path, "/m", 20, &e), 0);
    CU_ASSERT_EQUAL(save(&h, g, 1, &e), 1);
    CU_ASSERT_EQUAL(faccessat(x.dir, "deep/er/still/ggufs/history", X_OK, 0), 0);
    history_close(&h);
    (void)close(openat(x.dir, "file", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    (void)snprintf(path, sizeof(path), "%s/file/state", x.path);
    CU_ASSERT_EQUAL(history_open(&h, x.h.sys, path, "/m", 20, &e), -ENOTDIR);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "file/state/ggufs/history"));
    history_close(&h);
    gguf_free(g);
    home_teardown(&x);
}

static CU_TestInfo tests[] = {
    {"states are kept and read", test_keep},
    {"the folder is the user's alone", test_folder},
    {"links in the place of our folders are not followed", test_links},
    {"the last N states of a model are kept", test_keep_n},
    {"the flags of a record", test_flags},
    {"cleared, and numbers go on", test_clear},
    {"all models together stay within the bound", test_all_models},
    {"keys over the bound are refused", test_too_large},
    {"ten thousand edits keep to the bounds", test_many},
    {"names of others are not ours", test_foreign_names},
    {"planted objects are not read", test_planted},
    {"a state of another model is refused", test_of_another},
    {"every damaged bit is noticed", test_damage},
    {"a damaged newest state is not joined", test_newest_damaged},
    {"the program's own keys are left out", test_own_keys},
    {"a folder that cannot be locked", test_no_lock},
    {"a home that is missing", test_no_home},
    CU_TEST_INFO_NULL,
};

CU_MAIN("history", tests)

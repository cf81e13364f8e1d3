/* SPDX-License-Identifier: MIT */
/* In a process without standard input, edits and histories use descriptor 0 like any other. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "edit/journal.h"
#include "faultsys.h"
#include "history_dir.h"
#include "model_dir.h"
#include "put_journal.h"

static struct faultsys fs;
static int (*open_any)(const struct sys *s, int dir, const char *name, int flags, mode_t mode);
static unsigned left; /* number of opens left until one returns 0 */

static int open_zero(const struct sys *s, int dir, const char *name, int flags, mode_t mode)
{
    int fd = open_any(s, dir, name, flags, mode);
    if (fd <= 0 || left == 0 || --left > 0)
        return fd;
    CU_ASSERT_EQUAL(dup2(fd, 0), 0);
    (void)close(fd);
    return 0;
}

/* From now on, make the n-th open return descriptor 0. */
static const struct sys *zero_at(unsigned n)
{
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    fs.clone = true;
    open_any = fs.sys.openat;
    fs.sys.openat = open_zero;
    left = n;
    return &fs.sys;
}

static bool is_open(void)
{
    return fcntl(0, F_GETFD) >= 0;
}

static int kept;

/* Descriptor 0 is standard input until an open returns it. */
static void lend_input(void)
{
    kept = fcntl(0, F_DUPFD_CLOEXEC, 3);
    CU_ASSERT_TRUE_FATAL(kept > 0);
}

static void take_input(void)
{
    (void)dup2(kept, 0);
    (void)close(kept);
}

/* Commit an edit; the n-th open returns 0. Returns false if there are fewer than n opens. */
static bool commits(enum edit_strategy s, unsigned tensors, unsigned n)
{
    struct fixture x;
    struct edit d;
    struct edit_result res;
    struct err e = {0};
    setup_with(&x, 0);
    if (tensors)
        make_tensor_edit(&d, x.g, x.old, x.old_n, s, tensors);
    else
        make_edit(&d, x.g, x.old, x.old_n, s, 'n', 10);
    struct edit_file f = open_model(&x, calm());
    lend_input();
    f.sys = zero_at(n);
    CU_ASSERT_EQUAL(commit(&f, &d, &res, &e), 0);
    bool reached = left == 0;
    CU_ASSERT_EQUAL(res.strategy, s);
    CU_ASSERT_TRUE(is_new(&x, &d));
    CU_ASSERT_EQUAL(files(&x), 1);
    CU_ASSERT_EQUAL(is_open(), !reached || f.fd == 0);
    check_next(&x, &f);
    edit_file_close(&f);
    CU_ASSERT_EQUAL(is_open(), !reached);
    take_input();
    edit_done(&d);
    teardown(&x);
    return reached;
}

static void test_commits(void)
{
    static const struct {
        enum edit_strategy s;
        unsigned tensors;
    } rows[] = {{EDIT_COPY, 0},
                {EDIT_INPLACE, 0},
                {EDIT_INPLACE, EDIT_BYTES},
                {EDIT_COPY, EDIT_BYTES | EDIT_ADDED}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        unsigned n = 1;
        while (commits(rows[i].s, rows[i].tensors, n))
            n++;
        CU_ASSERT_TRUE(n > 1);
    }
}

/* Complete a journal and remove a leftover file; the n-th open returns 0. Returns false if there
 * are fewer than n opens. */
static bool recovers(unsigned n)
{
    struct fixture x;
    struct edit_recovered found;
    struct err e = {0};
    uint8_t new[512];
    setup_with(&x, 0);
    memset(new, 'n', sizeof(new));
    struct edit_file f = open_model(&x, calm());
    lend_input();
    f.sys = zero_at(n);
    CU_ASSERT_EQUAL(put_journal(&f, new, sizeof(new)), 0);
    put_file(x.dir, "." NAME ".ggufs-abcdef", "x", 1);
    CU_ASSERT_EQUAL(edit_recover(&f, &found, &e), 0);
    CU_ASSERT_TRUE(found.finished && found.removed == 1);
    CU_ASSERT_EQUAL(files(&x), 1);
    memcpy(x.old, new, sizeof(new));
    CU_ASSERT_TRUE(is_old(&x));
    CU_ASSERT_EQUAL(edit_try_new(&f, &e), 0);
    CU_ASSERT_EQUAL(files(&x), 1);
    bool reached = left == 0;
    CU_ASSERT_EQUAL(is_open(), !reached);
    edit_file_close(&f);
    take_input();
    teardown(&x);
    return reached;
}

/* Files that cannot be created without a name get one. */
static void test_unnamed(void)
{
    for (unsigned n = 0; n <= 2; n++) { /* 0: files can be created without a name */
        struct fixture x;
        struct err e = {0};
        setup_with(&x, 0);
        struct edit_file f = open_model(&x, calm());
        lend_input();
        f.sys = zero_at(n ? n : 1);
        fs.no_tmpfile = n ? -EOPNOTSUPP : 0;
        CU_ASSERT_EQUAL(edit_try_new(&f, &e), 0);
        CU_ASSERT_EQUAL(left, 0);
        CU_ASSERT_EQUAL(files(&x), 1);
        CU_ASSERT_FALSE(is_open());
        edit_file_close(&f);
        take_input();
        teardown(&x);
    }
}

static void test_recovers(void)
{
    unsigned n = 1;
    while (recovers(n))
        n++;
    CU_ASSERT_EQUAL(n, 5); /* write and read the journal; leftovers; a probe */
}

/* Record edits, read, drop and forget states; the n-th open returns 0. */
static bool keeps(unsigned n)
{
    struct home x;
    struct history h;
    struct history_pick p;
    struct gguf *g = keys_of("one"), *other = keys_of("two");
    struct err e = {0};
    char state[80];
    char states[40];
    home_setup(&x);
    (void)snprintf(state, sizeof(state), "%s/state", x.path);
    lend_input();
    CU_ASSERT_EQUAL(history_open(&h, zero_at(n), state, "/models/m.gguf", 2, &e), 0);
    CU_ASSERT_EQUAL(save(&h, g, other, 1000, 0, &e), 0);
    CU_ASSERT_EQUAL(save(&h, other, g, 2000, 0, &e), 0);
    CU_ASSERT_EQUAL(save(&h, g, other, 3000, 0, &e), 0);
    states_of(&h, other, states, sizeof(states));
    CU_ASSERT_STRING_EQUAL(states, "2 3");
    CU_ASSERT_EQUAL(history_pick(&h, 2, other, &p, &e), 0);
    CU_ASSERT_TRUE(same_keys(p.keys, other));
    history_pick_free(&p);
    CU_ASSERT_EQUAL(history_clear(&h, &e), 0);
    bool reached = left == 0;
    CU_ASSERT_EQUAL(home_files(&x), 1); /* the record of used numbers */
    history_close(&h);
    CU_ASSERT_EQUAL(is_open(), !reached);
    take_input();
    gguf_free(g);
    gguf_free(other);
    home_teardown(&x);
    return reached;
}

static void test_keeps(void)
{
    unsigned n = 1;
    while (keeps(n))
        n++;
    CU_ASSERT_TRUE(n > 9);
}

static CU_TestInfo tests[] = {
    {"an edit may get descriptor 0", test_commits},
    {"a recovery may get descriptor 0", test_recovers},
    {"a file with a name may get descriptor 0", test_unnamed},
    {"a history may get descriptor 0", test_keeps},
    CU_TEST_INFO_NULL,
};

CU_MAIN("descriptor 0", tests)

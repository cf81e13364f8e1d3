/* SPDX-License-Identifier: MIT */
/* Makes a directory with a model: see model_dir.h. */
#include "model_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "changes.h"
#include "edit/change.h"
#include "gguf/value.h"

void put_file(int dir, const char *name, const void *bytes, size_t n)
{
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    CU_ASSERT_TRUE_FATAL(fd >= 0);
    CU_ASSERT_EQUAL_FATAL(sys_write_all(&sys_libc, fd, bytes, n, 0), 0);
    (void)close(fd);
}

uint8_t *get_file(int dir, const char *name, size_t *n)
{
    struct stat st;
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    CU_ASSERT_TRUE_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(fstat(fd, &st), 0);
    *n = (size_t)st.st_size;
    uint8_t *bytes = malloc(*n + 1);
    CU_ASSERT_EQUAL(sys_read_all(&sys_libc, fd, bytes, *n, 0), 0);
    (void)close(fd);
    return bytes;
}

/* ---- a model file in its own directory ---- */

const char *in_memory(void)
{
    return access("/dev/shm", R_OK | W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
}

void make_folder(char path[64], int *dir, const char *root)
{
    (void)snprintf(path, 64, "%s/ggufs-test-XXXXXX", root);
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(path));
    *dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

void make_place(struct place *p, const struct content *i)
{
    make_folder(p->folder, &p->dir, in_memory());
    (void)snprintf(p->model, sizeof(p->model), "%s/" NAME, p->folder);
    put_file(p->dir, NAME, i->bytes, i->n);
}

struct place place_of(struct build *b)
{
    struct place p;
    struct content c;
    c.bytes = build_finish(b, &c.n);
    make_place(&p, &c);
    free(c.bytes);
    return p;
}

static int count_one(void *arg, const char *name)
{
    (void)name;
    ++*(unsigned *)arg;
    return 0;
}

unsigned files_in(int dir)
{
    unsigned seen = 0;
    (void)sys_libc.list(&sys_libc, dir, count_one, &seen);
    return seen;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

void remove_tree(const char *path)
{
    CU_ASSERT_EQUAL(nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

void drop_place(struct place *p)
{
    remove_tree(p->folder);
    (void)close(p->dir);
}

bool file_has(int dir, const char *name, const void *bytes, size_t n)
{
    size_t got_n;
    uint8_t *got = get_file(dir, name, &got_n);
    bool same = got_n == n && memcmp(got, bytes, n) == 0;
    free(got);
    return same;
}

/* ---- a given model, and edits of it ---- */

enum { SMALL = 20001 };    /* bytes of tensor b */
enum { WIDE = 128 << 10 }; /* the alignment for EDIT_APART */

/* Make a model with room in its header. The tensors are large enough to contain whole blocks, but
 * are not aligned to blocks. */
static uint8_t *make_model(uint8_t pad_byte, unsigned what, size_t *n)
{
    struct build b = build_of(3, false);
    b.pad_byte = pad_byte;
    build_text(&b, "general.architecture=test|text=old|filler:u32=7");
    if (what & EDIT_APART) {
        b.alignment = WIDE;
        build_u32(&b, "general.alignment", WIDE);
    }
    char spaces[3001];
    memset(spaces, ' ', sizeof(spaces));
    build_str_n(&b, KEY_RESERVE, spaces, 3000);
    build_tensor(&b, "a", F32, SHAPE(5), NULL, 20);
    build_tensor(&b, "b", I8, SHAPE(SMALL), NULL, SMALL);
    build_tensor(&b, "c", I8, SHAPE(7003), NULL, 7003);
    return build_finish(&b, n);
}

static struct fixture setup_model(const char *root, uint8_t pad_byte, unsigned what)
{
    struct fixture x = {.old = NULL};
    x.old = make_model(pad_byte, what, &x.old_n);
    make_folder(x.path, &x.dir, root);
    put_file(x.dir, NAME, x.old, x.old_n);
    x.g = gguf_in(x.old, x.old_n);
    return x;
}

struct fixture setup_tensors(unsigned what, uint8_t pad_byte)
{
    return setup_model(in_memory(), pad_byte, what);
}

struct fixture setup(void)
{
    return setup_model("/tmp", 0, 0);
}

void teardown(struct fixture *x)
{
    remove_tree(x->path);
    (void)close(x->dir);
    gguf_free(x->g);
    free(x->old);
}

/* Complete the plan, and build the file that it must produce. */
static void finish(struct edit *d, const struct edit_change *c, const uint8_t *old, size_t old_n,
                   enum edit_strategy s)
{
    struct err e = {0};
    d->o = (struct edit_options){.strategy = s, .reserve = EDIT_RESERVE_AUTO};
    d->p = EDIT_PLAN_INIT;
    CU_ASSERT_EQUAL_FATAL(edit_plan_make(c, &d->o, &d->p, &e), 0);
    d->p.image->file[EDIT_OLD_FILE] = source_mem(old, old_n);
    struct source src = image_source(d->p.image);
    d->image = malloc((size_t)src.size + 1);
    CU_ASSERT_EQUAL_FATAL(src.read(&src, 0, d->image, (size_t)src.size), 0);
}

void make_edit(struct edit *d, const struct gguf *g, const uint8_t *old, size_t old_n,
               enum edit_strategy s, char letter, size_t n)
{
    CLEANUP(edit_change_free) struct edit_change c;
    CLEANUP(buf_free) struct buf v = BUF_INIT;
    struct err e = {0};
    buf_uint(&v, n, 8, false);
    for (size_t i = 0; i < n; i++)
        buf_char(&v, letter);
    edit_change_init(&c, &(struct edit_base){.g = g});
    CU_ASSERT_EQUAL_FATAL(set_bytes(&c, "text", 4, GGUF_STRING, v.data, v.len, &e), 0);
    finish(d, &c, old, old_n, s);
}

/* Make a draft with bytes that differ from the model's. */
static struct log *make_draft(size_t n)
{
    struct buf b = BUF_INIT;
    for (size_t i = 0; i < n; i++)
        buf_char(&b, (char)(i * 7 + i / 256 + 1));
    struct log *d = memory_draft(b.data, b.len);
    CU_ASSERT_PTR_NOT_NULL_FATAL(d);
    buf_free(&b);
    return d;
}

void make_tensor_edit(struct edit *d, const struct gguf *g, const uint8_t *old, size_t old_n,
                      enum edit_strategy s, unsigned what)
{
    CLEANUP(edit_change_free) struct edit_change c;
    struct log *file = make_draft(70001), *memory = make_draft(3000);
    struct tensor_piece bytes[] = {
        {5, 3000, 0, memory}, {5000, 9001, 77, file}, {20000, 1, 3, file}};
    struct tensor_piece more = {0, 70001, 0, file}, made = {0, 15, 60, memory};
    struct tensor_piece five = {0, 5, 9, memory};
    const struct tensor_shape long_one = {I8, 1, {70001}}, short_one = {I8, 2, {5, 3}},
                              small_one = {I8, 1, {5}};
    edit_change_init(&c, &(struct edit_base){.g = g});
    if (what & EDIT_BYTES)
        CU_ASSERT_EQUAL(edit_tensor_set(&c, "b", 1, NULL, bytes, 3, NULL), 0);
    if (what & EDIT_MADE)
        CU_ASSERT_EQUAL(edit_tensor_set(&c, "a", 1, &short_one, &made, 1, NULL), 0);
    if (what & EDIT_RENAMED)
        CU_ASSERT_EQUAL(edit_tensor_rename(&c, "a", 1, "first", 5, NULL), 0);
    if (what & EDIT_REMOVED)
        CU_ASSERT_EQUAL(edit_tensor_remove(&c, "b", 1, NULL), 0);
    if (what & EDIT_ADDED)
        CU_ASSERT_EQUAL(edit_tensor_add(&c, "more", 4, &long_one, &more, 1, 0, NULL), 0);
    for (int i = 0; i < 2 && what & EDIT_APART; i++)
        CU_ASSERT_EQUAL(edit_tensor_add(&c, i ? "y" : "x", 1, &small_one, &five, 1, 0, NULL), 0);
    log_unref(file);
    log_unref(memory);
    finish(d, &c, old, old_n, s);
}

void edit_done(struct edit *d)
{
    edit_plan_free(&d->p);
    free(d->image);
}

struct edit_file open_model(const struct fixture *x, const struct sys *sys)
{
    struct edit_file f;
    struct err e = {0};
    CU_ASSERT_EQUAL_FATAL(edit_file_open(&f, &sys_libc, x->dir, NAME, true, &e), 0);
    f.sys = sys;
    return f;
}

bool is_old(const struct fixture *x)
{
    return file_has(x->dir, NAME, x->old, x->old_n);
}

bool is_new(const struct fixture *x, const struct edit *d)
{
    return file_has(x->dir, NAME, d->image, (size_t)d->p.image->size);
}

int commit(struct edit_file *f, const struct edit *d, struct edit_result *ret, struct err *e)
{
    int r = edit_commit(f, &d->p, &d->o, NULL, ret, e);
    if (ret->old_fd >= 0)
        (void)close(ret->old_fd);
    return r;
}

void check_readers(const struct fixture *x, const struct edit *d)
{
    const struct timespec until = {0};
    CLEANUP(edit_file_close) struct edit_file f;
    struct edit_id id;
    struct err planted, e = {0};
    struct stat st;
    CU_ASSERT_EQUAL_FATAL(edit_file_open(&f, &sys_libc, x->dir, NAME, false, NULL), 0);
    int r = edit_at_rest(&f, &until, &id, &planted, &e);
    if (r == 0) {
        CU_ASSERT_TRUE(is_old(x) || is_new(x, d));
    } else {
        CU_ASSERT_EQUAL(r, -EUCLEAN);
        CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "--recover"));
        CU_ASSERT_EQUAL(fstatat(x->dir, JOURNAL, &st, 0), 0);
    }
}

/* True if any process holds the model's lock. */
bool is_locked(const struct fixture *x)
{
    struct edit_file f;
    int r = edit_file_open(&f, &sys_libc, x->dir, NAME, true, NULL);
    if (r == 0)
        edit_file_close(&f);
    return r == -EWOULDBLOCK;
}

/* Return system calls without faults. */
const struct sys *calm(void)
{
    static struct faultsys fs;
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    return &fs.sys;
}

/* Check that another edit to the current file succeeds if there are no faults. */
void check_next(struct fixture *x, struct edit_file *f)
{
    size_t n;
    CLEANUP(edit_done) struct edit d;
    struct edit_result res;
    struct err e = {0};
    CLEANUP(free_it) uint8_t *now = get_file(x->dir, NAME, &n);
    CLEANUP(gguf_drop) struct gguf *g = gguf_in(now, n);
    make_edit(&d, g, now, n, EDIT_COPY, 'z', 55);
    f->sys = calm();
    int r = commit(f, &d, &res, &e);
    CU_SAYS(r == 0, "next edit: %s\n", e.msg);
    CU_ASSERT_TRUE(is_new(x, &d));
    CU_ASSERT_TRUE(is_locked(x));
    CU_ASSERT_EQUAL(files_in(x->dir), 1);
}

void scene_begin(struct scene *s, enum edit_strategy how, size_t n)
{
    scene_begin_at(s, in_memory(), how, n);
}

void scene_begin_at(struct scene *s, const char *root, enum edit_strategy how, size_t n)
{
    *s = (struct scene){0};
    s->x = setup_model(root, 0, 0);
    faultsys_init(&s->fs, FAULT_NONE, 0, 0);
    make_edit(&s->d, s->x.g, s->x.old, s->x.old_n, how, 'n', n);
    s->f = open_model(&s->x, &s->fs.sys);
}

int scene_commit(struct scene *s)
{
    s->e = (struct err){0};
    int r = commit(&s->f, &s->d, &s->res, &s->e);
    CU_ASSERT_EQUAL(s->e.code, r);
    CU_ASSERT_EQUAL(s->e.msg[0] != '\0', r < 0);
    return r;
}

int scene_recover(struct scene *s, struct edit_recovered *found)
{
    edit_file_close(&s->f);
    s->f = open_model(&s->x, calm());
    return edit_recover(&s->f, found, &s->e);
}

void scene_end(struct scene *s)
{
    edit_file_close(&s->f);
    edit_done(&s->d);
    teardown(&s->x);
}

/* ---- journals ---- */

int put_journal_of(struct edit_file *f, const struct edit_plan *p)
{
    CLEANUP(journal_free) struct journal j = JOURNAL_INIT;
    return journal_write(f, p, NULL, &j, NULL);
}

int put_journal(struct edit_file *f, const uint8_t *new, size_t n)
{
    struct image *im = image_new(NULL);
    struct edit_plan p = {.old_size = f->id.size, .image = im};
    p.head = (struct buf){.data = (uint8_t *)(uintptr_t) new, .len = n};
    const uint32_t no = image_file(im, (struct source){.size = f->id.size, .fd = -1});
    image_add_memory(im, new, n);
    image_add_file(im, no, n, f->id.size - n);
    int r = image_end(im);
    if (r == 0)
        r = put_journal_of(f, &p);
    image_unref(im);
    return r;
}

/* ---- a directory with a history ---- */

void home_setup(struct home *x)
{
    make_folder(x->path, &x->dir, in_memory());
    CU_ASSERT_EQUAL_FATAL(open_history(x, &x->h, "/models/m.gguf", HISTORY_KEEP), 0);
}

void home_teardown(struct home *x)
{
    history_close(&x->h);
    (void)close(x->dir);
    remove_tree(x->path);
}

int open_history(const struct home *x, struct history *h, const char *model, size_t keep)
{
    char state[80];
    (void)snprintf(state, sizeof(state), "%s/state", x->path);
    return history_open(h, calm(), state, model, keep, NULL);
}

unsigned home_files(const struct home *x)
{
    int dir = openat(x->dir, "state/ggufs/history", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    unsigned n = dir < 0 ? 0 : files_in(dir);
    (void)close(dir);
    return n;
}

struct gguf *keys_of(const char *text)
{
    struct build b = build_of(3, false);
    build_str(&b, "general.architecture", "test");
    build_str(&b, "text", text);
    build_text(&b, "list:array=i32[1,2]");
    return gguf_of(&b);
}

/* Return the first user key at or after i. */
static uint32_t next_key(const struct gguf *g, uint32_t i)
{
    while (i < g->n_kv && edit_key_is_own(g, i))
        i++;
    return i;
}

bool same_keys(const struct gguf *a, const struct gguf *b)
{
    uint32_t i = next_key(a, 0), k = next_key(b, 0);
    while (i < a->n_kv && k < b->n_kv) {
        const struct gguf_kv *x = &a->kv[i], *y = &b->kv[k];
        uint64_t n = x->end - x->off;
        if (n != y->end - y->off || memcmp(a->head + x->off, b->head + y->off, (size_t)n) != 0)
            return false;
        i = next_key(a, i + 1);
        k = next_key(b, k + 1);
    }
    return i == a->n_kv && k == b->n_kv;
}

int save(struct history *h, const struct gguf *before, const struct gguf *after, int64_t now,
         uint64_t restored, struct err *e)
{
    int r = begin_save(h, before, after, now, restored, e);
    h->ended = now;
    return r;
}

int begin_save(struct history *h, const struct gguf *before, const struct gguf *after, int64_t now,
               uint64_t restored, struct err *e)
{
    CLEANUP(edit_change_free) struct edit_change c;
    edit_change_init(&c, &(struct edit_base){.g = before});
    CU_ASSERT_EQUAL_FATAL(edit_restore(&c, after, NULL), 0);
    const struct history_edit edit = {&c, after, restored, now, false};
    return history_append(h, &edit, e);
}

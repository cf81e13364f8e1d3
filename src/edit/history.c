/* SPDX-License-Identifier: MIT */
/* Records what edits changed in a model's keys: see history.h, whose invariants are cited here. */
#include "edit/history.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/pool.h"
#include "base/lock.h"
#include "edit/change.h"

#define TICK_MS 10      /* pause between attempts to lock the directory */
#define NEW_NAME ".new" /* name of a file being written; under the lock, one name suffices */
#define FOLDER_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define NAMES_SHOWN 5 /* names listed per kind of change; the others are only counted */

#define MAGIC "GGUFSHS5"
/* Number of u64 fields in a record. */
enum { NUMBERS = sizeof(struct history_record) / 8 };
enum { SUM_AT = 8, RECORD_AT = 16, HEAD = RECORD_AT + 8 * NUMBERS, FACT_HEAD = 24, NAME_ROOM = 40 };

static int no_memory(struct err *e)
{
    return err_set(e, -ENOMEM, "no memory");
}

/* ---- the directory ---- */

static int find_home(struct buf *b, struct err *e)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (state && state[0] == '/')
        buf_str(b, state);
    else if (home && home[0] == '/')
        buf_printf(b, "%s/.local/state", home);
    else if (geteuid() == 0)
        buf_str(b, "/var/lib");
    else
        return err_set(e, -ENOENT, "neither XDG_STATE_HOME nor HOME is set");
    return 0;
}

int history_open(struct history *h, const struct sys *sys, const char *home, const char *model,
                 unsigned keep, struct err *e)
{
    struct buf path = BUF_INIT;
    *h = (struct history){.sys = sys, .keep = keep, .dir = -1};
    h->hash = xxh64(0, model, strlen(model));
    h->model = strdup(model);
    int r = home ? 0 : find_home(&path, e);
    if (home)
        buf_str(&path, home);
    while (path.len > 0 && path.data[path.len - 1] == '/')
        path.len--;
    buf_char(&path, '\0');
    h->home = (char *)buf_steal(&path);
    return h->home && h->model ? r : no_memory(e);
}

void history_close(struct history *h)
{
    free(h->home);
    free(h->model);
    if (h->dir >= 0)
        (void)close(h->dir);
    *h = HISTORY_INIT;
}

static int refuse(const struct history *h, int r, const char *why, struct err *e)
{
    char shown[SHOW_MAX];
    return err_set(e, r, "%s/ggufs/history: %s", show(shown, h->home, strlen(h->home)), why);
}

static int failed(const struct history *h, int r, const char *what, struct err *e)
{
    char shown[SHOW_MAX];
    return err_sys(e, r, "%s/ggufs/history: cannot %s", show(shown, h->home, strlen(h->home)),
                   what);
}

/*
 * Checks that one of our directories belongs to this user and grants other users none of the
 * permissions in `others`.
 */
static int check_ours(const struct history *h, int dir, mode_t others, struct err *e)
{
    struct stat st;
    int r = h->sys->fstat(h->sys, dir, &st);
    if (r < 0)
        return r;
    if (st.st_uid != geteuid())
        return refuse(h, -EPERM, "it, or the directory above it, belongs to another user", e);
    if (st.st_mode & others)
        return refuse(h, -EPERM,
                      "other users can enter it or write to it (chmod 700 makes it usable)", e);
    return 0;
}

/*
 * Opens the directory `name` in `dir`, and closes `dir`. With `make`, creates it if it is missing
 * and this user or root owns `dir`. others: for one of our directories, the permissions that other
 * users must not have; otherwise 0. Returns the descriptor or -errno.
 */
static int step(const struct history *h, int dir, const char *name, bool make, mode_t others,
                struct err *e)
{
    const struct sys *sys = h->sys;
    struct stat st;
    int fd = sys->openat(sys, dir, name, FOLDER_FLAGS, 0), r;
    if (fd == -ENOENT && make) {
        r = sys->fstat(sys, dir, &st);
        if (r == 0 && st.st_uid != geteuid() && st.st_uid != 0)
            r = refuse(h, -EPERM, "the directory above it belongs to another user", e);
        else if (r == 0)
            r = sys->mkdirat(sys, dir, name, 0700);
        if (r == 0)
            r = sys_sync_dir(sys, dir);
        fd = r < 0 && r != -EEXIST ? r : sys->openat(sys, dir, name, FOLDER_FLAGS, 0);
    }
    sys_close(sys, &dir);
    if (fd >= 0 && others && (r = check_ours(h, fd, others, e)) < 0) {
        sys_close(sys, &fd);
        fd = r;
    }
    return fd;
}

/*
 * Opens the directory whose path is the first n bytes of the state directory's path. Returns the
 * descriptor or -errno.
 */
static int open_home(const struct history *h, size_t n, bool make, struct err *e)
{
    char *path = strndup(n ? h->home : "/", n ? n : 1);
    if (!path)
        return -ENOMEM;
    int dir = open(path, FOLDER_FLAGS & ~O_NOFOLLOW);
    dir = dir < 0 ? -errno : dir;
    if (dir == -ENOENT && make) {
        size_t name = n, above;
        while (path[name - 1] != '/')
            name--;
        for (above = name; above > 0 && path[above - 1] == '/';)
            above--;
        dir = open_home(h, above, true, e);
        dir = dir < 0 ? dir : step(h, dir, path + name, true, 0, e);
    }
    free(path);
    return dir;
}

/*
 * H4. Opens h->dir. Returns 0, -ENOENT (it does not exist and must not be created), -EPERM,
 * -ENOTDIR or another -errno.
 */
static int open_folder(struct history *h, bool make, struct err *e)
{
    struct err why = {0};
    if (h->dir >= 0)
        return 0;
    int dir = open_home(h, strlen(h->home), make, &why);
    dir = dir < 0 ? dir : step(h, dir, "ggufs", make, 022, &why);
    dir = dir < 0 ? dir : step(h, dir, "history", make, 077, &why);
    if (dir == -ELOOP || dir == -ENOTDIR)
        return refuse(h, dir, "it, or a directory above it, is not a directory: Not a directory",
                      e);
    if (dir < 0)
        return why.code ? err_set(e, dir, "%s", why.msg) : refuse(h, dir, strerror(-dir), e);
    h->dir = dir;
    return 0;
}

/*
 * Opens and locks the directory. Waits up to `patience` ms for another process to unlock it, then
 * returns -EAGAIN.
 */
static int lock(struct history *h, bool make, unsigned patience, struct err *e)
{
    int r = open_folder(h, make, e);
    if (r < 0)
        return r;
    for (unsigned ms = 0;; ms += TICK_MS) {
        r = h->sys->flock(h->sys, h->dir, LOCK_EX | LOCK_NB);
        if (r != -EWOULDBLOCK && r != -EINTR)
            return r < 0 ? failed(h, r, "lock its directory", e) : 0;
        if (ms >= patience)
            return refuse(h, -EAGAIN, "another process has locked it", e);
        when_sleep(TICK_MS);
    }
}

static void unlock(struct history *h)
{
    (void)h->sys->flock(h->sys, h->dir, LOCK_UN);
}

/* ---- the files of states ---- */

static void put_name(char dst[NAME_ROOM], uint64_t hash, uint64_t number)
{
    (void)snprintf(dst, NAME_ROOM, "%016" PRIx64 "-%" PRIu64, hash, number);
}

struct listed {
    uint64_t hash, number, bytes;
    struct timespec mtime;
};

/* The files of all models, ordered by model and number. */
struct listing {
    struct history *h;
    struct listed *of; /* owned */
    size_t n, cap;
};

static void listing_free(struct listing *l)
{
    free(l->of);
}

static int list_one(void *arg, const char *name)
{
    struct listing *l = arg;
    struct listed x;
    struct stat st;
    char again[NAME_ROOM];
    if (sscanf(name, "%16" SCNx64 "-%20" SCNu64, &x.hash, &x.number) != 2)
        return 0;
    put_name(again, x.hash, x.number);
    int r =
        strcmp(again, name) == 0 ? l->h->sys->fstatat(l->h->sys, l->h->dir, name, &st) : -ENOENT;
    if (r == 0)
        r = array_grow(&l->of, &l->cap, l->n, sizeof(x));
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    x.bytes = (uint64_t)st.st_size;
    x.mtime = st.st_mtim;
    l->of[l->n++] = x;
    return 0;
}

static int by_model(const void *a, const void *b)
{
    const struct listed *x = a, *y = b;
    return x->hash != y->hash ? (x->hash < y->hash ? -1 : 1)
                              : (x->number < y->number ? -1 : x->number > y->number);
}

static int list_files(struct listing *l, struct err *e)
{
    int r = l->h->sys->list(l->h->sys, l->h->dir, list_one, l);
    if (r < 0)
        return r == -ENOMEM ? no_memory(e) : failed(l->h, r, "list its directory", e);
    if (l->n)
        qsort(l->of, l->n, sizeof(*l->of), by_model);
    return 0;
}

/* Parses facts. Returns 0, -EBADMSG if the bytes are not facts, or -ENOMEM. */
static int add_facts(struct history_state *s, const uint8_t *p, size_t left)
{
    while (left) {
        if (left < FACT_HEAD)
            return -EBADMSG;
        struct history_fact x = {get_u64(p, false), p + FACT_HEAD, 0, get_u32(p + 16, false),
                                 get_u32(p + 20, false)};
        uint64_t n = get_u64(p + 8, false);
        if (n > left - FACT_HEAD || x.key_off > n || x.key_len > n - x.key_off)
            return -EBADMSG;
        x.n = (size_t)n;
        if (array_grow(&s->fact, &s->cap, s->n, sizeof(x)) < 0)
            return -ENOMEM;
        s->fact[s->n++] = x;
        p += FACT_HEAD + x.n;
        left -= FACT_HEAD + x.n;
    }
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const struct history_fact *x = a, *y = b;
    return x->place < y->place ? -1 : x->place > y->place;
}

int history_parse(struct history_state *s, const char *model, struct err *e)
{
    const uint8_t *p = s->bytes.data;
    const size_t n = s->bytes.len;
    uint64_t v[NUMBERS];
    if (n < HEAD || memcmp(p, MAGIC, SUM_AT) != 0 ||
        get_u64(p + SUM_AT, false) != xxh64(0, p + RECORD_AT, n - RECORD_AT))
        return err_set(e, -EBADMSG, "it is damaged");
    for (size_t i = 0; i < NUMBERS; i++)
        v[i] = get_u64(p + RECORD_AT + 8 * i, false);
    memcpy(&s->rec, v, sizeof(v));
    if (s->rec.path_len > n - HEAD)
        return err_set(e, -EBADMSG, "it is damaged");
    const size_t path = (size_t)s->rec.path_len;
    if (path != strlen(model) || memcmp(p + HEAD, model, path) != 0)
        return err_set(e, -ESTALE, "it is the history of another model");
    int r = add_facts(s, p + HEAD + path, n - HEAD - path);
    if (s->n)
        qsort(s->fact, s->n, sizeof(*s->fact), by_place);
    return r < 0 ? err_set(e, r, r == -ENOMEM ? "no memory" : "it is damaged") : 0;
}

void history_state_free(struct history_state *s)
{
    buf_free(&s->bytes);
    free(s->fact);
    *s = (struct history_state){0};
}

/* H4. A file that was removed or replaced after it was opened has no name. */
static int check_state(const struct history *h, const struct stat *st, struct err *e)
{
    if (!S_ISREG(st->st_mode) || st->st_uid != geteuid() || st->st_nlink > 1)
        return refuse(h, -EPERM, "a file in it was not made by ggufs", e);
    if ((uint64_t)st->st_size > HISTORY_BYTES_MAX)
        return refuse(h, -EFBIG, "a file in it is too large", e);
    return 0;
}

/*
 * Opens and stats a state's file. Checks the file first, because opening a device may have side
 * effects, and again when it is open, because another file may have been given its name. Returns
 * the descriptor or -errno.
 */
static int open_state(const struct history *h, const char *name, struct stat *ret, struct err *e)
{
    const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
    const struct sys *sys = h->sys;
    int r = sys->fstatat(sys, h->dir, name, ret);
    if (r == 0 && (r = check_state(h, ret, e)) < 0)
        return r;
    int fd = r < 0 ? r : sys->openat(sys, h->dir, name, flags, 0);
    if (fd < 0)
        return failed(h, fd, "open a file in it", e);
    r = sys->fstat(sys, fd, ret);
    r = r < 0 ? failed(h, r, "stat a file in it", e) : check_state(h, ret, e);
    if (r < 0)
        sys_close(sys, &fd);
    return r < 0 ? r : fd;
}

/*
 * Loads the state with this number. Returns -ENOENT if it does not exist, otherwise what
 * history_load() and history_parse() return.
 */
static int load_state(struct history *h, uint64_t number, struct history_state *s, struct err *e)
{
    char name[NAME_ROOM];
    struct stat st;
    int r = 0;
    put_name(name, h->hash, number);
    int fd = open_state(h, name, &st, e);
    if (fd < 0)
        return fd;
    const size_t n = (size_t)st.st_size;
    uint8_t *bytes = buf_extend(&s->bytes, n);
    if (n && !bytes)
        r = no_memory(e);
    else if ((r = sys_read_all(h->sys, fd, bytes, n, 0)) < 0)
        (void)failed(h, r, "read a file in it", e);
    else if ((r = history_parse(s, h->model, e)) < 0)
        (void)err_prefix(e, r, "%s/ggufs/history/%s", h->home, name);
    else if (s->rec.number != number)
        r = err_set(e, -EBADMSG, "a file of the history has the wrong number");
    sys_close(h->sys, &fd);
    return r;
}

void history_states_free(struct history_states *f)
{
    for (size_t i = 0; i < f->n; i++)
        history_state_free(&f->of[i]);
    free(f->of);
    *f = HISTORY_STATES_INIT;
}

/* Loads and appends a state, unless its file has been removed. */
static int add_state(struct history *h, uint64_t number, struct history_states *f, struct err *e)
{
    struct history_state s = {0};
    struct err why = {0};
    int r = array_grow(&f->of, &f->cap, f->n, sizeof(s));
    f->last = number;
    if (r < 0)
        return no_memory(e);
    r = load_state(h, number, &s, &why);
    if (r == 0 && !s.rec.forgotten) {
        f->of[f->n++] = s;
        return 0;
    }
    if (r == 0) {
        history_states_free(f);
        *f = (struct history_states){.last = number, .forgotten = number};
    }
    history_state_free(&s);
    f->damaged += r == -EBADMSG;
    return r == 0 || r == -EBADMSG || r == -ENOENT ? 0 : err_set(e, r, "%s", why.msg);
}

int history_load(struct history *h, struct history_states *ret, struct err *e)
{
    CLEANUP(listing_free) struct listing l = {.h = h};
    struct err why = {0};
    *ret = HISTORY_STATES_INIT;
    int r = open_folder(h, false, &why);
    if (r < 0)
        return r == -ENOENT ? 0 : err_set(e, r, "%s", why.msg);
    r = list_files(&l, e);
    for (size_t i = 0; i < l.n && r == 0; i++)
        if (l.of[i].hash == h->hash)
            r = add_state(h, l.of[i].number, ret, e);
    if (r < 0)
        history_states_free(ret);
    return r;
}

/*
 * H1. Writes a state's file, or replaces it. b: room for the head, then the path and the facts.
 */
static int put_state(struct history *h, struct history_record *rec, struct buf *b, struct err *e)
{
    const struct sys *sys = h->sys;
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    uint64_t v[NUMBERS];
    char name[NAME_ROOM];
    if (buf_error(b))
        return no_memory(e);
    if (b->len > HISTORY_BYTES_MAX)
        return err_set(e, -EFBIG,
                       "it changes %zu bytes, over the limit of %llu for all models together",
                       b->len, (unsigned long long)HISTORY_BYTES_MAX);
    rec->path_len = strlen(h->model);
    memcpy(v, rec, sizeof(v));
    memcpy(b->data, MAGIC, SUM_AT);
    for (size_t i = 0; i < NUMBERS; i++)
        put_u64(b->data + RECORD_AT + 8 * i, v[i], false);
    put_u64(b->data + SUM_AT, xxh64(0, b->data + RECORD_AT, b->len - RECORD_AT), false);
    put_name(name, h->hash, rec->number);
    (void)sys->unlinkat(sys, h->dir, NEW_NAME); /* left by a process that has ended */
    int fd = sys->openat(sys, h->dir, NEW_NAME, flags, 0600);
    if (fd < 0)
        return failed(h, fd, "make a file in it", e);
    int r = sys_write_all(sys, fd, b->data, b->len, 0);
    if (r == 0)
        r = sys_sync(sys, fd);
    if (r == 0)
        r = sys->rename(sys, h->dir, NEW_NAME, name, 0);
    sys_close(sys, &fd);
    if (r < 0)
        (void)sys->unlinkat(sys, h->dir, NEW_NAME);
    else
        r = sys_sync_dir(sys, h->dir);
    return r < 0 ? failed(h, r, "write a file in it", e) : 0;
}

/* Begins a state's file: leaves room for the head, and adds the path. */
static void begin_state(const struct history *h, struct buf *b)
{
    buf_zero(b, HEAD);
    buf_str(b, h->model);
}

static int drop_file(struct history *h, struct listed *x)
{
    char name[NAME_ROOM];
    put_name(name, x->hash, x->number);
    x->number = 0;
    return h->sys->unlinkat(h->sys, h->dir, name);
}

/* Returns the oldest file that is not its model's last, or NULL. */
static struct listed *oldest(const struct listing *l)
{
    struct listed *ret = NULL;
    for (size_t i = 0; i + 1 < l->n; i++)
        if (l->of[i].number && l->of[i + 1].hash == l->of[i].hash &&
            (!ret || when_before(&l->of[i].mtime, &ret->mtime)))
            ret = &l->of[i];
    return ret;
}

/* H3. Removes states that exceed the limits. Stops at the first one that cannot be removed. */
static void prune(struct history *h)
{
    CLEANUP(listing_free) struct listing l = {.h = h};
    uint64_t own = 0, bytes = 0;
    int r = list_files(&l, NULL);
    for (size_t i = 0; i < l.n; i++) {
        own += l.of[i].hash == h->hash;
        bytes += l.of[i].bytes;
    }
    const uint64_t keep =
        h->keep == HISTORY_KEEP_SAME ? max_u64(own - 1, HISTORY_KEEP) : max_u64(h->keep, 2);
    for (size_t i = 0; i < l.n && own > keep && r == 0; i++)
        if (l.of[i].hash == h->hash) {
            r = drop_file(h, &l.of[i]);
            bytes -= l.of[i].bytes;
            own--;
        }
    for (struct listed *x; r == 0 && bytes > HISTORY_BYTES_MAX && (x = oldest(&l));) {
        bytes -= x->bytes;
        r = drop_file(h, x);
    }
}

int history_clear(struct history *h, size_t *n, struct err *e)
{
    CLEANUP(history_states_free) struct history_states f = HISTORY_STATES_INIT;
    CLEANUP(listing_free) struct listing l = {.h = h};
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    struct err why = {0};
    *n = 0;
    int r = lock(h, false, HISTORY_PATIENCE, &why);
    if (r < 0)
        return r == -ENOENT ? 0 : err_set(e, r, "%s", why.msg);
    r = history_load(h, &f, e);
    *n = f.n;
    begin_state(h, &b);
    if (r == 0 && f.last > f.forgotten) /* H2: the last number is kept */
        r = put_state(h, &(struct history_record){.number = f.last, .forgotten = 1}, &b, e);
    if (r == 0)
        r = list_files(&l, e);
    for (size_t i = 0; i < l.n && r == 0; i++)
        if (l.of[i].hash == h->hash && l.of[i].number < f.last)
            (void)drop_file(h, &l.of[i]);
    unlock(h);
    return r;
}

/* ---- the keys of a state ---- */

/*
 * Writes the state's keys: the kept keys of `next`, in order, and the facts' keys in their places.
 */
static void merge(const struct gguf *next, const uint8_t *kept, const struct history_fact *f,
                  size_t n, struct buf *b)
{
    uint64_t keys = 0, at = 0;
    uint32_t i = 0;
    for (uint32_t k = 0; k < next->n_kv; k++)
        keys += kept[k];
    for (size_t k = 0; k < n; k++)
        keys += f[k].place != UINT64_MAX;
    buf_add(b, next->head, 8); /* magic and version */
    buf_uint(b, 0, next->fmt.len_width, next->fmt.big);
    buf_uint(b, keys, next->fmt.len_width, next->fmt.big);
    for (; at < keys; at++) {
        while (i < next->n_kv && !kept[i])
            i++;
        bool fact = n && f->place != UINT64_MAX && (f->place <= at || i == next->n_kv);
        if (fact)
            buf_add(b, f->bytes, f->n);
        else
            buf_add(b, next->head + next->kv[i].off, (size_t)(next->kv[i].end - next->kv[i].off));
        n -= fact;
        f += fact;
        i += !fact;
    }
}

int history_before(const struct history_state *s, const struct gguf *next, struct gguf **ret,
                   struct err *e)
{
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    if (s->rec.format != edit_keys_format(next))
        return err_set(e, -EINVAL,
                       "the keys are from a file with another byte order or GGUF version");
    uint8_t *kept = malloc((size_t)next->n_kv + 1);
    if (!kept)
        return no_memory(e);
    for (uint32_t i = 0; i < next->n_kv; i++)
        kept[i] = !edit_key_is_own(next, i);
    for (size_t i = 0; i < s->n; i++) {
        const struct history_fact *f = &s->fact[i];
        const uint32_t k = gguf_find_key(next, f->bytes + f->key_off, f->key_len);
        if (k != UINT32_MAX)
            kept[k] = 0;
    }
    merge(next, kept, s->fact, s->n, &b);
    free(kept);
    if (buf_error(&b))
        return no_memory(e);
    const struct source src = source_mem(b.data, b.len);
    struct gguf *g = NULL;
    int r = gguf_parse_head(&src, b.data, b.len, next, &g, NULL);
    if (r == 0)
        (void)buf_steal(&b);
    if (r == 0 && g->head_len == src.size) {
        *ret = g;
        return 0;
    }
    gguf_free(g);
    return r == -ENOMEM ? no_memory(e)
                        : err_set(e, -EBADMSG, "state %llu is damaged: its keys cannot be parsed",
                                  (unsigned long long)s->rec.number);
}

/* Returns true if the state's edit is not in the file. id: edit_keys_id() of the file. */
static bool is_unused(const struct history_record *r, uint64_t id)
{
    return r->landed == r->before && id == r->before;
}

static bool left_by(const struct history_record *r, uint64_t id)
{
    return id == r->landed || id == r->planned;
}

/* A walk from the newest state to older ones. */
struct walk {
    const struct history_states *f;
    size_t i;          /* index of the state; f->n: not at a state yet */
    struct gguf *keys; /* a reference: the state's keys */
    struct gguf *next; /* a reference: the keys after its edits */
    bool fits;         /* at every state so far, the keys had the recorded ids */
};

static void walk_begin(struct walk *w, const struct history_states *f, struct gguf *now)
{
    *w = (struct walk){.f = f, .i = f->n, .keys = gguf_ref(now), .fits = true};
}

static void walk_end(struct walk *w)
{
    gguf_free(w->keys);
    gguf_free(w->next);
}

/*
 * Moves to the next older state whose edits reached the file, but not beyond state `to`. Returns 1,
 * 0 if there is no such state, or an error from history_before().
 */
static int walk_on(struct walk *w, size_t to, struct err *e)
{
    struct gguf *before;
    const uint64_t id = edit_keys_id(w->keys);
    const struct history_record *rec;
    do {
        if (w->i == to)
            return 0;
        rec = &w->f->of[--w->i].rec;
    } while (is_unused(rec, id));
    int r = history_before(&w->f->of[w->i], w->keys, &before, e);
    if (r < 0)
        return r;
    w->fits &= left_by(rec, id) && edit_keys_id(before) == rec->before;
    gguf_free(w->next);
    w->next = w->keys;
    w->keys = before;
    return 1;
}

/* ---- recording edits ---- */

#define STORED UINT32_MAX

/* The facts about a state, while they are collected. */
struct adding {
    struct gguf *base; /* a reference: the state's keys */
    uint32_t *place;   /* owned: their places; STORED: the key has a fact */
    struct buf facts;  /* the state's file */
};

static void adding_free(struct adding *a)
{
    gguf_free(a->base);
    free(a->place);
    buf_free(&a->facts);
}

static int place_keys(struct adding *a)
{
    uint32_t at = 0;
    a->place = malloc(((size_t)a->base->n_kv + 1) * sizeof(*a->place));
    for (uint32_t i = 0; a->place && i < a->base->n_kv; i++)
        a->place[i] = edit_key_is_own(a->base, i) ? STORED : at++;
    return a->place ? 0 : -ENOMEM;
}

static void put_fact(struct buf *b, uint64_t place, const void *bytes, size_t n, size_t key_off,
                     size_t key_len)
{
    buf_uint(b, place, 8, false);
    buf_uint(b, n, 8, false);
    buf_uint(b, key_off, 4, false);
    buf_uint(b, key_len, 4, false);
    buf_add(b, bytes, n);
}

/* Adds a fact: the state's entry for a key that changed, moved or was removed. */
static void note(struct adding *a, uint32_t i)
{
    const struct gguf_kv *kv = &a->base->kv[i];
    if (a->place[i] != STORED)
        put_fact(&a->facts, a->place[i], a->base->head + kv->off, (size_t)(kv->end - kv->off),
                 (size_t)(kv->key_off - kv->off), kv->key_len);
    a->place[i] = STORED;
}

static uint32_t skip_own(const struct gguf *g, uint32_t i)
{
    while (i < g->n_kv && edit_key_is_own(g, i))
        i++;
    return i;
}

static uint32_t find(const struct gguf *in, const struct gguf *of, uint32_t i)
{
    return i < of->n_kv ? gguf_find_key(in, gguf_key(of, &of->kv[i]), of->kv[i].key_len)
                        : UINT32_MAX;
}

/*
 * Walks the state's keys and those of b in parallel, and adds a fact for each difference. Keys that
 * are reached at the same time have not moved. If two keys have swapped places, the fact is about
 * the one that moved further. A key that the state lacks gets a fact unless `but` has it.
 */
static void compare(struct adding *to, const struct gguf *b, const struct gguf *but)
{
    const struct gguf *a = to->base;
    uint32_t i = 0, k = 0;
    for (;;) {
        i = skip_own(a, i);
        k = skip_own(b, k);
        if (i == a->n_kv && k == b->n_kv)
            return;
        const uint32_t there = find(b, a, i), here = find(a, b, k);
        if (i < a->n_kv && there == k) { /* not moved */
            if (!edit_same_entry(a, i, b, k))
                note(to, i);
            i++;
            k++;
        } else if (i < a->n_kv && (there == UINT32_MAX || there < k)) { /* removed or noted */
            note(to, i++);
        } else if (here == UINT32_MAX || here < i) { /* added, or already noted */
            assert(k < b->n_kv);
            const struct gguf_kv *kv = &b->kv[k++];
            if (here == UINT32_MAX && (!but || find(but, b, k - 1) == UINT32_MAX))
                put_fact(&to->facts, UINT64_MAX, gguf_key(b, kv), kv->key_len, 0, kv->key_len);
        } else if (there - k > here - i) {
            note(to, i++);
        } else {
            note(to, here);
            k++;
        }
    }
}

static bool joins(const struct history_record *r, const struct recorded_edit *edit, uint64_t before)
{
    const int64_t end = edit->ended > r->end ? edit->ended : r->end;
    return is_unused(r, before) || (left_by(r, before) && !edit->restored && !r->restored &&
                                    edit->now >= end && edit->now - end < HISTORY_JOIN);
}

/* Returns the last state, unless its file is damaged. */
static struct history_state *last_of(const struct history_states *f)
{
    return f->n && f->of[f->n - 1].rec.number == f->last ? &f->of[f->n - 1] : NULL;
}

/* If the edit joins this state, sets a->base to the state's keys and returns true. */
static bool join(const struct history_state *s, const struct recorded_edit *edit, uint64_t before,
                 struct adding *a)
{
    if (!s || !joins(&s->rec, edit, before) || history_before(s, edit->before, &a->base, NULL) < 0)
        return false;
    if (edit_keys_id(a->base) == s->rec.before)
        return true;
    gguf_free(a->base);
    a->base = NULL;
    return false;
}

/* Records an edit. Call with the directory's lock held. */
static int record(struct history *h, const struct recorded_edit *edit, struct err *e)
{
    const uint64_t before = edit_keys_id(edit->before);
    CLEANUP(history_states_free) struct history_states f;
    CLEANUP(adding_free) struct adding a = {0};
    int r = history_load(h, &f, e);
    if (r < 0)
        return r;
    const bool joined = join(last_of(&f), edit, before, &a);
    struct history_record rec = {.number = f.last + 1,
                                 .before = before,
                                 .landed = before,
                                 .format = edit_keys_format(edit->before)};
    if (joined)
        rec = last_of(&f)->rec;
    else
        a.base = gguf_ref(edit->before);
    if (is_unused(&rec, before)) {
        rec.restored = edit->restored;
        rec.begin = edit->now;
    }
    rec.end = edit->now;
    rec.landed = before;
    rec.planned = edit_keys_id(edit->after);
    begin_state(h, &a.facts);
    if (place_keys(&a) < 0)
        return no_memory(e);
    if (joined)
        compare(&a, edit->before, NULL);
    compare(&a, edit->after, joined ? edit->before : NULL);
    r = put_state(h, &rec, &a.facts, e);
    if (r == 0 && !joined)
        prune(h);
    return r;
}

int history_record(struct history *h, const struct recorded_edit *edit, struct err *e)
{
    int r = lock(h, true, UINT_MAX, e);
    if (r < 0)
        return r;
    r = record(h, edit, e);
    unlock(h);
    return r;
}

int history_end(struct history *h, uint64_t planned, int64_t now, struct err *e)
{
    CLEANUP(history_states_free) struct history_states f = HISTORY_STATES_INIT;
    int r = lock(h, false, UINT_MAX, e);
    if (r < 0)
        return r;
    r = history_load(h, &f, e);
    struct history_state *s = last_of(&f);
    if (s && s->rec.planned == planned) {
        s->rec.landed = planned;
        s->rec.end = now;
        r = put_state(h, &s->rec, &s->bytes, e);
    }
    unlock(h);
    return r;
}

/* ---- what changed ---- */

/* Lists the keys of `of` that `other` lacks or, with `changed`, those whose values differ. */
static void name_keys(const char *what, const struct gguf *of, const struct gguf *other,
                      bool changed, bool *any, struct buf *out)
{
    char shown[SHOW_MAX];
    size_t n = 0;
    for (uint32_t i = skip_own(of, 0); i < of->n_kv; i = skip_own(of, i + 1)) {
        const uint32_t k = find(other, of, i);
        if (changed ? k == UINT32_MAX || gguf_same_value(other, k, of, i) : k != UINT32_MAX)
            continue;
        if (n++ == 0)
            buf_printf(out, "%s%s ", *any ? "; " : "", what);
        if (n <= NAMES_SHOWN)
            buf_printf(out, "%s%s", n > 1 ? ", " : "",
                       show(shown, gguf_key(of, &of->kv[i]), of->kv[i].key_len));
    }
    if (n > NAMES_SHOWN)
        buf_printf(out, " and %zu more", n - NAMES_SHOWN);
    *any |= n > 0;
}

/* Returns true if both have the same keys, but in a different order. */
static bool moved(const struct gguf *from, const struct gguf *to)
{
    uint32_t last = 0;
    for (uint32_t i = skip_own(to, 0); i < to->n_kv; i = skip_own(to, i + 1)) {
        const uint32_t k = find(from, to, i);
        if (k < last)
            return true;
        last = k;
    }
    return false;
}

void history_describe(const struct gguf *from, const struct gguf *to, struct buf *out)
{
    bool any = false;
    name_keys("changed", to, from, true, &any, out);
    name_keys("added", to, from, false, &any, out);
    name_keys("removed", from, to, false, &any, out);
    if (!any && moved(from, to))
        buf_str(out, "changed the order of the keys");
}

/* ---- the list, and picking a state ---- */

static void put_line(const struct walk *w, struct buf *out)
{
    CLEANUP(buf_free) struct buf what = BUF_INIT;
    const struct history_record *rec = &w->f->of[w->i].rec;
    char text[64] = "";
    time_t t = (time_t)rec->begin;
    struct tm tm;
    history_describe(w->keys, w->next, &what);
    if (what.len == 0)
        return;
    if (localtime_r(&t, &tm))
        (void)strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm);
    buf_printf(out, "%llu\t%s\t", (unsigned long long)rec->number, text);
    if (rec->restored)
        buf_printf(out, "undo, back to %llu: ", (unsigned long long)rec->restored);
    buf_add(out, what.data, what.len);
    if (w->i + 1 == w->f->n && !left_by(rec, edit_keys_id(w->next)))
        buf_str(out, " (also by another program)");
    buf_char(out, '\n');
}

int history_text(struct history *h, struct gguf *now, struct buf *out, struct err *e)
{
    CLEANUP(history_states_free) struct history_states f = HISTORY_STATES_INIT;
    struct walk w;
    int r = history_load(h, &f, e);
    struct buf *line = r == 0 ? calloc(f.n + 1, sizeof(*line)) : NULL;
    if (!line)
        return r < 0 ? r : no_memory(e);
    struct err why = {0};
    walk_begin(&w, &f, now);
    while ((r = walk_on(&w, 0, &why)) == 1)
        put_line(&w, &line[w.i]);
    if (r < 0) /* earlier states cannot be read either */
        buf_printf(&line[w.i], "%llu\tcannot be restored: %s\n",
                   (unsigned long long)f.of[w.i].rec.number, why.msg);
    walk_end(&w);
    for (size_t i = 0; i < f.n; i++) {
        buf_add(out, line[i].data, line[i].len);
        buf_free(&line[i]);
    }
    free((void *)line);
    if (f.damaged)
        buf_printf(out, "-\tcannot be restored: %zu of the history's files are damaged\n",
                   f.damaged);
    return buf_error(out);
}

void history_pick_free(struct history_pick *p)
{
    gguf_free(p->keys);
    *p = HISTORY_PICK_INIT;
}

static int no_state(const struct history_states *f, uint64_t number, struct err *e)
{
    const bool gone = number > f->forgotten && f->n && number < f->of[0].rec.number;
    if (number == 0)
        return err_set(
            e, -ENOENT, "there is nothing to undo: %s",
            f->forgotten
                ? "the states were forgotten (--history=clear), and no edit has been recorded since"
                : "no edit of this model is recorded");
    return err_set(e, -ENOENT, "there is no state %llu%s", (unsigned long long)number,
                   gone ? " any more: only the latest are kept (ggufs --history shows them)"
                   : number <= f->forgotten ? " any more: it was forgotten (--history=clear)"
                                            : " (ggufs --history shows those that exist)");
}

static int not_fitting(const struct history_states *f, struct err *e)
{
    return err_set(e, -ESTALE,
                   "the keys are not those that the last recorded edit left: %s (ggufs --history "
                   "shows the states, --undo=N restores one anyway)",
                   f->damaged ? "a file of the history is damaged"
                              : "another program changed or replaced the file");
}

int history_pick(struct history *h, uint64_t number, struct gguf *now, struct history_pick *ret,
                 struct err *e)
{
    CLEANUP(history_states_free) struct history_states f = HISTORY_STATES_INIT;
    struct walk w;
    size_t i = 0;
    *ret = HISTORY_PICK_INIT;
    int r = history_load(h, &f, e);
    if (r < 0)
        return r;
    while (i < f.n && f.of[i].rec.number != number)
        i++;
    if (number && i == f.n)
        return no_state(&f, number, e);
    walk_begin(&w, &f, now);
    do
        r = walk_on(&w, number ? i : 0, e);
    while (r == 1 && number);
    if (r == 0 && number == 0)
        r = no_state(&f, 0, e);
    else if (r == 1 && !w.fits)
        r = not_fitting(&f, e);
    if (r >= 0) {
        *ret = (struct history_pick){f.of[number ? i : w.i].rec, gguf_ref(w.keys), w.fits};
        r = 0;
    }
    walk_end(&w);
    return r;
}

/* ---- while a model is edited ---- */

struct history_job {
    struct pool_job job; /* must be the first member */
    atomic_uint users;   /* the owner and a turn; whichever is last frees the job */
    atomic_bool idle;    /* no turn is pending; else the turn uses the next four members */
    struct history h;
    struct recorded_edit edit; /* holds references; `before` NULL: note that `planned` has landed */
    uint64_t planned;          /* edit_keys_id() after the edit */
    struct err err;            /* why the edit was not recorded */
    struct err why;            /* why there is no history */
    struct logger log;
    bool waits;    /* the current edit waits for the turn */
    bool late;     /* the turn takes too long */
    bool said;     /* the failure was logged */
    bool landed;   /* the last edit was recorded and is in the file */
    int64_t ended; /* when that edit ended, in seconds since 1970 */
};

static void drop_job(struct history_job *j)
{
    if (atomic_fetch_sub(&j->users, 1) != 1)
        return;
    history_close(&j->h);
    free(j);
}

static bool turn(struct pool_job *job, struct timespec *again)
{
    struct history_job *j = (struct history_job *)job;
    (void)again;
    if (j->edit.before)
        (void)history_record(&j->h, &j->edit, &j->err);
    else
        (void)history_end(&j->h, j->planned, j->edit.now, NULL);
    gguf_free(j->edit.before);
    gguf_free(j->edit.after);
    sys_close(j->h.sys, &j->h.dir);
    pool_tell(&j->idle);
    drop_job(j);
    return false;
}

/* Starts a turn, which takes ownership of the edit's references. */
static int start(struct history_job *j, const struct recorded_edit *edit, struct err *e)
{
    j->edit = *edit;
    j->err = (struct err){0};
    atomic_store(&j->idle, false);
    atomic_fetch_add(&j->users, 1);
    int r = pool_do_beside(&j->job, turn);
    if (r == 0)
        return 0;
    atomic_fetch_sub(&j->users, 1);
    atomic_store(&j->idle, true);
    gguf_free(edit->before);
    gguf_free(edit->after);
    return err_sys(e, r, "cannot start a thread");
}

/* Waits for the turn. Returns false if it takes longer than `seconds`. */
static bool wait_for(const struct history_job *j, unsigned seconds)
{
    const struct timespec until = when_after(seconds * 1000);
    return pool_wait(&j->idle, &until);
}

int history_job_make(const char *model, unsigned keep, const struct sys *sys,
                     const struct logger *log, struct history_job **ret)
{
    struct history_job *j = calloc(1, sizeof(*j));
    if (!j)
        return -ENOMEM;
    atomic_init(&j->users, 1);
    atomic_init(&j->idle, true);
    j->log = *log;
    int r = history_open(&j->h, sys, NULL, model, keep, &j->why);
    if (r == -ENOMEM) {
        drop_job(j);
        return r;
    }
    *ret = j;
    return 0;
}

/* Logs a failure, but only the first of several in a row. */
static void say(struct history_job *j, const struct err *e)
{
    if (e->code && !j->said)
        logger_log(&j->log, LOG_WARNING, "history: the keys before this edit are not kept: %s",
                   e->msg);
    j->said = e->code;
}

void history_job_begin(struct history_job *j, struct gguf *before, struct gguf *after,
                       uint64_t restored)
{
    struct err e = j->why;
    const uint64_t id = edit_keys_id(after);
    j->waits = false;
    if (edit_keys_id(before) == id)
        return;
    if (e.code == 0 && !wait_for(j, j->late ? 0 : HISTORY_WAIT)) {
        (void)err_set(&e, -ETIMEDOUT, "the previous state is still being written");
    } else if (e.code == 0) {
        j->landed = false;
        j->planned = id;
        j->waits = start(j,
                         &(struct recorded_edit){gguf_ref(before), gguf_ref(after), restored,
                                                 when_date().tv_sec, j->ended},
                         &e) == 0;
    }
    if (!j->waits)
        say(j, &e);
}

void history_job_wait(struct history_job *j)
{
    struct err e = {0};
    if (!j->waits)
        return;
    j->late = !wait_for(j, HISTORY_WAIT);
    if (j->late)
        (void)err_set(&e, -ETIMEDOUT, "this takes over %d s; the edit does not wait for it",
                      HISTORY_WAIT);
    else
        e = j->err;
    say(j, &e);
}

void history_job_end(struct history_job *j, bool landed)
{
    j->ended = when_date().tv_sec;
    j->landed |= j->waits && landed && !j->late;
}

void history_job_settle(struct history_job *j)
{
    if (wait_for(j, HISTORY_WAIT) && j->landed &&
        start(j, &(struct recorded_edit){.now = j->ended}, NULL) == 0)
        (void)wait_for(j, HISTORY_WAIT);
    j->landed = false;
}

/* A turn that finds out whether the directory responds. */
struct look {
    struct pool_job job; /* must be the first member */
    atomic_uint users;   /* the turn, and the thread that waits for it */
    atomic_bool done;
    struct history h;
};

static void drop_look(struct look *k)
{
    if (atomic_fetch_sub(&k->users, 1) != 1)
        return;
    history_close(&k->h);
    free(k);
}

static bool look(struct pool_job *job, struct timespec *again)
{
    CLEANUP(history_states_free) struct history_states f = HISTORY_STATES_INIT;
    struct look *k = (struct look *)job;
    (void)again;
    (void)history_load(&k->h, &f, NULL);
    pool_tell(&k->done);
    drop_look(k);
    return false;
}

int history_job_look(const struct history_job *j, struct history *ret, struct err *e)
{
    const struct timespec until = when_after(HISTORY_SETTLE * 1000);
    *ret = HISTORY_INIT;
    if (j->why.code)
        return err_set(e, -ENOENT, "%s", j->why.msg);
    struct look *k = calloc(1, sizeof(*k));
    if (!k)
        return no_memory(e);
    atomic_init(&k->users, 2);
    int r = history_open(&k->h, j->h.sys, j->h.home, j->h.model, j->h.keep, e);
    bool done = r == 0 && pool_wait(&j->idle, &until);
    if (done && (r = err_sys(e, pool_do_beside(&k->job, look), "cannot start a thread")) == 0)
        done = pool_wait(&k->done, &until);
    else
        drop_look(k); /* on behalf of the turn, which was not started */
    if (r == 0 && done) {
        *ret = k->h;
        k->h = HISTORY_INIT;
    } else if (r == 0) {
        r = err_set(e, -EIO, "the history directory does not answer");
    }
    drop_look(k);
    return r;
}

void history_job_close(struct history_job *j)
{
    if (!j)
        return;
    history_job_settle(j);
    drop_job(j);
}

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
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/when.h"
#include "edit/change.h"

#define TICK_MS 10      /* pause between attempts to lock the directory */
#define LOCK_TRIES 10   /* how often the directory may be removed in the meantime */
#define NEW_NAME ".new" /* a file's name while written; one suffices, under the lock */
#define FOLDER_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define NAMES_SHOWN 5 /* names listed per kind of change; the others are only counted */

enum { SUM_AT = HISTORY_UNIT - 8, FACT_HEAD = 24 };
enum part { STATE = 1, MORE }; /* a state's record; facts of an edit that joined it */
static const char magic[8] = {'G', 'G', 'U', 'F', 'S', 'H', 'S', '4'};

static int no_memory(struct err *e)
{
    return err_set(e, -ENOMEM, "no memory");
}

/* ---- the directory ---- */

int history_home(char **ret, struct err *e)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    struct buf b = BUF_INIT;
    if (state && state[0] == '/')
        buf_printf(&b, "%s", state);
    else if (home && home[0] == '/')
        buf_printf(&b, "%s/.local/state", home);
    else if (geteuid() == 0)
        buf_str(&b, "/var/lib");
    else
        return err_set(e, -ENOENT, "neither XDG_STATE_HOME nor HOME is set");
    buf_char(&b, '\0');
    *ret = (char *)buf_steal(&b);
    return *ret ? 0 : no_memory(e);
}

int history_open(struct history *h, const struct sys *sys, const char *home, const char *model,
                 unsigned keep, struct err *e)
{
    size_t n = strlen(home);
    *h = (struct history){.sys = sys, .keep = keep, .dir = -1};
    while (n > 0 && home[n - 1] == '/')
        n--;
    (void)snprintf(h->name, sizeof(h->name), "%016" PRIx64, xxh64(0, model, strlen(model)));
    h->home = strndup(home, n);
    h->model = strdup(model);
    return h->home && h->model ? 0 : no_memory(e);
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
    return err_sys(e, r, "%s/ggufs/history/%s: cannot %s", show(shown, h->home, strlen(h->home)),
                   h->name, what);
}

/* Turns -ENOENT into success, for files that need not exist. */
static int missing_is_fine(int r, struct err *e)
{
    if (r != -ENOENT)
        return r;
    if (e)
        *e = (struct err){0};
    return 0;
}

/*
 * Checks that a directory of ours belongs to this user and grants others none of these permissions.
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
        return refuse(h, -EPERM, "other users may enter or write it (chmod 700 allows its use)", e);
    return 0;
}

/*
 * Opens the directory `name` in `dir`, and closes `dir`. With `make`, creates it if it is missing
 * and this user or root owns `dir`. others: for a directory of ours, the permissions that others
 * must not have. Returns the descriptor or -errno.
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
 * Opens and locks the directory. Waits for another process for at most `patience` ms, then returns
 * -EAGAIN; a patience of 0 means no limit. If the directory was removed while it was open, opens
 * the one that now has its name.
 */
static int lock(struct history *h, bool make, unsigned patience, struct err *e)
{
    struct stat st;
    int removed = 0;
    for (unsigned ms = 0;;) {
        int r = open_folder(h, make, e);
        if (r < 0)
            return r;
        r = h->sys->flock(h->sys, h->dir, patience ? LOCK_EX | LOCK_NB : LOCK_EX);
        if (r == 0) {
            if (h->sys->fstat(h->sys, h->dir, &st) < 0 || st.st_nlink > 0 ||
                removed++ == LOCK_TRIES)
                return 0;
            sys_close(h->sys, &h->dir);
        } else if (r != -EINTR && r != -EWOULDBLOCK) {
            return failed(h, r, "lock its directory", e);
        } else if (patience && ms >= patience) {
            return refuse(h, -EAGAIN, "another process has locked it", e);
        } else if (patience) {
            when_sleep(TICK_MS);
            ms += TICK_MS;
        }
    }
}

static void unlock(struct history *h)
{
    (void)h->sys->flock(h->sys, h->dir, LOCK_UN);
}

/* ---- a file in memory ---- */

static size_t up(size_t n)
{
    return (n + HISTORY_UNIT - 1) / HISTORY_UNIT * HISTORY_UNIT;
}

static void head_put(struct buf *b, const void *model, size_t n, uint64_t forgotten)
{
    uint8_t head[HISTORY_UNIT] = {0};
    memcpy(head, magic, sizeof(magic));
    put_u64(head + 8, forgotten, false);
    put_u32(head + 16, (uint32_t)n, false);
    put_u64(head + SUM_AT, xxh64(xxh64(0, head, SUM_AT), model, n), false);
    buf_add(b, head, sizeof(head));
    buf_add(b, model, n);
    buf_zero(b, up(n) - n);
}

/* How many numbers a record has. They begin at byte 8. */
enum { NUMBERS = sizeof(struct history_record) / 8 };
_Static_assert(sizeof(struct history_record) == 10 * 8, "a record is ten numbers");

static void part_put(const struct history_record *r, enum part kind, uint8_t dst[HISTORY_UNIT])
{
    uint64_t v[NUMBERS];
    memcpy(v, r, sizeof(v));
    memset(dst, 0, HISTORY_UNIT);
    put_u32(dst, kind, false);
    for (size_t i = 0; i < NUMBERS; i++)
        put_u64(dst + 8 + 8 * i, v[i], false);
    put_u64(dst + SUM_AT, xxh64(0, dst, SUM_AT), false);
}

/* Reads a part's record. Returns the kind of part, or 0 if the bytes are not a part. */
static enum part part_get(const uint8_t *src, struct history_record *ret)
{
    uint64_t v[NUMBERS];
    const enum part kind = get_u32(src, false);
    for (size_t i = 0; i < NUMBERS; i++)
        v[i] = get_u64(src + 8 + 8 * i, false);
    memcpy(ret, v, sizeof(v));
    return get_u64(src + SUM_AT, false) == xxh64(0, src, SUM_AT) && kind <= MORE ? kind : 0;
}

/* Reads facts. Returns 1, 0 if the bytes are not facts, or -ENOMEM. */
static int add_facts(struct history_file *f, const uint8_t *p, size_t left)
{
    while (left) {
        if (left < FACT_HEAD)
            return 0;
        struct history_fact x = {get_u64(p, false), p + FACT_HEAD, 0, get_u32(p + 16, false),
                                 get_u32(p + 20, false)};
        uint64_t n = get_u64(p + 8, false);
        if (n > left - FACT_HEAD || x.key_off > n || x.key_len > n - x.key_off)
            return 0;
        x.n = (size_t)n;
        if (array_grow(&f->fact, &f->cap_fact, f->n_fact, sizeof(x)) < 0)
            return -ENOMEM;
        f->fact[f->n_fact++] = x;
        p += FACT_HEAD + x.n;
        left -= FACT_HEAD + x.n;
    }
    return 1;
}

/* Reads the next part. Returns 1, 0 if nothing more can be read, or -ENOMEM. */
static int next_part(struct history_file *f)
{
    struct history_record rec;
    const size_t at = (size_t)f->end, facts = f->n_fact;
    if (f->bytes.len < at + HISTORY_UNIT)
        return 0;
    const uint8_t *p = f->bytes.data + at;
    enum part kind = part_get(p, &rec);
    if (kind == 0 || (kind == MORE && f->n == 0) || rec.bytes > f->bytes.len - at - HISTORY_UNIT ||
        xxh64(0, p + HISTORY_UNIT, (size_t)rec.bytes) != rec.sum)
        return 0;
    int r = add_facts(f, p + HISTORY_UNIT, (size_t)rec.bytes);
    if (r == 1 && kind == STATE) {
        if (array_grow(&f->state, &f->cap, f->n, sizeof(*f->state)) < 0)
            return -ENOMEM;
        f->state[f->n++] = (struct history_state){rec, at, facts};
    }
    if (r == 1)
        f->end = at + HISTORY_UNIT + up((size_t)rec.bytes);
    else
        f->n_fact = facts;
    return r;
}

int history_parse(struct history_file *f, const char *model, struct err *e)
{
    const uint8_t *p = f->bytes.data;
    size_t left = f->bytes.len, path;
    if (left < HISTORY_UNIT || memcmp(p, magic, sizeof(magic)) != 0)
        return err_set(e, -EBADMSG, "it is damaged: it is not a history of this program");
    path = get_u32(p + 16, false);
    if (path > left - HISTORY_UNIT ||
        xxh64(xxh64(0, p, SUM_AT), p + HISTORY_UNIT, path) != get_u64(p + SUM_AT, false))
        return err_set(e, -EBADMSG, "it is damaged: the sum of its head is wrong");
    if (model && (path != strlen(model) || memcmp(p + HISTORY_UNIT, model, path) != 0))
        return err_set(e, -ESTALE, "it is the history of another model");
    f->forgotten = get_u64(p + 8, false);
    f->first = f->end = HISTORY_UNIT + up(path);
    int r;
    while ((r = next_part(f)) == 1)
        ;
    return r < 0 ? no_memory(e) : 0;
}

void history_file_free(struct history_file *f)
{
    buf_free(&f->bytes);
    free(f->state);
    free(f->fact);
    *f = HISTORY_FILE_INIT;
}

static uint64_t last_number(const struct history_file *f)
{
    return f->n ? max_u64(f->state[f->n - 1].rec.number, f->forgotten) : f->forgotten;
}

/*
 * H4. Opens a file if it is a regular one, because opening a device would use it. Returns the
 *     descriptor or
 * -errno.
 */
static int open_file(struct history *h, const char *name, int flags, struct stat *st, struct err *e)
{
    flags |= O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
    int r = h->sys->fstatat(h->sys, h->dir, name, st);
    if (r == 0 && (!S_ISREG(st->st_mode) || st->st_uid != geteuid() || st->st_nlink != 1))
        return refuse(h, -EPERM, "a file in it is not one that this program made", e);
    int fd = r < 0 ? r : h->sys->openat(h->sys, h->dir, name, flags, 0);
    return fd < 0 ? failed(h, fd, "open it", e) : fd;
}

/*
 * Loads a file by name. model: the model that it must belong to, or NULL for any. Returns -ENOENT
 * if it does not exist, otherwise as history_load() does.
 */
static int load_name(struct history *h, const char *name, const char *model,
                     struct history_file *ret, struct err *e)
{
    struct history_file f = HISTORY_FILE_INIT;
    struct stat st;
    int fd = open_file(h, name, O_RDONLY, &st, e), r = fd;
    if (fd < 0)
        return fd;
    const size_t n = (size_t)st.st_size;
    uint8_t *bytes = n > 2 * HISTORY_BYTES_MAX ? NULL : buf_extend(&f.bytes, n);
    if (n > 2 * HISTORY_BYTES_MAX)
        r = refuse(h, -EFBIG, "a file in it is too large", e);
    else if (n && !bytes)
        r = no_memory(e);
    else if ((r = sys_read_all(h->sys, fd, bytes, n, 0)) < 0)
        (void)failed(h, r, "read it", e);
    else if ((r = history_parse(&f, model, e)) < 0)
        (void)err_prefix(e, r, "%s/ggufs/history/%s", h->home, name);
    sys_close(h->sys, &fd);
    if (r < 0)
        history_file_free(&f);
    *ret = f;
    return r;
}

int history_load(struct history *h, struct history_file *ret, struct err *e)
{
    int r = open_folder(h, false, e);
    *ret = HISTORY_FILE_INIT;
    return missing_is_fine(r < 0 ? r : load_name(h, h->name, h->model, ret, e), e);
}

/* ---- the keys of a state ---- */

static bool is_fact(const struct index *ix, const struct history_fact *f, const void *key, size_t n)
{
    uint32_t i;
    for (struct probe p = index_probe(ix, hash_name(key, n)); index_next(ix, &p, &i);)
        if (f[i].key_len == n && memcmp(f[i].bytes + f[i].key_off, key, n) == 0)
            return true;
    return false;
}

static int by_place(const void *a, const void *b)
{
    const struct history_fact *x = a, *y = b;
    return x->place < y->place ? -1 : x->place > y->place;
}

/*
 * Writes the state's keys, made of the kept keys of `next` in order and the facts' keys in their
 * places.
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

/* Writes the state's keys. f: room for all facts. kept: room for a byte per key. */
static int make_image(const struct history_fact *from, size_t n, const struct gguf *next,
                      struct history_fact *f, uint8_t *kept, struct buf *b)
{
    struct index ix;
    if (index_init(&ix, n) < 0)
        return -ENOMEM;
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        const void *key = from[i].bytes + from[i].key_off;
        if (is_fact(&ix, f, key, from[i].key_len))
            continue;
        index_insert(&ix, hash_name(key, from[i].key_len), (uint32_t)m);
        f[m++] = from[i];
    }
    for (uint32_t i = 0; i < next->n_kv; i++)
        kept[i] = !edit_key_is_own(next, i) &&
                  !is_fact(&ix, f, gguf_key(next, &next->kv[i]), next->kv[i].key_len);
    index_free(&ix);
    qsort(f, m, sizeof(*f), by_place);
    merge(next, kept, f, m, b);
    return buf_error(b);
}

int history_before(const struct history_file *f, size_t i, const struct gguf *next,
                   struct gguf **ret, struct err *e)
{
    const struct history_state *s = &f->state[i];
    const size_t n = (i + 1 < f->n ? s[1].fact : f->n_fact) - s->fact;
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    if (s->rec.format != edit_keys_format(next))
        return err_set(e, -EINVAL,
                       "the keys are of a file of another byte order or version of GGUF");
    struct history_fact *room = calloc(n + 1, sizeof(*room));
    uint8_t *kept = malloc((size_t)next->n_kv + 1);
    int r = room && kept ? make_image(f->fact + s->fact, n, next, room, kept, &b) : -ENOMEM;
    free(room);
    free(kept);
    if (r < 0)
        return no_memory(e);
    struct source src = source_mem(b.data, b.len);
    struct gguf *g = NULL;
    r = gguf_parse(&src, 0, &g, NULL);
    if (r == 0 && g->n_tensors == 0 && g->head_len == b.len) {
        *ret = g;
        return 0;
    }
    gguf_free(g);
    return r == -ENOMEM ? no_memory(e)
                        : err_set(e, -EBADMSG, "state %llu is damaged: its keys are not keys",
                                  (unsigned long long)s->rec.number);
}

/*
 * Returns true if no edit after this state reached the file, and the keys with this id are not
 * those of an edit that may have reached it.
 */
static bool is_void(const struct history_record *r, uint64_t id)
{
    return r->landed == r->before && (r->planned != id || id == r->before);
}

static bool left_by(const struct history_record *r, uint64_t id)
{
    return id == r->landed || id == r->planned;
}

/* A walk from the newest state to older ones. */
struct walk {
    const struct history_file *f;
    size_t i;          /* index of the state; f->n: not at a state yet */
    struct gguf *keys; /* a reference: the state's keys */
    struct gguf *next; /* a reference: the keys after its edits */
    bool fits;         /* the keys match the state, judging by their ids */
};

static void walk_begin(struct walk *w, const struct history_file *f, struct gguf *now)
{
    *w = (struct walk){.f = f, .i = f->n, .keys = gguf_ref(now), .fits = true};
}

static void walk_end(struct walk *w)
{
    gguf_free(w->keys);
    gguf_free(w->next);
}

/*
 * Goes to the next older state whose edits reached the file, but not beyond state `to`. Returns 1,
 * 0 if there is no such state, or an error of history_before().
 */
static int walk_on(struct walk *w, size_t to, struct err *e)
{
    struct gguf *before;
    const uint64_t id = edit_keys_id(w->keys);
    const struct history_record *rec;
    do {
        if (w->i == to)
            return 0;
        rec = &w->f->state[--w->i].rec;
    } while (is_void(rec, id));
    int r = history_before(w->f, w->i, w->keys, &before, e);
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

/* The facts that an edit adds to its state. */
struct adding {
    struct gguf *base;               /* a reference: the state's keys */
    uint32_t *place;                 /* owned: places of the keys; STORED: the key has a fact */
    struct index known;              /* index of the facts of the state being joined */
    const struct history_fact *fact; /* these facts, which belong to the history file */
    struct buf facts;
};

static void adding_free(struct adding *a)
{
    gguf_free(a->base);
    free(a->place);
    index_free(&a->known);
    buf_free(&a->facts);
}

static int set_base(struct adding *a, struct gguf *g)
{
    uint32_t at = 0;
    a->place = malloc(((size_t)g->n_kv + 1) * sizeof(*a->place));
    if (!a->place)
        return -ENOMEM;
    for (uint32_t i = 0; i < g->n_kv; i++)
        a->place[i] = edit_key_is_own(g, i) ? STORED : at++;
    a->base = gguf_ref(g);
    return 0;
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

/*
 * Keeps the state's version of a key that the edit changes, makes, moves or removes, unless a fact
 * already has it.
 */
static void note(struct adding *a, const struct gguf *g, uint32_t kv)
{
    const char *key = gguf_key(g, &g->kv[kv]);
    const size_t n = g->kv[kv].key_len;
    uint32_t i = gguf_find_key(a->base, key, n);
    if (i == UINT32_MAX) {
        if (!a->fact || !is_fact(&a->known, a->fact, key, n))
            put_fact(&a->facts, UINT64_MAX, key, n, 0, n);
    } else if (a->place[i] != STORED) {
        const struct gguf_kv *k = &a->base->kv[i];
        put_fact(&a->facts, a->place[i], a->base->head + k->off, (size_t)(k->end - k->off),
                 (size_t)(k->key_off - k->off), n);
        a->place[i] = STORED;
    }
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
 * Finds what an edit changes by walking both lists of keys. Keys that the walk passes side by side
 * are unchanged. Of two keys that have swapped places, it notes the one that moved further.
 */
static void compare(struct adding *to, const struct gguf *a, const struct gguf *b)
{
    uint32_t i = 0, k = 0;
    for (;;) {
        i = skip_own(a, i);
        k = skip_own(b, k);
        if (i < a->n_kv && k < b->n_kv && edit_same_entry(a, i, b, k)) {
            i++;
            k++;
            continue;
        }
        if (i == a->n_kv && k == b->n_kv)
            return;
        const uint32_t there = find(b, a, i), here = find(a, b, k);
        if (i < a->n_kv && there == k) { /* another value */
            note(to, a, i++);
            k++;
        } else if (i < a->n_kv && (there == UINT32_MAX || there < k)) { /* removed, or noted */
            note(to, a, i++);
        } else if (k < b->n_kv && (here == UINT32_MAX || here < i)) { /* added, or already noted */
            if (here == UINT32_MAX)
                note(to, b, k);
            k++;
        } else if (there - k > here - i) {
            note(to, a, i++);
        } else {
            note(to, a, here);
            k++;
        }
    }
}

/* Returns true if the state's edit is not in the file, so that the keys are still the state's. */
static bool is_unused(const struct history_record *r, uint64_t before)
{
    return r->landed == r->before && r->before == before;
}

static bool joins(const struct history_record *r, const struct recorded_edit *edit, uint64_t before)
{
    return is_unused(r, before) || (left_by(r, before) && !edit->restored && !r->restored &&
                                    edit->now >= r->end && edit->now - r->end < HISTORY_JOIN);
}

/* Returns true if the edit joins the newest state, having set *a to that state's keys and facts. */
static bool look_up(const struct history_file *f, const struct recorded_edit *edit, uint64_t before,
                    struct adding *a)
{
    const struct history_state *s = f->n ? &f->state[f->n - 1] : NULL;
    struct gguf *keys = NULL;
    if (!s || !joins(&s->rec, edit, before) ||
        history_before(f, f->n - 1, edit->before, &keys, NULL) < 0)
        return false;
    bool found = edit_keys_id(keys) == s->rec.before &&
                 index_init(&a->known, f->n_fact - s->fact) == 0 && set_base(a, keys) == 0;
    gguf_free(keys);
    if (found)
        a->fact = f->fact + s->fact;
    for (size_t i = s->fact; found && i < f->n_fact; i++) {
        const struct history_fact *x = &f->fact[i];
        const void *key = x->bytes + x->key_off;
        uint32_t kv = gguf_find_key(a->base, key, x->key_len);
        if (kv != UINT32_MAX)
            a->place[kv] = STORED;
        else if (!is_fact(&a->known, a->fact, key, x->key_len))
            index_insert(&a->known, hash_name(key, x->key_len), (uint32_t)(i - s->fact));
    }
    return found;
}

/* Writes the whole file, perhaps for the first time (H1). */
static int replace(struct history *h, const char *name, const struct buf *b, struct err *e)
{
    const struct sys *sys = h->sys;
    int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    if (buf_error(b))
        return no_memory(e);
    (void)sys->unlinkat(sys, h->dir, NEW_NAME); /* left by a process that has ended */
    int fd = sys->openat(sys, h->dir, NEW_NAME, flags, 0600);
    if (fd < 0)
        return failed(h, fd, "make a file for it", e);
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
    return r < 0 ? failed(h, r, "write it", e) : 0;
}

static int add_part(const struct history *h, struct history_record *rec, enum part kind,
                    const struct buf *facts, struct buf *b, struct err *e)
{
    uint8_t record[HISTORY_UNIT];
    if (buf_error(facts))
        return no_memory(e);
    if (facts->len > HISTORY_BYTES_MAX - up(strlen(h->model)) - 3 * (size_t)HISTORY_UNIT)
        return err_set(e, -EFBIG, "it changes %zu bytes: %llu are kept of all models together",
                       facts->len, (unsigned long long)HISTORY_BYTES_MAX);
    rec->bytes = facts->len;
    rec->sum = xxh64(0, facts->data, facts->len);
    part_put(rec, kind, record);
    buf_add(b, record, sizeof(record));
    buf_add(b, facts->data, facts->len);
    buf_zero(b, up(facts->len) - facts->len);
    return 0;
}

/* Appends to the file and updates the state's record, both durably (H1). */
static int append(const struct recorder *r, const struct history_file *f, const struct buf *b,
                  struct err *e)
{
    const struct sys *sys = r->h->sys;
    uint8_t record[HISTORY_UNIT];
    struct stat st;
    int fd = buf_error(b) ? no_memory(e) : open_file(r->h, r->h->name, O_RDWR, &st, e), done = 0;
    if (fd < 0)
        return fd;
    if ((uint64_t)st.st_size > f->end)
        done = sys->ftruncate(sys, fd, f->end);
    if (done == 0)
        done = sys_write_all(sys, fd, b->data, b->len, f->end);
    part_put(&r->rec, STATE, record);
    if (done == 0 && !r->added)
        done = sys_write_all(sys, fd, record, sizeof(record), r->at);
    if (done == 0)
        done = sys_sync(sys, fd);
    sys_close(sys, &fd);
    return done < 0 ? failed(r->h, done, "write it", e) : 0;
}

/* Records an edit. Call with the directory's lock held. */
static int begin(struct recorder *r, const struct recorded_edit *edit, const uint64_t id[2],
                 struct err *e)
{
    CLEANUP(history_file_free) struct history_file f = HISTORY_FILE_INIT;
    CLEANUP(adding_free) struct adding a = {0};
    CLEANUP(buf_free) struct buf part = BUF_INIT;
    struct history_record more = {0};
    int done = history_load(r->h, &f, e);
    if (done < 0)
        return done;
    const bool first = f.end == 0;
    if (first)
        head_put(&part, r->h->model, strlen(r->h->model), 0);
    r->added = !look_up(&f, edit, id[0], &a);
    if (r->added && set_base(&a, edit->before) < 0)
        return no_memory(e);
    r->at = !r->added ? f.state[f.n - 1].at : first ? part.len : f.end;
    r->rec = !r->added ? f.state[f.n - 1].rec
                       : (struct history_record){.number = last_number(&f) + 1,
                                                 .begin = edit->now,
                                                 .end = edit->now,
                                                 .before = id[0],
                                                 .landed = id[0],
                                                 .format = edit_keys_format(edit->before)};
    if (is_unused(&r->rec, id[0]))
        r->rec.restored = edit->restored;
    r->rec.landed = id[0];
    r->rec.planned = id[1];
    compare(&a, edit->before, edit->after);
    if (r->added)
        done = add_part(r->h, &r->rec, STATE, &a.facts, &part, e);
    else if (a.facts.len || a.facts.err)
        done = add_part(r->h, &more, MORE, &a.facts, &part, e);
    if (done < 0)
        return done;
    return first ? replace(r->h, r->h->name, &part, e) : append(r, &f, &part, e);
}

int recorder_begin(struct recorder *r, const struct recorded_edit *edit, struct err *e)
{
    const uint64_t id[2] = {edit_keys_id(edit->before), edit_keys_id(edit->after)};
    r->running = false;
    if (id[0] == id[1])
        return 0;
    int done = lock(r->h, true, 0, e);
    if (done == 0) {
        done = begin(r, edit, id, e);
        unlock(r->h);
    }
    r->running = done == 0;
    return done < 0 ? done : 1;
}

/* ---- limits ---- */

/* Removes the n oldest states from a file. */
static int drop_states(struct history *h, const char *name, const struct history_file *f, size_t n,
                       struct err *e)
{
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    const uint8_t *old = f->bytes.data;
    head_put(&b, old + HISTORY_UNIT, get_u32(old + 16, false), f->forgotten);
    buf_add(&b, old + f->state[n].at, (size_t)(f->end - f->state[n].at));
    return replace(h, name, &b, e);
}

/* The result of a pass over all models' files. */
struct census {
    struct history *h;
    uint64_t bytes;
    bool look;                  /* find the oldest state as well */
    struct history_file oldest; /* owned: the file of that state, if it has others; or empty */
    char name[17];              /* that file's name */
};

static int count_file(void *arg, const char *name)
{
    struct history_file f = HISTORY_FILE_INIT;
    struct census *c = arg;
    struct stat st;
    if (strlen(name) != 16 || strspn(name, "0123456789abcdef") != 16 ||
        c->h->sys->fstatat(c->h->sys, c->h->dir, name, &st) < 0)
        return 0;
    c->bytes += (uint64_t)st.st_size;
    if (c->look && load_name(c->h, name, NULL, &f, NULL) == 0 && f.n > 1 &&
        (!c->oldest.n || f.state[0].rec.begin < c->oldest.state[0].rec.begin)) {
        const struct history_file later = c->oldest;
        c->oldest = f;
        f = later;
        memcpy(c->name, name, sizeof(c->name));
    }
    history_file_free(&f);
    return 0;
}

/*
 * Removes the oldest states of this model, and then those of all models, until the rest is within
 * the limits.
 */
static int prune(struct history *h, struct err *e)
{
    CLEANUP(history_file_free) struct history_file f = HISTORY_FILE_INIT;
    (void)h->sys->unlinkat(h->sys, h->dir, NEW_NAME); /* left by a process that was killed */
    int r = history_load(h, &f, e);
    size_t keep = h->keep;
    if (keep == HISTORY_KEEP_SAME)
        keep = f.n > HISTORY_KEEP ? f.n - 1 : HISTORY_KEEP;
    if (r == 0 && f.n > keep)
        r = drop_states(h, h->name, &f, f.n - keep, e);
    for (bool look = false, more = true; r == 0 && more; look = true) {
        struct census c = {.h = h, .look = look};
        r = h->sys->list(h->sys, h->dir, count_file, &c);
        if (r < 0)
            (void)failed(h, r, "list its directory", e);
        more = c.bytes > HISTORY_BYTES_MAX && (!look || c.oldest.n);
        if (r == 0 && more && look)
            r = drop_states(h, c.name, &c.oldest, 1, e);
        history_file_free(&c.oldest);
    }
    return r;
}

/*
 * Stores the outcome of the edit if the state is still at its offset. The outcome need not be
 * durable, because the model's content shows it until the next edit.
 */
static int write_end(const struct recorder *r, const struct history_record *rec, struct err *e)
{
    const struct sys *sys = r->h->sys;
    uint8_t known[HISTORY_UNIT], now[HISTORY_UNIT];
    struct stat st;
    int fd = open_file(r->h, r->h->name, O_RDWR, &st, e), done = 0;
    if (fd < 0)
        return missing_is_fine(fd, e);
    part_put(&r->rec, STATE, known);
    if (sys_read_all(sys, fd, now, sizeof(now), r->at) == 0 &&
        memcmp(now, known, sizeof(now)) == 0) {
        part_put(rec, STATE, now);
        done = sys_write_all(sys, fd, now, sizeof(now), r->at);
    }
    sys_close(sys, &fd);
    return done < 0 ? failed(r->h, done, "write it", e) : 0;
}

int recorder_end(struct recorder *r, bool landed, int64_t now, struct err *e)
{
    struct history_record rec = r->rec;
    if (!r->running)
        return 0;
    r->running = false;
    if (landed) {
        rec.landed = rec.planned;
        rec.end = now;
    } else {
        rec.planned = rec.landed;
    }
    int done = lock(r->h, false, 0, e);
    if (done < 0) /* all states may have been removed in the meantime */
        return missing_is_fine(done, e);
    done = write_end(r, &rec, e);
    int pruned = r->added ? prune(r->h, done == 0 ? e : NULL) : 0;
    unlock(r->h);
    return done < 0 ? done : pruned;
}

int history_clear(struct history *h, size_t *n, struct err *e)
{
    CLEANUP(history_file_free) struct history_file f = HISTORY_FILE_INIT;
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    *n = 0;
    int r = lock(h, false, HISTORY_PATIENCE, e);
    if (r < 0)
        return missing_is_fine(r, e);
    r = history_load(h, &f, e);
    *n = f.n;
    if (r == -EBADMSG || f.n) { /* a damaged file is forgotten, too */
        head_put(&b, h->model, strlen(h->model), last_number(&f));
        r = replace(h, h->name, &b, e);
    }
    unlock(h);
    return r;
}

/* ---- what changed ---- */

/* Names the keys of `of` that `other` lacks or, with `changed`, has with a different value. */
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

/* Returns true if the keys that both have are in a different order. */
static bool moved(const struct gguf *from, const struct gguf *to)
{
    uint32_t last = 0;
    for (uint32_t i = skip_own(to, 0); i < to->n_kv; i = skip_own(to, i + 1)) {
        const uint32_t k = find(from, to, i);
        if (k != UINT32_MAX && k < last)
            return true;
        last = k == UINT32_MAX ? last : k;
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
    const struct history_record *rec = &w->f->state[w->i].rec;
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
    CLEANUP(history_file_free) struct history_file f = HISTORY_FILE_INIT;
    struct walk w;
    int r = history_load(h, &f, e);
    struct buf *line = r == 0 ? calloc(f.n + 1, sizeof(*line)) : NULL;
    if (!line)
        return r < 0 ? r : no_memory(e);
    struct err why = {0};
    walk_begin(&w, &f, now);
    while ((r = walk_on(&w, 0, &why)) == 1)
        put_line(&w, &line[w.i]);
    if (r < 0) /* then earlier states cannot be read either */
        buf_printf(&line[w.i], "%llu\tcannot be restored: %s\n",
                   (unsigned long long)f.state[w.i].rec.number, why.msg);
    walk_end(&w);
    for (size_t i = 0; i < f.n; i++) {
        buf_add(out, line[i].data, line[i].len);
        buf_free(&line[i]);
    }
    free((void *)line);
    if (f.end < f.bytes.len)
        buf_printf(out, "-\tcannot be restored: %llu bytes of the history's file are damaged\n",
                   (unsigned long long)(f.bytes.len - f.end));
    return buf_error(out);
}

void history_pick_free(struct history_pick *p)
{
    gguf_free(p->keys);
    *p = HISTORY_PICK_INIT;
}

static int no_state(const struct history_file *f, uint64_t number, struct err *e)
{
    const bool gone = number > f->forgotten && f->n && number < f->state[0].rec.number;
    if (number == 0)
        return err_set(e, -ENOENT, "there is nothing to undo: %s",
                       f->forgotten ? "the states were forgotten (--history=clear), and no edit is "
                                      "recorded since"
                                    : "no edit of this model is recorded");
    return err_set(e, -ENOENT, "there is no state %llu%s", (unsigned long long)number,
                   gone ? " any more: only so many are kept (ggufs --history shows them)"
                   : number <= f->forgotten ? " any more: it was forgotten (--history=clear)"
                                            : " (ggufs --history shows those that exist)");
}

static int not_fitting(const struct history_file *f, struct err *e)
{
    return err_set(e, -ESTALE,
                   "the keys are not those that the last recorded edit left: %s (ggufs --history "
                   "shows the states, --undo=N restores one in any case)",
                   f->end < f->bytes.len ? "the history's file is damaged"
                                         : "another program changed or replaced the file");
}

int history_pick(struct history *h, uint64_t number, struct gguf *now, struct history_pick *ret,
                 struct err *e)
{
    CLEANUP(history_file_free) struct history_file f = HISTORY_FILE_INIT;
    struct walk w;
    size_t i = 0;
    *ret = HISTORY_PICK_INIT;
    int r = history_load(h, &f, e);
    if (r < 0)
        return r;
    while (i < f.n && f.state[i].rec.number != number)
        i++;
    if (number && i == f.n)
        return no_state(&f, number, e);
    walk_begin(&w, &f, now);
    do
        r = walk_on(&w, number ? i : 0, e);
    while (r == 1 && number);
    if (r == 0 && number == 0)
        r = no_state(&f, 0, e);
    else if (r == 1 && number == 0 && !w.fits)
        r = not_fitting(&f, e);
    if (r >= 0) {
        *ret = (struct history_pick){f.state[number ? i : w.i].rec, gguf_ref(w.keys), w.fits};
        r = 0;
    }
    walk_end(&w);
    return r;
}

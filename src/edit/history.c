/* SPDX-License-Identifier: MIT */
/* Records what takes edits back: see history.h, whose invariants are cited here. */
#include "edit/history.h"

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
#include "base/hash.h"
#include "base/lock.h"

#define TICK_MS 10      /* pause between attempts to lock the directory */
#define NEW_NAME ".new" /* name of a file being written; under the lock, one name suffices */
#define FOLDER_FLAGS (O_RDONLY | O_DIRECTORY | O_CLOEXEC)
#define NOT_OURS                                                                               \
    "not this user's own (directories must have mode 0700, files one name, and none may be a " \
    "link)"
#define SHOWN 5 /* names or lines listed; the others are only counted */

#define MAGIC "GGUFSHS7"
enum { NAME_ROOM = 17, HEAD = 40, RECORD_HEAD = 56, SLOT_HEAD = 16 };

/* ---- the directory ---- */

/* Sets *ret to the state directory, or to NULL if there is none. Returns 0 or -ENOMEM. */
static int find_home(const char *given, char **ret)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    const char *at = given                      ? given
                     : state && state[0] == '/' ? state
                     : geteuid() == 0           ? "/var/lib"
                     : home && home[0] == '/'   ? home
                                                : NULL;
    if (at && asprintf(ret, "%s%s", at, at == home ? "/.local/state" : "") < 0)
        *ret = NULL;
    return at && !*ret ? -ENOMEM : 0;
}

int history_open(struct history *h, const struct sys *sys, const char *home, const char *model,
                 size_t keep, struct err *e)
{
    *h = (struct history){.sys = sys, .keep = keep};
    h->model = strdup(model);
    return h->model && find_home(home, &h->home) == 0 ? 0 : err_set(e, -ENOMEM, "no memory");
}

static int failed(const struct history *h, int r, const char *what, struct err *e)
{
    char shown[SHOW_MAX];
    return err_sys(e, r, "%s/ggufs/history: %s", show(shown, h->home, strlen(h->home)), what);
}

/* Opens the state directory; if `make`, creates it and those above it. */
static int open_home(const struct history *h, bool make)
{
    int dir = open(h->home, FOLDER_FLAGS);
    if (dir < 0 && errno == ENOENT && make) {
        char *path = strdupa(h->home);
        for (char *end = path; end; end = strchr(end + 1, '/')) {
            *end = '\0';
            (void)mkdir(path, 0700);
            *end = '/';
        }
        (void)mkdir(path, 0700);
        dir = open(path, FOLDER_FLAGS);
    }
    return dir < 0 ? -errno : dir;
}

/* H4. Opens `name` in `dir`, and closes `dir`. others: rights that other users must not have. */
static int step(const struct sys *sys, int dir, const char *name, bool make, mode_t others)
{
    struct stat st;
    int fd = sys->openat(sys, dir, name, FOLDER_FLAGS | O_NOFOLLOW, 0), r = 0;
    if (fd == -ENOENT && make) {
        r = mkdirat(dir, name, 0700) < 0 ? -errno : sys_sync_dir(sys, dir);
        fd = r < 0 && r != -EEXIST ? r : sys->openat(sys, dir, name, FOLDER_FLAGS | O_NOFOLLOW, 0);
    }
    sys_close(sys, &dir);
    r = fd < 0 ? fd : sys->fstat(sys, fd, &st);
    if (r == 0 && (st.st_uid != geteuid() || st.st_mode & others))
        r = -EPERM;
    if (r < 0)
        sys_close(sys, &fd);
    return r == -ELOOP || r == -ENOTDIR ? -EPERM : r < 0 ? r : fd;
}

/* Returns a descriptor of the directory, -ENOENT (it must not be created: no message) or another
 * -errno. */
static int open_folder(const struct history *h, bool make, struct err *e)
{
    if (!h->home)
        return err_set(e, -ENXIO, "neither XDG_STATE_HOME nor HOME is set");
    int dir = open_home(h, make);
    dir = dir < 0 ? dir : step(h->sys, dir, "ggufs", make, 022);
    dir = dir < 0 ? dir : step(h->sys, dir, "history", make, 077);
    if (dir >= 0 || (dir == -ENOENT && !make))
        return dir;
    return failed(h, dir, dir == -EPERM ? NOT_OURS : "cannot open it", e);
}

/* H5. Opens and locks the directory. Returns its descriptor, or -EAGAIN or another -errno. */
static int lock_folder(const struct history *h, bool make, struct err *e)
{
    int dir = open_folder(h, make, e), r = dir;
    for (unsigned ms = 0; dir >= 0; ms += TICK_MS) {
        r = h->sys->flock(h->sys, dir, LOCK_EX | LOCK_NB);
        if (r == 0)
            return dir;
        if ((r != -EWOULDBLOCK && r != -EINTR) || ms >= HISTORY_PATIENCE)
            break;
        when_sleep(TICK_MS);
    }
    if (dir >= 0)
        (void)failed(h, r, r == -EAGAIN ? "another process has locked it" : "cannot lock it", e);
    sys_close(h->sys, &dir);
    return r;
}

/* ---- the file, parsed ---- */

/* Of OLD, bytes are a key, its type and its value; of ADDED, a key; of the others, a line of text. */
enum kind { OLD = 1, ADDED = 2, KEYS_LINE = 4, TENSORS_LINE = 8 };

struct slot {
    uint32_t kind, place, key_len, n;
    const uint8_t *bytes;
};

struct record {
    uint64_t state, restored, before, after;
    int64_t time;
    size_t at, end; /* its range in the file */
};

struct records {
    struct buf bytes; /* owned: the file's content */
    uint64_t dropped, forgotten;
    struct record *rec; /* owned; oldest first */
    size_t n, cap;
    size_t end; /* the end of the last record; what follows is torn or damaged */
};

#define RECORDS_INIT ((struct records){0})

static void records_free(struct records *f)
{
    buf_free(&f->bytes);
    free(f->rec);
    *f = RECORDS_INIT;
}

static void forget(struct history *h)
{
    if (h->known)
        records_free(h->known);
    free(h->known);
    h->known = NULL;
}

void history_close(struct history *h)
{
    forget(h);
    free(h->home);
    free(h->model);
    *h = HISTORY_INIT;
}

/* Parses the record at f->end. Returns 1, 0 if there is none, or -ENOMEM. */
static int parse_record(struct records *f)
{
    const uint8_t *p = f->bytes.data + f->end;
    const size_t left = f->bytes.len - f->end;
    const uint64_t n = left < RECORD_HEAD ? 0 : get_u64(p + 8, false);
    if (n < RECORD_HEAD || n > left || get_u64(p, false) != xxh64(0, p + 8, (size_t)n - 8))
        return 0;
    const struct record r = {
        get_u64(p + 16, false), get_u64(p + 24, false),          get_u64(p + 40, false),
        get_u64(p + 48, false), (int64_t)get_u64(p + 32, false), f->end,
        f->end + (size_t)n};
    if (r.state < (f->n ? f->rec[f->n - 1].state : f->dropped) || r.state == UINT64_MAX)
        return 0;
    if (array_grow(&f->rec, &f->cap, f->n, sizeof(r)) < 0)
        return -ENOMEM;
    f->rec[f->n++] = r;
    f->end = r.end;
    return 1;
}

/* Parses f->bytes. Returns 0 or -ENOMEM. */
static int parse_records(struct records *f, const char *model)
{
    const uint8_t *p = f->bytes.data;
    const size_t path = strlen(model), head = HEAD + path;
    if (f->bytes.len < head || memcmp(p, MAGIC, 8) != 0 ||
        get_u64(p + 8, false) != xxh64(0, p + 16, head - 16) || get_u64(p + 32, false) != path ||
        memcmp(p + HEAD, model, path) != 0)
        return 0;
    f->dropped = get_u64(p + 16, false);
    f->forgotten = get_u64(p + 24, false);
    f->end = head;
    int r;
    while ((r = parse_record(f)) > 0)
        ;
    return r;
}

/* Gets a record's next slot of these kinds. *at: where it is, 0 for the first one. Returns false at
 * the end, or if the rest is no slot. */
static bool next_slot(const struct records *f, const struct record *r, size_t *at, unsigned kinds,
                      struct slot *s)
{
    *at = *at ? *at : r->at + RECORD_HEAD;
    for (size_t left; left = r->end - *at, left >= SLOT_HEAD;) {
        const uint8_t *p = f->bytes.data + *at;
        *s = (struct slot){get_u32(p, false), get_u32(p + 4, false), get_u32(p + 8, false),
                           get_u32(p + 12, false), p + SLOT_HEAD};
        if (s->n > left - SLOT_HEAD || s->key_len > s->n)
            return false;
        *at += SLOT_HEAD + s->n;
        if (s->kind & kinds)
            return true;
    }
    return false;
}

static const char *file_name(const struct history *h, char dst[NAME_ROOM])
{
    (void)snprintf(dst, NAME_ROOM, "%016" PRIx64, xxh64(0, h->model, strlen(h->model)));
    return dst;
}

/* H4. Opens, reads and parses the file. Returns 0, also if there is none, or -EPERM or -errno. */
static int load(const struct history *h, int dir, struct records *f, struct err *e)
{
    const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
    char name[NAME_ROOM];
    struct stat st;
    int fd = h->sys->openat(h->sys, dir, file_name(h, name), flags, 0);
    int r = fd < 0 ? fd : h->sys->fstat(h->sys, fd, &st);
    if (r == -ELOOP || r == -EISDIR || r == -ENXIO ||
        (r == 0 && (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_nlink > 1)))
        r = -EPERM;
    if (r == 0 && (uint64_t)st.st_size <= HISTORY_BYTES + GGUF_MAX_HEADER) {
        (void)sys_sync(h->sys, fd); /* H2 */
        (void)buf_extend(&f->bytes, (size_t)st.st_size);
        r = buf_error(&f->bytes);
        if (r == 0)
            r = sys_read_all(h->sys, fd, f->bytes.data, (size_t)st.st_size, 0);
    }
    if (r == 0)
        r = parse_records(f, h->model);
    const bool none = fd == -ENOENT;
    sys_close(h->sys, &fd);
    return none || r == 0 ? 0 : failed(h, r, r == -EPERM ? NOT_OURS : "cannot read its file", e);
}

/* Returns an id that changes with the file, or one that no file has. */
static struct edit_id file_id(const struct history *h, int dir)
{
    char name[NAME_ROOM];
    struct stat st;
    const int r = h->sys->fstatat(h->sys, dir, file_name(h, name), &st);
    return r < 0 ? (struct edit_id){0} : edit_id_of(&st);
}

/* Gets the places of the records if they are known, which they are not any more then. */
static bool recall(struct history *h, int dir, struct records *f)
{
    const struct edit_id id = file_id(h, dir);
    const bool is = h->known && edit_id_equal(&id, &h->left);
    if (is) {
        *f = *h->known;
        *h->known = RECORDS_INIT;
    }
    forget(h);
    return is;
}

/* Keeps the places of the records and of a new one. Takes ownership of *f. */
static void remember(struct history *h, int dir, struct records *f, const struct record *more)
{
    if (array_grow(&f->rec, &f->cap, f->n, sizeof(*more)) < 0 ||
        !(h->known = malloc(sizeof(*h->known))))
        return;
    f->rec[f->n++] = *more;
    f->end = more->end;
    buf_free(&f->bytes);
    *h->known = *f;
    *f = RECORDS_INIT;
    h->left = file_id(h, dir);
}

/* Loads the file for reading; if the directory does not exist, there is no file. */
static int load_to_read(const struct history *h, struct records *f, struct err *e)
{
    int dir = open_folder(h, false, e);
    if (dir < 0)
        return dir == -ENOENT ? 0 : dir;
    int r = load(h, dir, f, e);
    sys_close(h->sys, &dir);
    return r;
}

/* ---- the file, written ---- */

/*
 * H1. Puts a file of the records [from, to) and of a new one, `more`, in the place of the old file.
 * Without `more`, all records before `from` are forgotten.
 */
static int replace_file(const struct history *h, int dir, const struct records *f, size_t from,
                        size_t to, const struct buf *more, struct err *e)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    const struct sys *sys = h->sys;
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    char name[NAME_ROOM];
    const uint64_t dropped = from ? f->rec[from - 1].state : f->dropped;
    buf_str(&b, MAGIC);
    buf_zero(&b, 8);
    buf_uint(&b, dropped, 8, false);
    buf_uint(&b, more ? f->forgotten : dropped, 8, false);
    buf_uint(&b, strlen(h->model), 8, false);
    buf_str(&b, h->model);
    if (!buf_error(&b))
        put_u64(b.data + 8, xxh64(0, b.data + 16, b.len - 16), false);
    if (from < to)
        buf_add(&b, f->bytes.data + f->rec[from].at, f->rec[to - 1].end - f->rec[from].at);
    if (more)
        buf_add(&b, more->data, more->len);
    (void)sys->unlinkat(sys, dir, NEW_NAME); /* left by a process that has ended */
    int fd = buf_error(&b) ? -ENOMEM : sys->openat(sys, dir, NEW_NAME, flags, 0600);
    int r = fd < 0 ? fd : sys_write_all(sys, fd, b.data, b.len, 0);
    if (r == 0)
        r = sys_sync(sys, fd);
    if (r == 0)
        r = sys->rename(sys, dir, NEW_NAME, file_name(h, name), 0);
    if (r < 0 && fd >= 0)
        (void)sys->unlinkat(sys, dir, NEW_NAME);
    sys_close(sys, &fd);
    if (r == 0)
        r = sys_sync_dir(sys, dir);
    return r < 0 ? failed(h, r, "cannot write its file", e) : 0;
}

int history_clear(const struct history *h, struct err *e)
{
    CLEANUP(records_free) struct records f = RECORDS_INIT;
    int dir = lock_folder(h, false, e);
    if (dir < 0)
        return dir == -ENOENT ? 0 : dir;
    int r = load(h, dir, &f, e);
    if (r == 0 && f.n)
        r = replace_file(h, dir, &f, f.n, f.n, NULL, e);
    sys_close(h->sys, &dir);
    return r;
}

/* ---- recording edits ---- */

static void put_old_slot(struct buf *b, enum kind kind, uint32_t place, const void *bytes, size_t n,
                         size_t key_len)
{
    buf_uint(b, kind, 4, false);
    buf_uint(b, place, 4, false);
    buf_uint(b, key_len, 4, false);
    buf_uint(b, n, 4, false);
    buf_add(b, bytes, n);
}

/* Names of which the first few are shown. */
struct list {
    struct buf names;
    size_t n;
};

static void names_add(struct list *l, const void *name, size_t n)
{
    char shown[SHOW_MAX];
    if (l->n++ < SHOWN)
        buf_printf(&l->names, "%s%s", l->n > 1 ? ", " : "", show(shown, name, n));
}

/* Adds what the list says to a line, and frees it. */
static void list_end(struct list *l, const char *what, struct buf *line)
{
    if (l->n)
        buf_printf(line, "%s%s%.*s", line->len ? "; " : "", what, (int)l->names.len,
                   buf_text(&l->names));
    if (l->n > SHOWN)
        buf_printf(line, " and %zu more", l->n - SHOWN);
    buf_free(&l->names);
}

/* Adds an old slot for each key of the base that the edit touches, in order, and one for each new
 * name; and a line about them. touched: for each key of the base. */
static void put_keys(struct buf *b, const struct history_edit *x, uint8_t *touched)
{
    CLEANUP(buf_free) struct buf line = BUF_INIT;
    struct list changed = {.n = 0}, added = {.n = 0}, removed = {.n = 0};
    const struct gguf *g = x->change->on.g;
    uint32_t place = 0;
    for (size_t i = 0; i < x->change->n; i++) {
        const struct edit_slot *s = x->change->slot[i];
        if (s->kind == EDIT_KEY && s->old != EDIT_NONE)
            touched[s->old] = 1;
        if (s->kind != EDIT_KEY || s->gone || gguf_find_key(g, s->name, s->name_len) != EDIT_NONE)
            continue;
        put_old_slot(b, ADDED, 0, s->name, s->name_len, s->name_len);
        names_add(&added, s->name, s->name_len);
    }
    for (uint32_t i = 0; i < g->n_kv; place += !edit_key_is_own(g, i), i++) {
        const struct gguf_kv *kv = &g->kv[i];
        const char *key = gguf_key(g, kv);
        const uint32_t now = touched[i] ? gguf_find_key(x->after, key, kv->key_len) : 0;
        if (!touched[i])
            continue;
        put_old_slot(b, OLD, place, key, (size_t)(kv->end - kv->key_off), kv->key_len);
        if (now == EDIT_NONE || !edit_same_entry(g, i, x->after, now))
            names_add(now == EDIT_NONE ? &removed : &changed, key, kv->key_len);
    }
    list_end(&changed, "changed ", &line);
    list_end(&added, "added ", &line);
    list_end(&removed, "removed ", &line);
    if (line.len == 0 && b->len > RECORD_HEAD)
        buf_str(&line, "changed the order of the keys");
    if (line.len)
        put_old_slot(b, KEYS_LINE, 0, line.data, line.len, 0);
}

/* Adds a line about the tensors that the edit touches. */
static void put_tensors(struct buf *b, const struct history_edit *x)
{
    CLEANUP(buf_free) struct buf line = BUF_INIT, text = BUF_INIT;
    struct list tensors = {.n = 0};
    for (size_t i = 0; i < x->change->n; i++) {
        const struct edit_slot *s = x->change->slot[i];
        if (s->kind != EDIT_TENSOR || (s->gone && s->old == EDIT_NONE))
            continue;
        text.len = 0;
        edit_describe(x->change, s, &text);
        names_add(&tensors, text.data, text.len);
    }
    list_end(&tensors, "", &line);
    if (line.len)
        put_old_slot(b, TENSORS_LINE, 0, line.data, line.len, 0);
}

/* H1. Returns the number of records whose edits were done, given the id of the present keys. */
static size_t done_of(const struct records *f, uint64_t id)
{
    const struct record *last = f->n ? &f->rec[f->n - 1] : NULL;
    return f->n - (last && last->before == id && last->after != id);
}

/* Returns true if an edit joins the state of this record. */
static bool joins(const struct history *h, const struct record *last, const struct history_edit *x,
                  uint64_t before)
{
    const int64_t end = h->ended > last->time ? h->ended : last->time;
    return last->after == before && !last->restored && !x->restored && x->now >= end &&
           x->now - end < HISTORY_JOIN;
}

/* H3. Returns how many of the first n records to drop when one of this size follows them: a few more
 * than necessary, because the others are written anew. */
static size_t surplus(const struct history *h, const struct records *f, size_t n, size_t more)
{
    const uint64_t end = n ? f->rec[n - 1].end + more : 0;
    const bool full = n && (n >= h->keep || end - f->rec[0].at > HISTORY_BYTES);
    const size_t keep = h->keep - h->keep / 100 * 10;
    size_t ret = 0;
    while (full && ret < n && (n - ret >= keep || end - f->rec[ret].at > HISTORY_BYTES / 10 * 9))
        ret++;
    return ret;
}

/* Writes a record behind the others, synced if `first` (H1). If that fails, what was written of it
 * goes, so that it neither fills the disk nor looks like damage; if it stays, it is not used. */
static int append(const struct history *h, int dir, uint64_t at, const struct buf *b, bool first,
                  struct err *e)
{
    char name[NAME_ROOM];
    int fd = h->sys->openat(h->sys, dir, file_name(h, name), O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0);
    int r = fd < 0 ? fd : sys_write_all(h->sys, fd, b->data, b->len, at);
    if (r == 0 && first)
        r = sys_sync(h->sys, fd);
    if (r < 0 && fd >= 0)
        (void)h->sys->ftruncate(h->sys, fd, at);
    sys_close(h->sys, &fd);
    return r < 0 ? failed(h, r, "cannot write its file", e) : 0;
}

/* Completes the record in b and writes it, in place of one whose edit was never done. dir: the
 * locked directory. */
static int record(struct history *h, int dir, const struct history_edit *x, struct buf *b,
                  struct err *e)
{
    CLEANUP(records_free) struct records f = RECORDS_INIT;
    const uint64_t before = edit_keys_id(x->change->on.g), after = edit_keys_id(x->after);
    const bool known = recall(h, dir, &f);
    int r = known ? 0 : load(h, dir, &f, e);
    if (r < 0)
        return r;
    const size_t n = done_of(&f, before);
    const struct record *last = n ? &f.rec[n - 1] : NULL;
    const bool joined = last && joins(h, last, x, before);
    uint8_t *p = b->data;
    put_u64(p + 8, b->len, false);
    const struct record new = {(last ? last->state : f.dropped) + !joined,
                               x->restored,
                               before,
                               after,
                               x->now,
                               f.end,
                               f.end + b->len};
    put_u64(p + 16, new.state, false);
    put_u64(p + 24, x->restored, false);
    put_u64(p + 32, (uint64_t)x->now, false);
    put_u64(p + 40, before, false);
    put_u64(p + 48, after, false);
    put_u64(p, xxh64(0, p + 8, b->len - 8), false);
    const size_t drop = surplus(h, &f, n, b->len);
    if (n && n == f.n && !drop && (known || f.end == f.bytes.len)) {
        r = append(h, dir, f.end, b, !x->done, e);
        if (r == 0)
            remember(h, dir, &f, &new);
        return r;
    }
    return known ? record(h, dir, x, b, e) /* with the bytes */
                 : replace_file(h, dir, &f, drop, n, b, e);
}

int history_append(struct history *h, const struct history_edit *edit, struct err *e)
{
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    const struct gguf *g = edit->change->on.g;
    const bool keys = edit_keys_id(g) != edit_keys_id(edit->after);
    if (keys == edit->done)
        return 0;
    uint8_t *touched = calloc((size_t)g->n_kv + 1, 1);
    buf_zero(&b, RECORD_HEAD);
    if (touched && keys)
        put_keys(&b, edit, touched);
    put_tensors(&b, edit);
    free(touched);
    if (!touched || buf_error(&b))
        return err_set(e, -ENOMEM, "no memory");
    int dir = b.len == RECORD_HEAD ? 0 : lock_folder(h, true, e);
    if (dir < 0 || b.len == RECORD_HEAD)
        return dir;
    int r = record(h, dir, edit, &b, e);
    sys_close(h->sys, &dir);
    return r;
}

/* ---- the states ---- */

/* Writes what records [from, to) say in their lines of a kind. Returns false if that is nothing. */
static bool put_lines(const struct records *f, size_t from, size_t to, enum kind kind,
                      const char *what, struct buf *out)
{
    struct slot s, last = {0};
    size_t n = 0;
    for (size_t i = from; i < to; i++)
        for (size_t at = 0; next_slot(f, &f->rec[i], &at, kind, &s);) {
            if (n && s.n == last.n && memcmp(s.bytes, last.bytes, s.n) == 0)
                continue;
            last = s;
            if (n++ < SHOWN) {
                buf_str(out, n == 1 ? what : "; ");
                show_all(out, s.bytes, s.n);
            }
        }
    if (n > SHOWN)
        buf_printf(out, " and %zu more edits", n - SHOWN);
    return n > 0;
}

/* Returns the index of the oldest of the first n records that can be taken back. */
static size_t fitting(const struct records *f, size_t n, uint64_t id)
{
    while (n > 0 && f->rec[n - 1].after == id)
        id = f->rec[--n].before;
    return n;
}

static void put_state(const struct records *f, size_t from, size_t to, bool fits, struct buf *out)
{
    const struct record *r = &f->rec[from];
    char text[64] = "";
    const time_t t = (time_t)r->time;
    struct tm tm;
    if (localtime_r(&t, &tm))
        (void)strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm);
    buf_printf(out, "%llu\t%s\t", (unsigned long long)r->state, text);
    if (r->restored)
        buf_printf(out, "undo, back to %llu: ", (unsigned long long)r->restored);
    const bool keys = put_lines(f, from, to, KEYS_LINE, "", out);
    if (put_lines(f, from, to, TENSORS_LINE, keys ? "; " : "", out))
        buf_str(out, "; cannot be undone");
    if (r->state == f->dropped)
        buf_str(out, " (its first edits were dropped)");
    if (!fits)
        buf_str(out, " (cannot be restored: the keys were changed without a record since)");
    buf_char(out, '\n');
}

int history_text(const struct history *h, uint64_t id, struct buf *out, struct err *e)
{
    CLEANUP(records_free) struct records f = RECORDS_INIT;
    int r = load_to_read(h, &f, e);
    if (r < 0)
        return r;
    const size_t n = done_of(&f, id), fit = fitting(&f, n, id);
    for (size_t i = 0, next; i < n; i = next) {
        for (next = i + 1; next < n && f.rec[next].state == f.rec[i].state;)
            next++;
        put_state(&f, i, next, i >= fit, out);
    }
    if (f.bytes.len > f.end && fit == n)
        buf_str(out, "-\tcannot be restored: the rest of the history is damaged\n");
    return buf_error(out);
}

/* Makes the header of the keys before a record: those of `now` that it does not name, and the old
 * slots in their places. Returns 0 or -ENOMEM. */
static int put_before(const struct records *f, const struct record *r, const struct gguf *now,
                      struct buf *b)
{
    uint8_t *named = calloc((size_t)now->n_kv + 1, 1);
    struct slot s;
    uint64_t n = 0;
    size_t at = 0;
    while (named && next_slot(f, r, &at, OLD | ADDED, &s)) {
        const uint32_t i = gguf_find_key(now, s.bytes, s.key_len);
        named[i == EDIT_NONE ? now->n_kv : i] = 1;
    }
    buf_add(b, now->head, 8); /* magic and version */
    buf_zero(b, 16);          /* numbers of tensors and of keys */
    bool old = next_slot(f, r, (at = 0, &at), OLD, &s);
    for (uint32_t i = 0; named && (old || i < now->n_kv);) {
        if (old && (s.place <= n || i == now->n_kv)) {
            buf_uint(b, s.key_len, 8, now->fmt.big);
            buf_add(b, s.bytes, s.n);
            old = next_slot(f, r, &at, OLD, &s);
            n++;
        } else if (named[i] || edit_key_is_own(now, i)) {
            i++;
        } else {
            buf_add(b, now->head + now->kv[i].off, (size_t)(now->kv[i].end - now->kv[i].off));
            i++;
            n++;
        }
    }
    free(named);
    if (!named || buf_error(b))
        return -ENOMEM;
    put_u64(b->data + 16, n, now->fmt.big);
    return 0;
}

/* Takes a record back. now: the keys after it. Returns 0, -EBADMSG or -ENOMEM. */
static int take_record_back(const struct records *f, const struct record *r, const struct gguf *now,
                            struct gguf **ret)
{
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    struct gguf *g = NULL;
    int done = put_before(f, r, now, &b);
    const struct source src = source_mem(b.data, b.len);
    if (done == 0)
        done = gguf_parse_head(&src, b.data, b.len, now, &g, NULL);
    if (done == 0)
        (void)buf_steal(&b);
    if (done == 0 && g->head_len == src.size && edit_keys_id(g) == r->before) {
        *ret = g;
        return 0;
    }
    gguf_free(g);
    return done == -ENOMEM ? done : -EBADMSG;
}

/* Says why there is no state. number 0: there is nothing to undo. */
static int no_state(const struct records *f, uint64_t number, struct err *e)
{
    struct slot s;
    bool tensors = false;
    if (number)
        return err_set(e, -ENOENT, "there is no state %llu%s", (unsigned long long)number,
                       number <= f->forgotten ? " any more: it was forgotten (--history=clear)"
                       : number <= f->dropped
                           ? " any more: it was dropped to stay within the bounds"
                           : " (ggufs --history shows those that exist)");
    for (size_t i = 0, at = 0; i < f->n; i++, at = 0)
        tensors |= next_slot(f, &f->rec[i], &at, TENSORS_LINE, &s);
    return err_set(e, -ENOENT, "there is nothing to undo: %s",
                   tensors ? "edits of tensors cannot be undone (ggufs --history shows them)"
                   : f->n  ? "the keys are as they were before the recorded edits"
                   : f->dropped > f->forgotten
                       ? "older edits were dropped to stay within the bounds"
                   : f->forgotten ? "the history was cleared, and no edit has been recorded since"
                                  : "no edit of this model is recorded");
}

/* Finds a state's first record, or that of the last state whose keys differ from the present ones.
 * Returns 0 or -ENOENT. */
static int find_state(const struct records *f, size_t n, uint64_t number, uint64_t id, size_t *ret,
                      struct err *e)
{
    for (size_t i = n; i > 0; i--) {
        const struct record *r = &f->rec[i - 1];
        if (i > 1 && f->rec[i - 2].state == r->state)
            continue;
        if (number ? r->state == number : r->before != id) {
            *ret = i - 1;
            return 0;
        }
    }
    return no_state(f, number, e);
}

/* Takes the records from number `to` on back. Returns 0, -EBADMSG or -ENOMEM. */
static int restore_state(const struct records *f, size_t n, size_t to, const struct gguf *now,
                         struct history_pick *ret, struct err *e)
{
    const struct record *first = &f->rec[to];
    for (size_t i = n; i > to; i--) {
        struct gguf *before;
        int r = take_record_back(f, &f->rec[i - 1], ret->keys ? ret->keys : now, &before);
        if (r < 0)
            return err_sys(e, r, "state %llu cannot be restored", (unsigned long long)first->state);
        gguf_free(ret->keys);
        ret->keys = before;
    }
    const bool same = first->before == edit_keys_id(now);
    ret->state = first->state;
    buf_printf(&ret->said, "%s state %llu", same ? "the keys are already those of" : "back to",
               (unsigned long long)first->state);
    (void)put_lines(f, to, n, TENSORS_LINE, "; not restored: ", &ret->said);
    if (!same)
        (void)put_lines(f, to, n, KEYS_LINE, "; taken back: ", &ret->said);
    if (first->state == f->dropped)
        buf_str(&ret->said, "; its first edits were dropped to stay within the bounds");
    return buf_error(&ret->said);
}

int history_pick(const struct history *h, uint64_t number, const struct gguf *now,
                 struct history_pick *ret, struct err *e)
{
    CLEANUP(records_free) struct records f = RECORDS_INIT;
    const uint64_t id = edit_keys_id(now);
    size_t to = 0;
    *ret = HISTORY_PICK_INIT;
    int r = load_to_read(h, &f, e);
    const size_t n = done_of(&f, id), fit = fitting(&f, n, id);
    if (r == 0)
        r = find_state(&f, n, number, id, &to, e);
    if (r == 0 && to < fit && fit < n)
        r = err_set(
            e, -ESTALE,
            "state %llu cannot be restored: the keys were changed after it without a record",
            (unsigned long long)f.rec[to].state);
    else if (r == 0 && to < fit)
        r = err_set(e, -ESTALE, "the keys are not those that the last recorded edit left: %s",
                    f.bytes.len > f.end ? "the rest of the history is damaged"
                                        : "another program changed or replaced the file, or it was "
                                          "edited without a history");
    if (r == 0)
        r = restore_state(&f, n, to, now, ret, e);
    if (r < 0)
        history_pick_free(ret);
    return r;
}

void history_pick_free(struct history_pick *p)
{
    gguf_free(p->keys);
    buf_free(&p->said);
    *p = HISTORY_PICK_INIT;
}

/* SPDX-License-Identifier: MIT */
/* The redo journal: see journal.h, whose steps and invariants are named here. */
#include "edit/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "edit/attr.h"

#define MAGIC "GGUFSJN1"
#define FIXED 40 /* bytes before the name */
#define SUM 8
/* Bytes of a journal of the largest header, with its sums and some more. */
#define MOST (GGUF_MAX_HEADER / 64 * 65 + 4096)
/* How often a journal is looked at that does not fit while another process edits the model. */
#define LOOKS 100

static const uint64_t sum_key[2] = {0x6a6f75726e616c20, 0x6f66206767756673}; /* any, but fixed */

static uint64_t sum_of(const void *p, size_t n)
{
    return siphash(sum_key, p, n);
}

static uint64_t sectors(uint64_t n)
{
    return (n + JOURNAL_SECTOR - 1) / JOURNAL_SECTOR;
}

/* Bytes of sector i of a range of n bytes. */
static size_t sector_len(uint64_t n, uint64_t i)
{
    return (size_t)min_u64(JOURNAL_SECTOR, n - i * JOURNAL_SECTOR);
}

void journal_free(struct journal *j)
{
    buf_free(&j->raw);
    patch_free(&j->patch);
    *j = JOURNAL_INIT;
}

void journal_range(const uint8_t *old, const uint8_t *new, uint64_t n, uint64_t *lo, uint64_t *len)
{
    uint64_t first = 0, last = n;
    while (first < n && old[first] == new[first])
        first++;
    while (last > first && old[last - 1] == new[last - 1])
        last--;
    *lo = first / JOURNAL_SECTOR * JOURNAL_SECTOR;
    *len = first == last ? 0 : min_u64(sectors(last) * JOURNAL_SECTOR, n) - *lo;
}

/* Writing. */

static void encode(struct buf *b, const struct edit_file *f, uint64_t lo, const uint8_t *old,
                   uint64_t n)
{
    size_t name_len = strlen(f->name);
    buf_str(b, MAGIC);
    buf_uint(b, JOURNAL_SECTOR, 4, false);
    buf_uint(b, name_len, 4, false);
    buf_uint(b, f->id.size, 8, false);
    buf_uint(b, lo, 8, false);
    buf_uint(b, n, 8, false);
    buf_add(b, f->name, name_len);
    for (uint64_t i = 0; i < sectors(n); i++)
        buf_uint(b, sum_of(old + i * JOURNAL_SECTOR, sector_len(n, i)), SUM, false);
}

/*
 * The model's owner may read and write the journal, others may read it if they may read the model. Bits say
 * that only if neither has an ACL (the journal may inherit one), and those of a group only if the journal has
 * this group. Else the journal stays 0600.
 */
static void give_to_owner(const struct edit_file *f, int fd)
{
    struct stat st;
    if (f->sys->fstat(f->sys, f->fd, &st) < 0)
        return;
    mode_t readers = st.st_mode & 0044;
    bool given = f->sys->fchown(f->sys, fd, st.st_uid, st.st_gid) == 0;
    if ((given || readers == 0044) && attr_no_acl(f->sys, f->fd) && attr_drop_acl(f->sys, fd))
        (void)f->sys->fchmod(f->sys, fd, 0600 | readers);
}

/*
 * Write the part before the new bytes, the new bytes (without copying them), and the sum of both.
 */
static int write_synced(const struct edit_file *f, int fd, const struct buf *b, const uint8_t *new,
                        uint64_t n)
{
    uint8_t sum[SUM];
    put_uint(sum, siphash_two(sum_key, b->data, b->len, new, (size_t)n), SUM, false);
    int r = sys_write_all(f->sys, fd, b->data, b->len, 0);
    if (r == 0)
        r = sys_write_all(f->sys, fd, new, (size_t)n, b->len);
    if (r == 0)
        r = sys_write_all(f->sys, fd, sum, SUM, b->len + n);
    if (r == 0)
        r = sys_sync(f->sys, fd);
    return r < 0 ? r : sys_sync_dir(f->sys, f->dir);
}

int journal_create(const struct edit_file *f, struct err *e)
{
    char name[NAME_MAX + 1];
    edit_side_name(name, f->name, EDIT_JOURNAL_SUFFIX);
    int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd = f->sys->openat(f->sys, f->dir, name, flags, 0600);
    if (fd < 0)
        return err_set(e, fd, "cannot create the journal: %s", strerror(-fd));
    give_to_owner(f, fd);
    return fd;
}

int journal_adopt(const struct edit_file *f, struct log *s)
{
    char name[NAME_MAX + 1];
    uint64_t end;
    if (!log_close(s, &end))
        return -EBUSY;
    int fd = fcntl(s->src.fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    edit_side_name(name, f->name, EDIT_JOURNAL_SUFFIX);
    int r = f->sys->link(f->sys, fd, f->dir, name);
    if (r < 0) {
        sys_close(f->sys, &fd);
        return r;
    }
    give_to_owner(f, fd);
    return fd;
}

int journal_write(const struct edit_file *f, uint64_t lo, const uint8_t *old, const uint8_t *new,
                  uint64_t n, struct err *e)
{
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    encode(&b, f, lo, old, n);
    if (buf_error(&b))
        return err_set(e, buf_error(&b), "no memory for the journal");
    int fd = journal_create(f, e);
    if (fd < 0)
        return fd;
    int r = write_synced(f, fd, &b, new, n);
    sys_close(f->sys, &fd);
    if (r == 0)
        return 0;
    journal_remove(f);
    return err_set(e, r, "cannot write the journal: %s", strerror(-r));
}

void journal_remove(const struct edit_file *f)
{
    char name[NAME_MAX + 1];
    edit_side_name(name, f->name, EDIT_JOURNAL_SUFFIX);
    if (f->sys->unlinkat(f->sys, f->dir, name) < 0)
        (void)f->sys->unlinkat(f->sys, f->dir, name);
    (void)sys_sync_dir(f->sys, f->dir);
}

/* Reading. */

static int foreign(struct err *e, const char *why)
{
    return err_set(e, -ESTALE,
                   "the journal beside the model does not fit it: %s; nothing was "
                   "changed (if the model is whole, remove the journal)",
                   why);
}

/* Another user's object has the journal's name, or the journal has other names (of a backup). */
static int planted(const char *name, const struct stat *st, const struct stat *model, struct err *e)
{
    char shown[SHOW_MAX];
    return err_set(e, -ESTALE, "%s beside the model %s", show(shown, name, strlen(name)),
                   edit_is_owned(st, model)
                       ? "has other hard links and is left alone (remove those, not the journal: "
                         "the model may be unfinished without it)"
                       : "belongs neither to the model's owner nor to this user; it is left alone "
                         "(if the model is whole, remove it to edit the model)");
}

/* The bytes of a journal that is ours. */
static int read_bytes(const struct edit_file *f, int fd, const struct stat *st,
                      const struct stat *model, struct buf *ret, struct err *e)
{
    if (st->st_size / 2 > model->st_size + 4096 || (uint64_t)st->st_size > min_u64(MOST, SIZE_MAX))
        return foreign(e, "it is too large");
    uint8_t *at = buf_extend(ret, (size_t)st->st_size);
    int r = buf_error(ret);
    if (r == 0 && at)
        r = sys_read_all(f->sys, fd, at, ret->len, 0);
    return r < 0 ? err_set(e, r, "cannot read the journal: %s", strerror(-r)) : 0;
}

/*
 * Open the journal. 0: done; 1: no journal exists, or its edit has just ended; 2: not ours, with a
 * line in *e. It is checked before it is opened, because opening a device already has effects.
 */
static int open_file(const struct edit_file *f, const struct stat *model, int *fd, struct stat *st,
                     struct err *e)
{
    char name[NAME_MAX + 1];
    edit_side_name(name, f->name, EDIT_JOURNAL_SUFFIX);
    int r = f->sys->fstatat(f->sys, f->dir, name, st);
    if (r == 0 && !edit_is_ours(st, model)) {
        (void)planted(name, st, model, e);
        return 2;
    }
    int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
    *fd = r < 0 ? r : f->sys->openat(f->sys, f->dir, name, flags, 0);
    if (*fd == -ENOENT)
        return 1;
    if (*fd < 0)
        return err_set(e, *fd, "cannot open the journal: %s", strerror(-*fd));
    r = f->sys->fstat(f->sys, *fd, st);
    if (r < 0)
        return err_set(e, r, "cannot stat the journal: %s", strerror(-r));
    if (st->st_nlink == 0)
        return 1;
    return edit_is_ours(st, model) ? 0 : planted(name, st, model, e);
}

/* True if the bytes are a whole journal. Its numbers then are consistent, but not yet trusted. */
static bool decode(struct journal *j)
{
    const uint8_t *p = j->raw.data;
    size_t n = j->raw.len;
    if (n < FIXED + SUM || memcmp(p, MAGIC, 8) != 0 || get_u32(p + 8, false) != JOURNAL_SECTOR)
        return false;
    if (get_u64(p + n - SUM, false) != sum_of(p, n - SUM))
        return false;
    uint64_t name_len = get_u32(p + 12, false);
    j->lo = get_u64(p + 24, false);
    j->n = get_u64(p + 32, false);
    if (j->n > n || FIXED + name_len + sectors(j->n) * SUM + j->n + SUM != n)
        return false;
    j->sums = p + FIXED + name_len;
    j->new = j->sums + sectors(j->n) * SUM;
    return true;
}

/* J3: does the journal describe this model? */
static int check_identity(const struct edit_file *f, const struct journal *j,
                          const struct stat *model, struct err *e)
{
    const uint8_t *p = j->raw.data;
    size_t name_len = get_u32(p + 12, false);
    uint64_t size = get_u64(p + 16, false);
    if (name_len != strlen(f->name) || memcmp(p + FIXED, f->name, name_len) != 0)
        return foreign(e, "it names another file");
    if (size != (uint64_t)model->st_size)
        return foreign(e, "it is for a file of another size");
    if (j->lo % JOURNAL_SECTOR || j->lo > size || j->n > size - j->lo)
        return foreign(e, "its range lies outside");
    return 0;
}

/* J3: is each sector of the model old or new? */
static int check_sectors(const struct edit_file *f, const struct journal *j,
                         enum journal_state *state, struct err *e)
{
    uint8_t now[JOURNAL_SECTOR];
    *state = JOURNAL_DONE;
    for (uint64_t i = 0; i < sectors(j->n); i++) {
        uint64_t at = i * JOURNAL_SECTOR;
        size_t n = sector_len(j->n, i);
        int r = sys_read_all(f->sys, f->fd, now, n, j->lo + at);
        if (r < 0)
            return err_set(e, r, "cannot read the model: %s", strerror(-r));
        if (memcmp(now, j->new + at, n) == 0)
            continue;
        if (sum_of(now, n) != get_u64(j->sums + i * SUM, false))
            return foreign(e, "a part of the header is neither the old nor the new one");
        *state = JOURNAL_REDO;
    }
    return 0;
}

static int judge(const struct edit_file *f, struct journal *j, const struct stat *model,
                 enum journal_state *state, struct err *e)
{
    *state = JOURNAL_VOID;
    if (!decode(j))
        return 0;
    int r = check_identity(f, j, model, e);
    return r < 0 ? r : check_sectors(f, j, state, e);
}

/* The same of a journal with bytes of tensors, open as *fd, which passes to it. */
static int judge_patch(const struct edit_file *f, int *fd, struct journal *j,
                       const struct stat *model, enum journal_state *state, struct err *e)
{
    bool whole, fits, done;
    const char *why;
    *state = JOURNAL_VOID;
    int r = patch_load(f->sys, *fd, f->name, (uint64_t)model->st_size, &j->patch, &whole, &why);
    if (r < 0)
        return err_set(e, r, "cannot read the journal: %s", strerror(-r));
    if (!whole)
        return 0;
    *fd = -1;
    if (why)
        return foreign(e, why);
    r = patch_compare(f, &j->patch, &whole, &fits, &done, e);
    if (r < 0 || !whole)
        return r;
    if (!fits)
        return foreign(e, "a part of the model is neither the old nor the new one");
    *state = done ? JOURNAL_DONE : JOURNAL_REDO;
    return 0;
}

static int load(const struct edit_file *f, int *fd, const struct stat *st, const struct stat *model,
                enum journal_state *state, struct journal *j, struct err *e)
{
    uint8_t magic[8] = {0};
    size_t n = (size_t)min_u64(sizeof(magic), (uint64_t)st->st_size);
    int r = sys_read_all(f->sys, *fd, magic, n, 0);
    if (r < 0)
        return err_set(e, r, "cannot read the journal: %s", strerror(-r));
    if (memcmp(magic, PATCH_MAGIC, 8) == 0)
        return judge_patch(f, fd, j, model, state, e);
    if (memcmp(magic, (uint8_t[8]){0}, 8) == 0) { /* its head, written last, is missing (J1) */
        *state = JOURNAL_VOID;
        return 0;
    }
    if (memcmp(magic, MAGIC, 7) == 0 && magic[7] > PATCH_MAGIC[7] && magic[7] <= '9')
        return foreign(e, "it was written by a later version of ggufs");
    r = read_bytes(f, *fd, st, model, &j->raw, e);
    return r < 0 ? r : judge(f, j, model, state, e);
}

bool journal_see(const struct edit_file *f, struct journal_seen *ret)
{
    char name[NAME_MAX + 1];
    struct stat st;
    *ret = (struct journal_seen){0};
    if (f->sys->fstat(f->sys, f->fd, &st) < 0)
        return false;
    ret->model = edit_id_of(&st);
    ret->gone = st.st_nlink == 0;
    edit_side_name(name, f->name, EDIT_JOURNAL_SUFFIX);
    int r = ret->gone ? -ENOENT : f->sys->fstatat(f->sys, f->dir, name, &st);
    if (r == 0)
        ret->journal = edit_id_of(&st);
    return r == 0 || r == -ENOENT;
}

bool journal_seen_equal(const struct journal_seen *a, const struct journal_seen *b)
{
    return a->gone == b->gone && edit_id_equal(&a->model, &b->model) &&
           edit_id_equal(&a->journal, &b->journal);
}

static int look(const struct edit_file *f, enum journal_state *state, struct journal *ret,
                struct journal_seen *seen, struct err *e)
{
    CLEANUP(journal_free) struct journal j = JOURNAL_INIT;
    struct stat model, st;
    int fd = -1;
    *state = JOURNAL_NONE;
    *seen = (struct journal_seen){0};
    int r = f->sys->fstat(f->sys, f->fd, &model);
    if (r < 0)
        return err_set(e, r, "cannot stat the model: %s", strerror(-r));
    seen->model = edit_id_of(&model);
    seen->gone = model.st_nlink == 0;
    r = seen->gone ? 1 : open_file(f, &model, &fd, &st, e);
    if (r == 2)
        *state = JOURNAL_PLANTED;
    if (r == 0 || r == 2)
        seen->journal = edit_id_of(&st);
    if (r == 0)
        r = load(f, &fd, &st, &model, state, &j, e);
    sys_close(f->sys, &fd);
    if (r != 0)
        return r < 0 ? r : 0;
    *ret = j;
    j = JOURNAL_INIT;
    return 0;
}

/* True if another process has the lock. A lock of f's own stays. */
static bool is_edited(const struct edit_file *f)
{
    if (f->locked)
        return false;
    int r = f->sys->flock(f->sys, f->fd, LOCK_SH | LOCK_NB);
    if (r == 0)
        (void)f->sys->flock(f->sys, f->fd, LOCK_UN);
    return r == -EWOULDBLOCK;
}

/* The editor of the model may have begun or ended an edit while its journal was read. */
int journal_load(const struct edit_file *f, enum journal_state *state, struct journal *ret,
                 struct journal_seen *seen, struct err *e)
{
    struct journal_seen before, now;
    struct err why = {0};
    int r = 0;
    for (int i = 0; i < LOOKS; i++) {
        why = (struct err){0};
        r = look(f, state, ret, &before, &why);
        if (r == 0 || (journal_see(f, &now) && journal_seen_equal(&before, &now) && !is_edited(f)))
            break;
    }
    if (seen)
        *seen = before;
    if (r == -ESTALE && is_edited(f))
        return err_set(e, -EBUSY, "another process edits the model just now; try again");
    if (why.code)
        (void)err_set(e, why.code, "%s", why.msg);
    return r;
}

/* Write what the journal holds. */
static int redo(const struct edit_file *f, const struct journal *j)
{
    if (j->patch.sys)
        return patch_redo(f, &j->patch);
    int r = sys_write_all(f->sys, f->fd, j->new, (size_t)j->n, j->lo);
    return r < 0 ? r : sys_sync(f->sys, f->fd);
}

int journal_settle(struct edit_file *f, enum journal_state *found, struct err *e)
{
    CLEANUP(journal_free) struct journal j = JOURNAL_INIT;
    int r = journal_load(f, found, &j, NULL, e);
    if (r == 0 && *found == JOURNAL_PLANTED)
        return -ESTALE;
    if (r < 0 || *found == JOURNAL_NONE)
        return r;
    if (*found == JOURNAL_REDO) {
        r = redo(f, &j);
        if (r < 0)
            return err_set(e, r, "cannot finish the interrupted edit: %s", strerror(-r));
    }
    journal_remove(f);
    return *found == JOURNAL_REDO ? edit_file_note(f, e) : 0;
}

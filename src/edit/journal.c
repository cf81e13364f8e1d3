/* SPDX-License-Identifier: MIT */
/* The redo journal: see journal.h, whose steps and invariants are cited here. */
#include "edit/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/lock.h"

#define MAGIC "GGUFSJN4"
/* Offsets of the numbers in the journal's head. */
enum { NAME_SUM = 8, BEFORE = 16, AFTER = 24, SUM = 32 };
#define ROW_HEAD 16 /* size of a row's numbers */
#define SECTORS ((size_t)(JOURNAL_ROW / JOURNAL_SECTOR))
/* How often to look whether another process has finished an edit. */
#define LOOK_MS 20

/* A row in memory. */
struct stretch {
    uint64_t at; /* its range of the model: n bytes, in this many sectors */
    size_t n, sectors;
    size_t len;                                          /* size in the journal */
    uint8_t *new;                                        /* the new bytes, behind the table */
    uint8_t bytes[ROW_HEAD + SECTORS * 8 + JOURNAL_ROW]; /* as in the journal */
    uint8_t now[JOURNAL_ROW];                            /* the bytes that the model has now */
};

void journal_free(struct journal *j)
{
    if (j->sys)
        sys_close(j->sys, &j->fd);
    free(j->row);
    *j = JOURNAL_INIT;
}

static void set_row(struct stretch *row, uint64_t at, size_t n)
{
    row->at = at;
    row->n = n;
    row->sectors = (n + JOURNAL_SECTOR - 1) / JOURNAL_SECTOR;
    row->new = row->bytes + ROW_HEAD + 8 * row->sectors;
    row->len = ROW_HEAD + 8 * row->sectors + n;
}

/* Returns the sum of the part of sector i within the first n bytes, or 0 if there is none. */
static uint64_t sector_sum(const uint8_t *bytes, size_t n, size_t i)
{
    size_t at = i * JOURNAL_SECTOR;
    return at < n ? xxh64(0, bytes + at, (size_t)min_u64(JOURNAL_SECTOR, n - at)) : 0;
}

/* Returns how many of the row's bytes the old model had. */
static size_t old_bytes(const struct journal *j)
{
    return (size_t)within_u64(j->row->at, j->row->n, j->before);
}

static uint64_t name_sum(const struct edit_file *f)
{
    return xxh64(0, f->name, strlen(f->name));
}

/* ---- written ---- */

struct writing {
    const struct edit_file *f;
    const struct edit_plan *plan;
    const struct edit_hooks *hooks;
    struct journal *j;
    uint64_t at, end;     /* range of the row that is not yet written */
    uint64_t sum;         /* sum over the head's fields and the rows written */
    uint64_t done, total; /* bytes of rows; `total` may be too high */
    struct err why;       /* about a draft */
};

/* Writes the part of a segment that lies in the row to the row's new bytes. */
static int put_segment(const struct writing *w, const struct segment *s, struct stretch *row)
{
    uint64_t lo = max_u64(s->at, row->at), hi = min_u64(s->at + s->len, row->at + row->n);
    uint8_t *dst = row->new + (lo - row->at);
    size_t n = (size_t)(hi - lo);
    if (s->from == IMAGE_MEMORY)
        memcpy(dst, s->bytes + (lo - s->at), n);
    else if (s->from == IMAGE_ZERO)
        memset(dst, 0, n);
    else if (s->no != EDIT_OLD_FILE)
        return sys_read_all(w->f->sys, w->plan->image->file[s->no].fd, dst, n,
                            s->src + (lo - s->at));
    return 0; /* the old file's bytes are there already */
}

static int make_new(const struct writing *w, struct stretch *row, size_t old_n)
{
    const struct image *im = w->plan->image;
    int r = 0;
    memcpy(row->new, row->now, old_n);
    memset(row->new + old_n, 0, row->n - old_n);
    for (const struct segment *s = image_at(im, row->at);
         s < im->seg + im->n && s->at < row->at + row->n && r == 0; s++)
        r = put_segment(w, s, row);
    return r;
}

/* Writes the row that is not yet written, if there is one. */
static int write_row(struct writing *w)
{
    struct journal *j = w->j;
    struct stretch *row = j->row;
    if (w->at == w->end)
        return 0;
    set_row(row, w->at, (size_t)(w->end - w->at));
    const size_t old_n = old_bytes(j);
    int r = sys_read_all(j->sys, w->f->fd, row->now, old_n, row->at);
    if (r == 0)
        r = make_new(w, row, old_n);
    if (r < 0)
        return r;
    put_u64(row->bytes, row->at, false);
    put_u64(row->bytes + 8, row->n, false);
    for (size_t k = 0; k < row->sectors; k++)
        put_u64(row->bytes + ROW_HEAD + 8 * k, sector_sum(row->now, old_n, k), false);
    w->sum = xxh64(w->sum, row->bytes, row->len);
    r = sys_write_all(j->sys, j->fd, row->bytes, row->len, j->size);
    j->size += row->len;
    w->done = min_u64(w->done + row->n, w->total);
    if (w->hooks && w->hooks->progress)
        w->hooks->progress(w->done, w->total, w->hooks->arg);
    return r;
}

/* Adds rows of whole sectors for bytes [lo, hi), which do not begin before the last row. */
static int add_rows(struct writing *w, uint64_t lo, uint64_t hi)
{
    int r = 0;
    if (lo >= hi)
        return 0;
    lo = max_u64(lo & ~(uint64_t)(JOURNAL_SECTOR - 1), w->end);
    hi = min_u64(round_up(hi, JOURNAL_SECTOR), w->j->after);
    for (; lo < hi && r == 0; lo = w->end) {
        if (w->end != lo || w->end - w->at == JOURNAL_ROW) {
            r = write_row(w);
            w->at = lo;
        }
        w->end = min_u64(hi, w->at + JOURNAL_ROW);
    }
    return r;
}

/* Adds rows for the parts of the header that differ. */
static int add_header(struct writing *w)
{
    const struct buf *head = &w->plan->head;
    uint8_t old[4096];
    int r = 0;
    for (size_t at = 0, n; at < head->len && r == 0; at += n) {
        n = (size_t)min_u64(head->len - at, sizeof(old));
        r = sys_read_all(w->f->sys, w->f->fd, old, n, at);
        if (r == 0 && memcmp(old, head->data + at, n) != 0)
            r = add_rows(w, at, at + n);
    }
    return r;
}

/* Adds rows for padding of the old file that is not zero. */
static int add_padding(struct writing *w, uint64_t at, uint64_t end)
{
    uint8_t old[4096];
    int r = 0;
    for (uint64_t n; at < end && r == 0; at += n) {
        n = min_u64(end - at, sizeof(old));
        r = sys_read_all(w->f->sys, w->f->fd, old, (size_t)n, at);
        if (r == 0 && !is_zero(old, (size_t)n))
            r = add_rows(w, at, at + n);
    }
    return r;
}

/* Adds rows for bytes from drafts, for padding that must become zero, and for all bytes that the old
 * file did not have. */
static int add_data(struct writing *w)
{
    const struct image *im = w->plan->image;
    int r = 0;
    for (size_t i = 1; i < im->n && r == 0; i++) {
        const struct segment *s = &im->seg[i];
        const bool draft = s->from == IMAGE_FILE && s->no != EDIT_OLD_FILE;
        const uint64_t end = s->at + s->len;
        if (s->from == IMAGE_ZERO)
            r = add_padding(w, s->at, min_u64(end, w->j->before));
        if (r == 0)
            r = add_rows(w, draft ? s->at : max_u64(s->at, w->j->before), end);
    }
    return r;
}

/* Does all of step 1 except creating the file. */
static int fill_journal(struct writing *w)
{
    struct journal *j = w->j;
    j->row = malloc(sizeof(*j->row));
    if (!j->row)
        return -ENOMEM;
    put_u64(j->head + NAME_SUM, name_sum(w->f), false);
    put_u64(j->head + BEFORE, j->before, false);
    put_u64(j->head + AFTER, j->after, false);
    w->sum = xxh64(0, j->head, SUM);
    int r = add_header(w);
    if (r == 0)
        r = add_data(w);
    w->done = w->total;
    if (r == 0)
        r = write_row(w);
    if (r == 0) /* before there is a head, which would make the journal count */
        r = edit_check_drafts(w->f, w->plan, false, &w->why);
    put_u64(j->head + SUM, w->sum, false);
    if (r == 0)
        r = sys_write_all(j->sys, j->fd, j->head, JOURNAL_HEAD, 0);
    if (r == 0)
        r = sys_sync(j->sys, j->fd);
    return r < 0 ? r : sys_sync_dir(j->sys, w->f->dir);
}

int journal_write(struct edit_file *f, const struct edit_plan *plan, const struct edit_hooks *hooks,
                  struct journal *ret, struct err *e)
{
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    char name[NAME_MAX + 1];
    struct stat st;
    struct journal j = {.sys = f->sys,
                        .before = plan->old_size,
                        .after = plan->image->size,
                        .size = JOURNAL_HEAD,
                        .head = MAGIC};
    struct writing w = {.f = f, .plan = plan, .hooks = hooks, .j = &j};
    w.total = plan->head.len + plan->journal + j.after - j.before;
    edit_side_name(name, f->name, EDIT_JOURNAL_SUFFIX);
    j.fd = f->sys->openat(f->sys, f->dir, name, flags, 0600);
    if (j.fd < 0)
        return err_sys(e, j.fd, "cannot create the journal");
    /* The model's owner may read it. */
    if (f->sys->fstat(f->sys, f->fd, &st) == 0 && st.st_uid != geteuid())
        (void)f->sys->fchown(f->sys, j.fd, st.st_uid, st.st_gid);
    int r = fill_journal(&w);
    if (r == 0) {
        *ret = j;
        return 0;
    }
    (void)err_set(e, r, "cannot write the journal: %s", w.why.code ? w.why.msg : strerror(-r));
    r = journal_cancel(f, &j, r, e);
    journal_free(&j);
    return r;
}

/* Returns 0, or -errno if the name may still exist. */
static int remove_name(const struct edit_file *f)
{
    char name[NAME_MAX + 1];
    edit_side_name(name, f->name, EDIT_JOURNAL_SUFFIX);
    int r = f->sys->unlinkat(f->sys, f->dir, name);
    if (r < 0) /* the first attempt may have removed the name and then failed */
        r = f->sys->unlinkat(f->sys, f->dir, name);
    const int synced = sys_sync_dir(f->sys, f->dir);
    return r < 0 && r != -ENOENT ? r : synced;
}

int journal_end(const struct edit_file *f, const struct journal *j)
{
    static const uint8_t nothing[JOURNAL_HEAD];
    if (remove_name(f) == 0)
        return 0;
    int r = sys_write_all(f->sys, j->fd, nothing, sizeof(nothing), 0);
    return r < 0 ? r : sys_sync(f->sys, j->fd);
}

int journal_cancel(struct edit_file *f, const struct journal *j, int r, struct err *e)
{
    f->unsynced = journal_end(f, j) < 0;
    return f->unsynced ? err_prefix(e, r,
                                    "the journal beside the model cannot be removed: the edit may "
                                    "yet be applied when the model is next opened")
                       : r;
}

/* ---- applying ---- */

/*
 * Reads the row at *pos, and sets *pos to its end. Returns 1, or -errno, or 0 if there is no complete
 * row.
 */
static int next_row(const struct journal *j, uint64_t *pos)
{
    struct stretch *row = j->row;
    const uint64_t left = j->size - *pos;
    if (left < ROW_HEAD)
        return 0;
    int r = sys_read_all(j->sys, j->fd, row->bytes, ROW_HEAD, *pos);
    const uint64_t n = get_u64(row->bytes + 8, false);
    if (r < 0 || n == 0 || n > JOURNAL_ROW)
        return r;
    set_row(row, get_u64(row->bytes, false), (size_t)n);
    if (row->len > left)
        return 0;
    r = sys_read_all(j->sys, j->fd, row->bytes + ROW_HEAD, row->len - ROW_HEAD, *pos + ROW_HEAD);
    *pos += row->len;
    return r < 0 ? r : 1;
}

static int write_model(struct edit_file *f, const struct journal *j)
{
    uint64_t pos = JOURNAL_HEAD;
    int r;
    while ((r = next_row(j, &pos)) > 0 &&
           (r = sys_write_all(f->sys, f->fd, j->row->new, j->row->n, j->row->at)) == 0)
        ;
    if (r == 0)
        r = pos == j->size ? sys_sync(f->sys, f->fd) : -EIO;
    return r < 0 ? r : edit_file_note(f, NULL);
}

int journal_apply(struct edit_file *f, const struct journal *j)
{
    int r = write_model(f, j);
    return r < 0 ? write_model(f, j) : r;
}

/* ---- reading ---- */

static int foreign(struct err *e, const char *why)
{
    return err_set(e, -ESTALE,
                   "the journal beside the model does not match it: %s; nothing was changed (if "
                   "the model is whole, remove the journal)",
                   why);
}

/* Findings from the rows compared so far. */
struct found {
    uint64_t sum;
    uint64_t end, run; /* rows end at `end`, with no gap since `run` */
    bool outside, strange, done, begun;
};

/* Checks a row's range: whole sectors of the new model, in order. */
static bool range_fits(const struct journal *j, struct found *ret)
{
    const struct stretch *row = j->row;
    uint64_t hi;
    if (row->at % JOURNAL_SECTOR || row->at < ret->end || !add_u64(row->at, row->n, &hi) ||
        hi > j->after || (row->n % JOURNAL_SECTOR && hi != j->after))
        return false;
    ret->run = row->at == ret->end ? ret->run : row->at;
    ret->end = hi;
    return true;
}

/*
 * Compares sector i of the row. have: how many of the row's bytes the model has. Bytes beyond the
 * model's old end may be missing, zero or new.
 */
static void compare_sector(const struct journal *j, size_t have, size_t i, struct found *ret)
{
    const struct stretch *row = j->row;
    const size_t at = i * JOURNAL_SECTOR, end = (size_t)min_u64(at + JOURNAL_SECTOR, row->n);
    /* the old model had the sector's bytes up to this offset */
    const size_t old_n = old_bytes(j), mid = (size_t)min_u64(max_u64(at, old_n), end);
    const size_t last = (size_t)max_u64(mid, min_u64(end, have));
    const bool new = memcmp(row->now + at, row->new + at, mid - at) == 0;
    const bool old =
        sector_sum(row->now, old_n, i) == get_u64(row->bytes + ROW_HEAD + 8 * i, false);
    const bool grown = memcmp(row->now + mid, row->new + mid, last - mid) == 0;
    ret->strange |= !(new || old) || !(grown || is_zero(row->now + mid, last - mid));
    ret->done &= new &&grown &&last == end;
    ret->begun |= !old;
}

/* Returns why the journal, whose sum is right, does not fit a model of this size, or NULL. */
static const char *misfit(const struct journal *j, const struct found *found, uint64_t size)
{
    const bool covers =
        j->after == j->before || (found->end == j->after && found->run <= j->before);
    return found->outside || j->before > j->after || j->after > INT64_MAX ||
                   (size >= j->before && !covers)
               ? "its ranges lie outside the model"
           : size < j->before || size > j->after ? "it is for a file of another size"
           : found->strange ? "part of the model matches neither the old content nor the new"
                            : NULL;
}

int journal_compare(const struct edit_file *f, struct journal *j, struct err *e)
{
    struct found found = {.sum = xxh64(0, j->head, SUM), .done = true};
    uint64_t pos = JOURNAL_HEAD;
    struct stat st;
    int r = edit_file_stat(f, &st, e);
    if (r < 0)
        return r;
    const uint64_t size = (uint64_t)st.st_size;
    while ((r = next_row(j, &pos)) > 0) {
        const size_t have = (size_t)within_u64(j->row->at, j->row->n, size);
        found.sum = xxh64(found.sum, j->row->bytes, j->row->len);
        found.outside |= !range_fits(j, &found);
        r = sys_read_all(f->sys, f->fd, j->row->now, have, j->row->at);
        if (r < 0)
            break;
        for (size_t k = 0; k < j->row->sectors; k++)
            compare_sector(j, have, k, &found);
    }
    if (r < 0)
        return err_sys(e, r, "cannot compare the journal with the model");
    const bool whole = pos == j->size && found.sum == get_u64(j->head + SUM, false);
    const char *why = whole ? misfit(j, &found, size) : NULL;
    if (why)
        return foreign(e, why);
    j->state = !whole ? JOURNAL_VOID : found.done ? JOURNAL_DONE : JOURNAL_REDO;
    j->begun = found.begun || size > j->before;
    return 0;
}

/*
 * Reports another user's object with the journal's name, or a journal that has other hard links (as
 * in a backup). Returns -ESTALE.
 */
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

/* Judges an open journal. Refuses other versions. A file that is not a journal is VOID. */
static int judge_journal(const struct edit_file *f, struct journal *j, struct err *e)
{
    const uint8_t *head = j->head;
    j->state = JOURNAL_VOID;
    int r = sys_read_all(j->sys, j->fd, j->head, (size_t)min_u64(j->size, JOURNAL_HEAD), 0);
    if (r < 0)
        return err_sys(e, r, "cannot read the journal");
    if (memcmp(head, MAGIC, 7) != 0 || head[7] < '1' || head[7] > '9')
        return 0;
    if (head[7] != MAGIC[7])
        return foreign(e,
                       head[7] > MAGIC[7]
                           ? "it was written by a later version of ggufs"
                           : "it was written by a build of ggufs that predates its first release");
    if (j->size < JOURNAL_HEAD)
        return 0;
    j->before = get_u64(head + BEFORE, false);
    j->after = get_u64(head + AFTER, false);
    j->row = malloc(sizeof(*j->row));
    if (!j->row)
        return err_set(e, -ENOMEM, "no memory for the journal");
    r = journal_compare(f, j, e);
    return r < 0 || j->state == JOURNAL_VOID || get_u64(head + NAME_SUM, false) == name_sum(f)
               ? r
               : foreign(e, "it is for another file");
}

/*
 * Finds the journal without opening it, because opening a device may have side effects. *ret: NONE,
 * PLANTED (with a message, -ESTALE, in *e), or VOID for one that is ours.
 */
static int find_journal(const struct edit_file *f, const struct stat *model,
                        enum journal_state *ret, struct err *e)
{
    char name[NAME_MAX + 1];
    struct stat st;
    *ret = JOURNAL_NONE;
    if (model->st_nlink == 0) /* an unnamed file has no journal */
        return 0;
    edit_side_name(name, f->name, EDIT_JOURNAL_SUFFIX);
    int r = f->sys->fstatat(f->sys, f->dir, name, &st);
    if (r == 0)
        *ret = edit_is_ours(&st, model) ? JOURNAL_VOID : JOURNAL_PLANTED;
    if (*ret == JOURNAL_PLANTED)
        (void)planted(name, &st, model, e);
    return r == -ENOENT ? 0 : err_sys(e, r, "cannot look for a journal");
}

int journal_load(const struct edit_file *f, struct journal *ret, struct err *e)
{
    const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
    char name[NAME_MAX + 1];
    struct stat model, st;
    *ret = JOURNAL_INIT;
    int r = edit_file_stat(f, &model, e);
    if (r == 0)
        r = find_journal(f, &model, &ret->state, e);
    if (r < 0 || ret->state != JOURNAL_VOID)
        return r;
    edit_side_name(name, f->name, EDIT_JOURNAL_SUFFIX);
    ret->fd = f->sys->openat(f->sys, f->dir, name, flags, 0);
    if (ret->fd < 0)
        return err_sys(e, ret->fd, "cannot open the journal");
    ret->sys = f->sys;
    r = f->sys->fstat(f->sys, ret->fd, &st);
    ret->size = r == 0 ? (uint64_t)st.st_size : 0;
    if (r < 0)
        (void)err_sys(e, r, "cannot stat the journal");
    else if (!edit_is_ours(&st, &model)) /* it has just taken the journal's place */
        r = planted(name, &st, &model, e);
    else
        r = judge_journal(f, ret, e);
    if (r < 0)
        journal_free(ret);
    return r;
}

/*
 * Finishes the edit, writing the new bytes again even if all seem to be in place. Bytes that can be
 * read from either file are not necessarily on disk: the writer may have been killed, or a sync may
 * have failed, after which the kernel treats the pages as written.
 */
static int settle(struct edit_file *f, const struct journal *j)
{
    int r = sys_sync(f->sys, j->fd);
    if (r == 0)
        r = sys_sync_dir(f->sys, f->dir);
    return r < 0 ? r : journal_apply(f, j);
}

int journal_settle(struct edit_file *f, bool edits, enum journal_state *found, struct err *e)
{
    CLEANUP(journal_free) struct journal j = JOURNAL_INIT;
    int r = journal_load(f, &j, e);
    const bool whole = j.state == JOURNAL_REDO || j.state == JOURNAL_DONE;
    *found = j.state;
    if (r < 0)
        return r;
    const bool refused = edits && j.state == JOURNAL_REDO && !f->unfinished; /* journal_cancel() */
    if (refused && j.begun)
        return err_set(e, -ESTALE, "an interrupted edit must be recovered first");
    if (edits && !whole && f->unfinished)
        return err_set(e, -ESTALE, "the journal of an unfinished edit is gone");
    if (j.state == JOURNAL_PLANTED || j.state == JOURNAL_NONE)
        return j.state == JOURNAL_NONE ? 0 : -ESTALE;
    r = whole && !refused ? settle(f, &j) : 0;
    if (r < 0 && edits) /* the bytes written are those of this file's own edit */
        (void)edit_file_note(f, NULL);
    if (r < 0) {
        (void)err_sys(e, r, "cannot finish the interrupted edit");
        return edits && f->unfinished ? err_prefix(e, -EIO, "an earlier " JOURNAL_FINISHES) : r;
    }
    f->unfinished = false;
    r = remove_name(f); /* what was wiped may still be whole on the disk */
    f->unsynced |= edits && r < 0;
    return whole || edits ? err_sys(e, r, "cannot remove the journal beside the model") : 0;
}

/* ---- crash recovery ---- */

struct sweep {
    const struct edit_file *f;
    struct stat model;
    char pattern[NAME_MAX + 1]; /* a temporary file's name without its suffix */
    size_t prefix;              /* length of pattern */
    unsigned removed;
};

/*
 * Removes one of our files if it is not locked, which means that its writer has ended. The file may
 * have other hard links, which were made while it was the model. Files of other users are not even
 * opened.
 */
static int sweep_one(void *arg, const char *name)
{
    static const char digits[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    /* Opens for writing if permitted, because NFS requires this for an exclusive lock. */
    static const int access[] = {O_RDWR, O_RDONLY};
    struct sweep *s = arg;
    const struct sys *sys = s->f->sys;
    const int dir = s->f->dir;
    struct stat st;
    int fd = -1;
    if (strncmp(name, s->pattern, s->prefix) != 0 || strlen(name) != s->prefix + EDIT_TEMP_SUFFIX ||
        strspn(name + s->prefix, digits) != EDIT_TEMP_SUFFIX ||
        sys->fstatat(sys, dir, name, &st) < 0 || !edit_is_owned(&st, &s->model))
        return 0;
    for (size_t i = 0; i < 2 && fd < 0; i++)
        fd = sys->openat(sys, dir, name, access[i] | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY,
                         0);
    if (fd >= 0 && sys->fstat(sys, fd, &st) == 0 && edit_is_owned(&st, &s->model) &&
        st.st_ino != s->model.st_ino && sys->flock(sys, fd, LOCK_EX | LOCK_NB) == 0 &&
        sys->unlinkat(sys, dir, name) == 0)
        s->removed++;
    sys_close(sys, &fd);
    return 0;
}

static int sweep(const struct edit_file *f, unsigned *removed, struct err *e)
{
    struct sweep s = {.f = f};
    int r = f->sys->fstat(f->sys, f->fd, &s.model);
    if (r == 0) {
        edit_side_name(s.pattern, f->name, "");
        s.prefix = strlen(s.pattern);
        r = f->sys->list(f->sys, f->dir, sweep_one, &s);
    }
    *removed = s.removed;
    return err_sys(e, r, "cannot list the model's directory");
}

int edit_recover(struct edit_file *f, struct edit_recovered *ret, struct err *e)
{
    enum journal_state found = JOURNAL_NONE;
    *ret = (struct edit_recovered){0};
    int r = journal_settle(f, false, &found, e);
    if (r < 0)
        return r;
    ret->finished = found == JOURNAL_REDO;
    ret->dropped = found == JOURNAL_VOID;
    return sweep(f, &ret->removed, e);
}

#define LOST "; the last edits before the interruption may not be in the file"

const char *edit_recovered_text(const struct edit_recovered *r)
{
    return r->finished  ? "an interrupted edit was finished" LOST
           : r->dropped ? "an interrupted edit was undone" LOST
           : r->removed ? "files left by an interrupted edit were removed" LOST
                        : NULL;
}

/* ---- readers ---- */

/* Looks once. *there: there is a journal of ours. */
static int look_once(const struct edit_file *f, struct edit_id *ret, bool *there,
                     struct err *planted, struct err *e)
{
    enum journal_state state;
    struct stat st;
    int r = edit_file_stat(f, &st, e);
    if (r < 0)
        return r;
    *ret = edit_id_of(&st);
    *planted = (struct err){0};
    r = find_journal(f, &st, &state, planted);
    *there = state == JOURNAL_VOID;
    return r < 0 ? err_set(e, r, "%s", planted->msg) : 0;
}

int edit_at_rest(const struct edit_file *f, const struct timespec *until, struct edit_id *ret,
                 struct err *planted, struct err *e)
{
    const struct sys *s = f->sys;
    bool there;
    int r = look_once(f, ret, &there, planted, e);
    /* A writer holds the lock for as long as its journal is there. */
    while (r == 0 && there && (r = s->flock(s, f->fd, LOCK_SH | LOCK_NB)) < 0) {
        if (r != -EWOULDBLOCK)
            return err_sys(e, r, "cannot lock the model");
        if (when_past(until, 0))
            return err_set(e, -EBUSY, "another process is editing the model; try again");
        when_sleep(LOOK_MS);
        r = look_once(f, ret, &there, planted, e);
    }
    if (r < 0 || !there)
        return r;
    r = look_once(f, ret, &there, planted, e);
    (void)s->flock(s, f->fd, LOCK_UN);
    if (r < 0 || !there)
        return r;
    return err_set(e, -EUCLEAN,
                   "an edit of the model was interrupted (ggufs --recover finishes or undoes it)");
}

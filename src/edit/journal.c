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

#define MAGIC "GGUFSJN3"
/* Offsets of the numbers in the fixed part, and the size of that part. */
enum { NAME_LEN = 8, BEFORE = 16, AFTER = 24, ROWS = 32, ROWS_AT = 40, SUM = 48, FIXED = 56 };
#define ROW 32 /* size of a row in the journal */
#define SECTORS ((size_t)(JOURNAL_ROW / JOURNAL_SECTOR))
/* How often to look whether another process has finished an edit. */
#define LOOK_MS 20

/* A row in memory. */
struct stretch {
    uint8_t table[SECTORS * 8];
    uint8_t now[JOURNAL_ROW]; /* the bytes that the model has now */
    uint8_t new[JOURNAL_ROW];
};

void journal_free(struct journal *j)
{
    if (j->sys)
        sys_close(j->sys, &j->fd);
    free(j->row);
    free(j->room);
    *j = JOURNAL_INIT;
}

static size_t sectors_of(const struct journal_row *row)
{
    return (size_t)((row->n + JOURNAL_SECTOR - 1) / JOURNAL_SECTOR);
}

static uint64_t row_end(const struct journal_row *row)
{
    return row->at + row->n;
}

/* Returns the sum of the part of sector i within the first n bytes, or 0 if there is none. */
static uint64_t sector_sum(const uint8_t *bytes, size_t n, size_t i)
{
    size_t at = i * JOURNAL_SECTOR;
    return at < n ? xxh64(0, bytes + at, (size_t)min_u64(JOURNAL_SECTOR, n - at)) : 0;
}

static uint64_t row_sum(const struct journal_row *row, const struct stretch *u)
{
    return xxh64(xxh64(0, u->table, sectors_of(row) * 8), u->new, (size_t)row->n);
}

/* Returns how many of a row's bytes the old model had. */
static size_t old_bytes(const struct journal *j, const struct journal_row *row)
{
    return (size_t)within_u64(row->at, row->n, j->before);
}

/* Sets the offset of each row's part of the table, which starts at `at`. Returns its end. */
static uint64_t place_table(struct journal *j, uint64_t at)
{
    for (size_t i = 0; i < j->n; i++) {
        j->row[i].table = at;
        at += sectors_of(&j->row[i]) * 8;
    }
    return at;
}

/* ---- the rows of a plan ---- */

/* Adds rows of whole sectors for bytes [lo, hi), which do not begin before the last row. */
static int add_rows(struct journal *j, uint64_t lo, uint64_t hi)
{
    struct journal_row *last = j->n ? &j->row[j->n - 1] : NULL;
    int r = 0;
    if (lo >= hi)
        return 0;
    lo &= ~(uint64_t)(JOURNAL_SECTOR - 1);
    hi = min_u64(round_up(hi, JOURNAL_SECTOR), j->after);
    if (last)
        lo = max_u64(lo, row_end(last));
    for (uint64_t n; lo < hi && r == 0; lo += n) {
        if (!last || row_end(last) != lo || last->n == JOURNAL_ROW) {
            r = array_grow(&j->row, &j->cap, j->n + 1, sizeof(*j->row));
            if (r < 0)
                break;
            last = &j->row[j->n++];
            *last = (struct journal_row){.at = lo};
        }
        n = min_u64(hi - lo, JOURNAL_ROW - last->n);
        last->n += n;
    }
    return r;
}

/* Adds rows for padding of the old file that is not zero. */
static int add_padding(struct journal *j, const struct edit_file *f, uint64_t at, uint64_t end)
{
    uint8_t piece[4096];
    int r = 0;
    for (uint64_t n; at < end && r == 0; at += n) {
        n = min_u64(end - at, sizeof(piece));
        r = sys_read_all(f->sys, f->fd, piece, (size_t)n, at);
        if (r == 0 && !is_zero(piece, (size_t)n))
            r = add_rows(j, at, at + n);
    }
    return r;
}

/*
 * Adds rows, after those of the header, for bytes from drafts, padding that must become zero, and
 * all bytes that the old file did not have.
 */
static int add_data(struct journal *j, const struct edit_file *f, const struct image *im)
{
    int r = 0;
    for (size_t i = 1; i < im->n && r == 0; i++) {
        const struct segment *s = &im->seg[i];
        const uint64_t end = s->at + s->len, grown = max_u64(s->at, j->before);
        if (s->from == IMAGE_ZERO)
            r = add_padding(j, f, s->at, min_u64(end, j->before));
        if (r == 0)
            r = add_rows(j, s->from == IMAGE_FILE && s->no != EDIT_OLD_FILE ? s->at : grown, end);
    }
    return r;
}

/* Adds rows for the header's sectors, from the first that differs to the last. */
static int add_header(struct journal *j, const struct edit_file *f, const struct buf *head)
{
    uint64_t lo = head->len, hi = 0;
    uint8_t *old = j->room->now;
    int r = 0;
    for (uint64_t at = 0; at < head->len && r == 0; at += JOURNAL_ROW) {
        const uint8_t *new = head->data + at;
        size_t first = 0, n = (size_t)min_u64(JOURNAL_ROW, head->len - at);
        r = sys_read_all(f->sys, f->fd, old, n, at);
        if (r < 0 || memcmp(old, new, n) == 0)
            continue;
        while (old[first] == new[first])
            first++;
        while (old[n - 1] == new[n - 1])
            n--;
        lo = min_u64(lo, at + first);
        hi = at + n;
    }
    return r < 0 ? r : add_rows(j, lo, hi);
}

/* ---- written ---- */

struct writing {
    const struct edit_file *f;
    const struct edit_plan *plan;
    const struct edit_hooks *hooks;
    struct journal *j;
};

/* Writes to u->new the part of a segment that lies in the row. */
static int put_segment(const struct writing *w, const struct segment *s,
                       const struct journal_row *row, struct stretch *u)
{
    uint64_t lo = max_u64(s->at, row->at), hi = min_u64(s->at + s->len, row_end(row));
    uint8_t *dst = u->new + (lo - row->at);
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

static int make_new(const struct writing *w, const struct journal_row *row, struct stretch *u)
{
    const struct image *im = w->plan->image;
    const size_t old_n = old_bytes(w->j, row);
    int r = 0;
    memcpy(u->new, u->now, old_n);
    memset(u->new + old_n, 0, (size_t)row->n - old_n);
    for (const struct segment *s = image_at(im, row->at);
         s < im->seg + im->n && s->at < row_end(row) && r == 0; s++)
        r = put_segment(w, s, row, u);
    return r;
}

static int write_row(const struct writing *w, struct journal_row *row)
{
    const struct sys *s = w->f->sys;
    struct stretch *u = w->j->room;
    const size_t old_n = old_bytes(w->j, row);
    int r = sys_read_all(s, w->f->fd, u->now, old_n, row->at);
    if (r == 0)
        r = make_new(w, row, u);
    if (r < 0)
        return r;
    for (size_t k = 0; k < sectors_of(row); k++)
        put_u64(u->table + 8 * k, sector_sum(u->now, old_n, k), false);
    row->sum = row_sum(row, u);
    r = sys_write_all(s, w->j->fd, u->table, sectors_of(row) * 8, row->table);
    return r < 0 ? r : sys_write_all(s, w->j->fd, u->new, (size_t)row->n, row->src);
}

static int write_rows(const struct writing *w)
{
    const struct journal *j = w->j;
    uint64_t done = 0, all = 0;
    int r = 0;
    for (size_t i = 0; i < j->n; i++)
        all += j->row[i].n;
    for (size_t i = 0; i < j->n && r == 0; i++) {
        r = write_row(w, &j->row[i]);
        done += j->row[i].n;
        if (r == 0 && w->hooks && w->hooks->progress)
            w->hooks->progress(done, all, w->hooks->arg);
    }
    return r;
}

/* Returns the sum over the fixed part up to SUM, the rows and the name. */
static uint64_t head_sum(const uint8_t head[FIXED], const struct buf *rest)
{
    return xxh64(xxh64(0, head, SUM), rest->data, rest->len);
}

/* Writes the rows and the name at `at`, and then the fixed part, which makes the file a journal. */
static int write_head(const struct writing *w, uint64_t at)
{
    const struct journal *j = w->j;
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    uint8_t head[FIXED] = MAGIC;
    for (size_t i = 0; i < j->n; i++) {
        buf_uint(&b, j->row[i].at, 8, false);
        buf_uint(&b, j->row[i].n, 8, false);
        buf_uint(&b, j->row[i].src, 8, false);
        buf_uint(&b, j->row[i].sum, 8, false);
    }
    buf_str(&b, w->f->name);
    if (buf_error(&b))
        return buf_error(&b);
    put_u32(head + NAME_LEN, (uint32_t)strlen(w->f->name), false);
    put_u64(head + BEFORE, j->before, false);
    put_u64(head + AFTER, j->after, false);
    put_u64(head + ROWS, j->n, false);
    put_u64(head + ROWS_AT, at, false);
    put_u64(head + SUM, head_sum(head, &b), false);
    int r = sys_write_all(w->f->sys, j->fd, b.data, b.len, at);
    return r < 0 ? r : sys_write_all(w->f->sys, j->fd, head, FIXED, 0);
}

/* Does all of step 1 except creating the file. */
static int fill_journal(struct writing *w)
{
    struct journal *j = w->j;
    uint64_t at = JOURNAL_SECTOR;
    j->room = malloc(sizeof(*j->room));
    int r = j->room ? add_header(j, w->f, &w->plan->head) : -ENOMEM;
    if (r == 0)
        r = add_data(j, w->f, w->plan->image);
    for (size_t i = 0; i < j->n; i++) {
        j->row[i].src = at;
        at += round_up(j->row[i].n, JOURNAL_SECTOR);
    }
    (void)place_table(j, at + j->n * ROW + strlen(w->f->name));
    if (r == 0)
        r = write_rows(w);
    if (r == 0)
        r = write_head(w, at);
    if (r == 0)
        r = sys_sync(w->f->sys, j->fd);
    return r < 0 ? r : sys_sync_dir(w->f->sys, w->f->dir);
}

/* Creates the journal's file, which has no head yet, and lets the model's owner read it. */
static int make_journal_file(const struct edit_file *f, struct err *e)
{
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    char name[NAME_MAX + 1];
    struct stat st;
    edit_side_name(name, f->name, EDIT_JOURNAL_SUFFIX);
    int fd = f->sys->openat(f->sys, f->dir, name, flags, 0600);
    if (fd < 0)
        return err_sys(e, fd, "cannot create the journal");
    if (f->sys->fstat(f->sys, f->fd, &st) == 0 && st.st_uid != geteuid())
        (void)f->sys->fchown(f->sys, fd, st.st_uid, st.st_gid);
    return fd;
}

int journal_write(const struct edit_file *f, const struct edit_plan *plan,
                  const struct edit_hooks *hooks, struct journal *ret, struct err *e)
{
    struct journal j = {.sys = f->sys, .before = plan->old_size, .after = plan->image->size};
    struct writing w = {.f = f, .plan = plan, .hooks = hooks, .j = &j};
    j.fd = make_journal_file(f, e);
    if (j.fd < 0)
        return j.fd;
    int r = fill_journal(&w);
    if (r == 0) {
        *ret = j;
        return 0;
    }
    (void)err_set(e, r, "cannot write the journal: %s", strerror(-r));
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
    static const uint8_t nothing[FIXED];
    if (remove_name(f) == 0)
        return 0;
    int r = sys_write_all(f->sys, j->fd, nothing, FIXED, 0);
    return r < 0 ? r : sys_sync(f->sys, j->fd);
}

int journal_cancel(const struct edit_file *f, const struct journal *j, int r, struct err *e)
{
    return journal_end(f, j) == 0
               ? r
               : err_prefix(e, r,
                            "the journal beside the model cannot be removed: the edit may yet be "
                            "applied when the model is next opened");
}

/* ---- applying ---- */

static int write_model(struct edit_file *f, const struct journal *j)
{
    const struct sys *s = f->sys;
    int r = 0;
    for (size_t i = 0; i < j->n && r == 0; i++) {
        const struct journal_row *row = &j->row[i];
        r = sys_read_all(s, j->fd, j->room->new, (size_t)row->n, row->src);
        if (r == 0)
            r = sys_write_all(s, f->fd, j->room->new, (size_t)row->n, row->at);
    }
    if (r == 0)
        r = sys_sync(s, f->fd);
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

/*
 * Decodes the rows, whose sum has been checked. Returns NULL, or why they cannot be from an edit of
 * this model.
 */
static const char *decode_rows(struct journal *j, const uint8_t *b, size_t n, uint64_t file)
{
    static const char outside[] = "its ranges lie outside the model";
    uint64_t end = 0, run = 0; /* rows so far end at `end`, with no gap since `run` */
    if (j->before > j->after || j->after > INT64_MAX)
        return outside;
    for (size_t i = 0; i < n; i++, b += ROW) {
        struct journal_row row = {get_u64(b, false), get_u64(b + 8, false), get_u64(b + 16, false),
                                  get_u64(b + 24, false), 0};
        uint64_t hi, src_end;
        if (row.at % JOURNAL_SECTOR || row.n == 0 || row.n > JOURNAL_ROW || row.at < end ||
            !add_u64(row.at, row.n, &hi) || hi > j->after ||
            (row.n % JOURNAL_SECTOR && hi != j->after))
            return outside;
        if (row.src % JOURNAL_SECTOR || row.src == 0 || !add_u64(row.src, row.n, &src_end) ||
            src_end > file)
            return outside;
        run = row.at == end ? run : row.at;
        end = hi;
        j->row[j->n++] = row;
    }
    /* The rows must cover every byte that is added to the model. */
    return j->after > j->before && (end != j->after || run > j->before) ? outside : NULL;
}

/*
 * Loads the record of a journal of `file` bytes whose fixed part is `head`, for a model of `size`
 * bytes. The state stays VOID if the journal was not completed; otherwise it becomes REDO, which is
 * provisional until the journal is compared with the model.
 */
static int load_record(const struct edit_file *f, struct journal *j, const uint8_t head[FIXED],
                       uint64_t file, uint64_t size, struct err *e)
{
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    uint64_t end;
    const uint64_t name_len = get_u32(head + NAME_LEN, false), n = get_u64(head + ROWS, false),
                   at = get_u64(head + ROWS_AT, false);
    if (n == 0 || n > file / ROW || name_len > NAME_MAX || !add_u64(at, n * ROW + name_len, &end) ||
        end > file)
        return 0;
    uint8_t *rest = buf_extend(&b, (size_t)(n * ROW + name_len));
    j->row = calloc((size_t)n, sizeof(*j->row));
    j->room = malloc(sizeof(*j->room));
    if (!rest || !j->row || !j->room)
        return err_set(e, -ENOMEM, "no memory for the journal");
    int r = sys_read_all(f->sys, j->fd, rest, b.len, at);
    if (r < 0)
        return err_sys(e, r, "cannot read the journal");
    if (get_u64(head + SUM, false) != head_sum(head, &b))
        return 0;
    j->before = get_u64(head + BEFORE, false);
    j->after = get_u64(head + AFTER, false);
    const char *why = decode_rows(j, rest, (size_t)n, file);
    if (!why && (name_len != strlen(f->name) || memcmp(rest + n * ROW, f->name, name_len) != 0))
        why = "it is for another file";
    if (!why && (size < j->before || size > j->after))
        why = "it is for a file of another size";
    if (why)
        return foreign(e, why);
    if (place_table(j, end) == file)
        j->state = JOURNAL_REDO;
    return 0;
}

/* Findings from the sectors compared so far. */
struct found {
    bool fits, done, begun;
};

/*
 * Compares sector i of a row. have: how many of the row's bytes the model has. Bytes beyond the
 * model's old end may be missing, zero or new.
 */
static void compare_sector(const struct stretch *u, size_t n, size_t old_n, size_t have, size_t i,
                           struct found *ret)
{
    const size_t at = i * JOURNAL_SECTOR, end = (size_t)min_u64(at + JOURNAL_SECTOR, n);
    /* the old model had the sector's bytes up to this offset */
    const size_t mid = (size_t)min_u64(max_u64(at, old_n), end);
    const size_t last = (size_t)max_u64(mid, min_u64(end, have));
    const bool new = memcmp(u->now + at, u->new + at, mid - at) == 0;
    const bool old = sector_sum(u->now, old_n, i) == get_u64(u->table + 8 * i, false);
    const bool grown = memcmp(u->now + mid, u->new + mid, last - mid) == 0;
    ret->fits &= (new || old) && (grown || is_zero(u->now + mid, last - mid));
    ret->done &= new &&grown &&last == end;
    ret->begun |= !old;
}

int journal_compare(const struct edit_file *f, struct journal *j, struct err *e)
{
    struct found found = {true, true, false};
    struct stat st;
    struct stretch *u = j->room;
    int r = f->sys->fstat(f->sys, f->fd, &st);
    const uint64_t size = r == 0 ? (uint64_t)st.st_size : 0;
    bool whole = true;
    for (size_t i = 0; i < j->n && r == 0 && whole; i++) {
        const struct journal_row *row = &j->row[i];
        const size_t n = (size_t)row->n, have = (size_t)within_u64(row->at, n, size);
        r = sys_read_all(f->sys, j->fd, u->table, sectors_of(row) * 8, row->table);
        if (r == 0)
            r = sys_read_all(f->sys, j->fd, u->new, n, row->src);
        whole = r == 0 && row_sum(row, u) == row->sum;
        if (whole)
            r = sys_read_all(f->sys, f->fd, u->now, have, row->at);
        for (size_t k = 0; k < sectors_of(row) && r == 0 && whole; k++)
            compare_sector(u, n, old_bytes(j, row), have, k, &found);
    }
    if (r < 0)
        return err_sys(e, r, "cannot compare the journal with the model");
    if (whole && !found.fits)
        return foreign(e, "part of the model matches neither the old content nor the new");
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
static int judge_journal(const struct edit_file *f, struct journal *j, uint64_t file, uint64_t size,
                         struct err *e)
{
    uint8_t head[FIXED] = {0};
    j->state = JOURNAL_VOID;
    int r = sys_read_all(f->sys, j->fd, head, (size_t)min_u64(file, FIXED), 0);
    if (r < 0)
        return err_sys(e, r, "cannot read the journal");
    if (memcmp(head, MAGIC, 7) != 0 || head[7] < '1' || head[7] > '9')
        return 0;
    if (head[7] != MAGIC[7])
        return foreign(e,
                       head[7] > MAGIC[7]
                           ? "it was written by a later version of ggufs"
                           : "it was written by a build of ggufs that predates its first release");
    r = file < FIXED ? 0 : load_record(f, j, head, file, size, e);
    return r < 0 || j->state == JOURNAL_VOID ? r : journal_compare(f, j, e);
}

/*
 * Finds the journal without opening it, because opening a device may have side effects. *there:
 * there is one that is ours. Otherwise sets *e to -ESTALE if the object with its name is not ours.
 */
static int find_journal(const struct edit_file *f, const struct stat *model, bool *there,
                        struct err *e)
{
    char name[NAME_MAX + 1];
    struct stat st;
    *there = false;
    if (model->st_nlink == 0) /* an unnamed file has no journal */
        return 0;
    edit_side_name(name, f->name, EDIT_JOURNAL_SUFFIX);
    int r = f->sys->fstatat(f->sys, f->dir, name, &st);
    if (r == 0 && !(*there = edit_is_ours(&st, model)))
        (void)planted(name, &st, model, e);
    return r == -ENOENT ? 0 : err_sys(e, r, "cannot look for a journal");
}

int journal_load(const struct edit_file *f, struct journal *ret, struct err *e)
{
    const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
    char name[NAME_MAX + 1];
    struct err why = {0};
    struct stat model, st;
    bool there;
    *ret = JOURNAL_INIT;
    int r = edit_file_stat(f, &model, e);
    if (r == 0)
        r = find_journal(f, &model, &there, &why);
    if (r < 0 || why.code) {
        ret->state = r < 0 ? JOURNAL_NONE : JOURNAL_PLANTED;
        return why.code ? (void)err_set(e, why.code, "%s", why.msg), r : r;
    }
    if (!there)
        return 0;
    edit_side_name(name, f->name, EDIT_JOURNAL_SUFFIX);
    r = f->sys->openat(f->sys, f->dir, name, flags, 0);
    if (r < 0)
        return err_sys(e, r, "cannot open the journal");
    ret->sys = f->sys;
    ret->fd = r;
    r = f->sys->fstat(f->sys, ret->fd, &st);
    if (r < 0)
        (void)err_sys(e, r, "cannot stat the journal");
    else if (!edit_is_ours(&st, &model)) /* it has just taken the journal's place */
        r = planted(name, &st, &model, e);
    else
        r = judge_journal(f, ret, (uint64_t)st.st_size, (uint64_t)model.st_size, e);
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
    if (edits && j.state == JOURNAL_REDO && !f->unfinished)
        return err_set(e, -ESTALE, "an interrupted edit must be recovered first");
    if (edits && !whole && f->unfinished)
        return err_set(e, -ESTALE, "the journal of an unfinished edit is gone");
    if (j.state == JOURNAL_PLANTED || j.state == JOURNAL_NONE)
        return j.state == JOURNAL_NONE ? 0 : -ESTALE;
    r = whole ? settle(f, &j) : 0;
    if (r < 0 && edits) /* the bytes written are those of this file's own edit */
        (void)edit_file_note(f, NULL);
    if (r < 0)
        return err_sys(e, r, "cannot finish the interrupted edit");
    f->unfinished = false;
    r = remove_name(f); /* an incomplete journal may remain (J1) */
    return whole ? err_sys(e, r, "cannot remove the journal beside the model") : 0;
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

void edit_recovered_text(const struct edit_recovered *r, char out[EDIT_RECOVERED_MAX])
{
    const char *what = r->finished  ? "an interrupted edit was finished"
                       : r->dropped ? "an interrupted edit was undone"
                       : r->removed ? "files left by an interrupted edit were removed"
                                    : NULL;
    out[0] = '\0';
    if (what)
        (void)snprintf(out, EDIT_RECOVERED_MAX,
                       "%s; the last edits before the interruption may not be in the file", what);
}

/* ---- readers ---- */

/* Looks once. *there: there is a journal of ours. */
static int look_once(const struct edit_file *f, struct edit_id *ret, bool *there,
                     struct err *planted, struct err *e)
{
    struct stat st;
    int r = edit_file_stat(f, &st, e);
    if (r < 0)
        return r;
    *ret = edit_id_of(&st);
    *planted = (struct err){0};
    r = find_journal(f, &st, there, planted);
    if (r < 0)
        *e = *planted;
    return r;
}

/* Returns 1 if another process is editing the model. */
static int look_locked(const struct edit_file *f, struct edit_id *ret, struct err *planted,
                       struct err *e)
{
    bool there;
    int r = look_once(f, ret, &there, planted, e);
    if (r < 0 || !there)
        return r;
    /* A writer holds the lock for as long as its journal is there. */
    r = f->sys->flock(f->sys, f->fd, LOCK_SH | LOCK_NB);
    if (r < 0)
        return r == -EWOULDBLOCK ? 1 : err_sys(e, r, "cannot lock the model");
    r = look_once(f, ret, &there, planted, e);
    (void)f->sys->flock(f->sys, f->fd, LOCK_UN);
    return r < 0 || !there ? r
                           : err_set(e, -EUCLEAN,
                                     "an edit of the model was interrupted (ggufs --recover "
                                     "finishes or undoes it)");
}

int edit_at_rest(const struct edit_file *f, const struct timespec *until, struct edit_id *ret,
                 struct err *planted, struct err *e)
{
    int r = look_locked(f, ret, planted, e);
    while (r > 0 && !when_past(until, 0)) {
        when_sleep(LOOK_MS);
        r = look_locked(f, ret, planted, e);
    }
    return r > 0 ? err_set(e, -EBUSY, "another process is editing the model; try again") : r;
}

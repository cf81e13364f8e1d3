/* SPDX-License-Identifier: MIT */
/* The redo journal: see journal.h, whose steps and invariants are cited here. */
#include "edit/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/pool.h"
#include "edit/commit.h"

#define MAGIC "GGUFSJN3"
/* Offsets of the numbers in the fixed part, and the size of that part. */
enum { NAME_LEN = 8, BEFORE = 16, AFTER = 24, ROWS = 32, ROWS_AT = 40, SUM = 48, FIXED = 56 };
#define ROW 32 /* size of a row in the journal */
#define SECTORS ((size_t)(JOURNAL_ROW / JOURNAL_SECTOR))
/*
 * Writeback of rows of at least this size starts immediately. Smaller rows share blocks, which
 * would then be written twice.
 */
#define LARGE ((uint64_t)256 << 10)
/* How many times to check a journal that does not fit while another process is editing. */
#define LOOKS 100

_Static_assert(LOG_ROOM >= FIXED, "the head of a journal fits before a log's bytes");

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

/* Returns true for a row of whole units of the model. Other rows belong to the header. */
static bool is_units(const struct journal *j, const struct journal_row *row)
{
    return row->at % JOURNAL_UNIT == 0 && (row->n % JOURNAL_UNIT == 0 || row_end(row) == j->after);
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

/* Adds a row at the end, or extends the last one. */
static int add_row(struct journal *j, struct journal_row row, uint64_t grain)
{
    struct journal_row *last = j->n ? &j->row[j->n - 1] : NULL;
    if (last && row.src == 0 && last->src == 0 && row_end(last) == row.at &&
        last->at % grain == 0 && last->n + row.n <= JOURNAL_ROW) {
        last->n += row.n;
        return 0;
    }
    int r =
        j->n < JOURNAL_MAX_ROWS ? array_grow(&j->row, &j->cap, j->n + 1, sizeof(*j->row)) : -EFBIG;
    if (r == 0)
        j->row[j->n++] = row;
    return r;
}

/*
 * Adds rows of whole grains (sectors or units) for bytes [lo, hi), replacing rows at the end that
 * overlap them. src: where the journal has their new bytes, or 0 if it does not have them yet.
 */
static int add_rows(struct journal *j, uint64_t lo, uint64_t hi, uint64_t src, uint64_t grain)
{
    int r = 0;
    if (lo >= hi)
        return 0;
    lo &= ~(grain - 1);
    hi = min_u64(round_up(hi, grain), j->after);
    for (; j->n && row_end(&j->row[j->n - 1]) > lo; j->n--) {
        hi = max_u64(hi, row_end(&j->row[j->n - 1]));
        lo = min_u64(lo, j->row[j->n - 1].at & ~(grain - 1));
    }
    for (uint64_t n; lo < hi && r == 0; lo += n, src += src ? n : 0) {
        n = min_u64(hi - lo, src ? JOURNAL_ROW : JOURNAL_UNIT);
        r = add_row(j, (struct journal_row){.at = lo, .n = n, .src = src}, grain);
    }
    return r;
}

/*
 * Adds rows for a segment of the log that has become the journal. Whole units stay in place if they
 * have the same alignment in the log and in the model.
 */
static int add_lent(struct journal *j, const struct segment *s)
{
    const uint64_t end = s->at + s->len;
    uint64_t lo = round_up(s->at, JOURNAL_UNIT), hi = min_u64(end, j->before) & ~(JOURNAL_UNIT - 1);
    if ((s->at ^ s->src) & (JOURNAL_UNIT - 1) || s->src < JOURNAL_UNIT || lo >= hi)
        lo = hi = end;
    int r = add_rows(j, s->at, lo, 0, JOURNAL_UNIT);
    if (r == 0)
        r = add_rows(j, lo, hi, s->src + (lo - s->at), JOURNAL_UNIT);
    return r < 0 ? r : add_rows(j, hi, end, 0, JOURNAL_UNIT);
}

/*
 * Adds rows, after those of the header, for bytes from drafts and for all bytes that the old file
 * did not have, including padding.
 */
static int add_data(struct journal *j, const struct edit_plan *plan, const struct log *lent)
{
    int r = 0;
    for (size_t i = 1; i < plan->image->n && r == 0; i++) {
        const struct segment *s = &plan->image->seg[i];
        const bool log = s->from == IMAGE_FILE && s->no != EDIT_OLD_FILE;
        const uint64_t lo = log ? s->at : max_u64(s->at, j->before), end = s->at + s->len;
        if (log && lent && plan->image->file[s->no].fd == lent->src.fd)
            r = add_lent(j, s);
        else
            r = add_rows(j, lo, end, 0, JOURNAL_UNIT);
    }
    return r;
}

/* Adds rows for the header's sectors, from the first that differs to the last. */
static int add_header(struct journal *j, const struct edit_file *f, const struct buf *head)
{
    uint64_t lo = head->len, hi = 0;
    uint8_t *old = malloc(JOURNAL_UNIT);
    int r = old ? 0 : -ENOMEM;
    for (uint64_t at = 0; at < head->len && r == 0; at += JOURNAL_UNIT) {
        const uint8_t *new = head->data + at;
        size_t first = 0, n = (size_t)min_u64(JOURNAL_UNIT, head->len - at);
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
    free(old);
    return r < 0 ? r : add_rows(j, lo, hi, 0, JOURNAL_SECTOR);
}

int journal_bytes(const struct edit_plan *plan, uint64_t *ret)
{
    struct journal j = {.before = plan->old_size, .after = plan->image->size};
    int r = add_rows(&j, 0, plan->head.len, 0, JOURNAL_UNIT);
    if (r == 0)
        r = add_data(&j, plan, NULL);
    *ret = 0;
    for (size_t i = 0; i < j.n; i++)
        *ret += j.row[i].n;
    journal_free(&j);
    return r;
}

/* ---- written ---- */

struct writing {
    const struct edit_file *f;
    const struct edit_plan *plan;
    const struct edit_hooks *hooks;
    struct journal *j;
    uint64_t own; /* new bytes before this offset in the journal belong to the log */
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
    return 0;
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

static int write_row(void *arg, uint64_t i, void *room)
{
    const struct writing *w = arg;
    const struct sys *s = w->f->sys;
    struct journal_row *row = &w->j->row[i];
    struct stretch *u = room;
    const size_t old_n = old_bytes(w->j, row);
    int r = sys_read_all(s, w->f->fd, u->now, old_n, row->at);
    if (r == 0)
        r = make_new(w, row, u);
    for (size_t k = 0; k < sectors_of(row) && r == 0; k++)
        put_u64(u->table + 8 * k, sector_sum(u->now, old_n, k), false);
    if (r == 0) {
        row->sum = row_sum(row, u);
        r = sys_write_all(s, w->j->fd, u->table, sectors_of(row) * 8, row->table);
    }
    if (r == 0 && row->src >= w->own)
        r = sys_write_all(s, w->j->fd, u->new, (size_t)row->n, row->src);
    if (r == 0 && row->n >= LARGE)
        sys_begin_sync(s, w->j->fd, row->src, row->n);
    return r;
}

static void on_progress(void *arg, uint64_t done, uint64_t all)
{
    const struct writing *w = arg;
    const uint64_t bytes = w->plan->changed;
    w->hooks->progress(done == all ? bytes : min_u64(done * JOURNAL_ROW, bytes), bytes,
                       w->hooks->arg);
}

/*
 * Writes all rows, using all processors, because most of the time is spent on reading and summing
 * bytes.
 */
static int write_rows(struct writing *w)
{
    struct units c = {.unit = write_row, .arg = w, .n = w->j->n, .room = sizeof(struct stretch)};
    struct units_watch watch = {.arg = w};
    watch.progress = w->hooks && w->hooks->progress ? on_progress : NULL;
    return units_run(&c, &watch);
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
static int fill(struct writing *w)
{
    struct journal *j = w->j;
    uint64_t at = w->own;
    for (size_t i = 0; i < j->n; i++)
        if (j->row[i].src == 0) {
            j->row[i].src = at = is_units(j, &j->row[i]) ? round_up(at, JOURNAL_UNIT) : at;
            at += round_up(j->row[i].n, JOURNAL_SECTOR);
        }
    (void)place_table(j, at + j->n * ROW + strlen(w->f->name));
    j->room = malloc(sizeof(*j->room));
    int r = j->room ? write_rows(w) : -ENOMEM;
    if (r == 0)
        r = write_head(w, at);
    if (r == 0)
        r = sys_sync(w->f->sys, j->fd);
    return r < 0 ? r : sys_sync_dir(w->f->sys, w->f->dir);
}

/*
 * Lets the model's owner read and write the journal, and others read it if they may read the model.
 * The model's mode is used only if the model has no ACL, any ACL of the journal can be removed, and
 * the journal has the model's group or all users may read the model. Otherwise the mode stays 0600.
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
 * Creates the journal's file, which has its name from the start but no head yet. If the file system
 * can name an unnamed file, the log becomes the journal; otherwise a new file does, and *lent is
 * set to NULL. *own: the offset from which the journal's own bytes can be written.
 */
static int make_file(const struct edit_file *f, struct log **lent, uint64_t *own, struct err *e)
{
    char name[NAME_MAX + 1];
    /* A log is not lent if it is already a journal, or if it cannot get a second descriptor. */
    int fd = *lent && log_close(*lent, own) ? fcntl((*lent)->src.fd, F_DUPFD_CLOEXEC, 0) : -1;
    edit_side_name(name, f->name, EDIT_JOURNAL_SUFFIX);
    if (fd >= 0 && f->sys->link(f->sys, fd, f->dir, name) < 0)
        sys_close(f->sys, &fd);
    if (fd < 0) {
        *lent = NULL;
        *own = JOURNAL_SECTOR;
        fd = f->sys->openat(f->sys, f->dir, name,
                            O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    }
    if (fd < 0)
        return err_sys(e, fd, "cannot create the journal");
    *own = round_up(*own, JOURNAL_SECTOR);
    give_to_owner(f, fd);
    return fd;
}

int journal_write(const struct edit_file *f, const struct edit_plan *plan,
                  const struct edit_hooks *hooks, struct journal *ret, struct err *e)
{
    struct journal j = {.sys = f->sys, .before = plan->old_size, .after = plan->image->size};
    struct writing w = {.f = f, .plan = plan, .hooks = hooks, .j = &j};
    struct log *lent = plan->lender;
    j.fd = make_file(f, &lent, &w.own, e);
    if (j.fd < 0)
        return j.fd;
    int r = add_header(&j, f, &plan->head);
    if (r == 0)
        r = add_data(&j, plan, lent);
    if (r == 0)
        r = fill(&w);
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

static int apply(struct edit_file *f, const struct journal *j)
{
    const struct sys *s = f->sys;
    int r = 0;
    for (size_t i = 0; i < j->n && r == 0; i++) {
        const struct journal_row *row = &j->row[i];
        r = sys_read_all(s, j->fd, j->room->new, (size_t)row->n, row->src);
        if (r == 0)
            r = sys_write_all(s, f->fd, j->room->new, (size_t)row->n, row->at);
        if (r == 0 && row->n >= LARGE)
            sys_begin_sync(s, f->fd, row->at, row->n);
    }
    if (r == 0)
        r = sys_sync(s, f->fd);
    return r < 0 ? r : edit_file_note(f, NULL);
}

int journal_apply(struct edit_file *f, const struct journal *j)
{
    int r = apply(f, j);
    return r < 0 ? apply(f, j) : r;
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
    if (n == 0 || n > JOURNAL_MAX_ROWS || name_len > NAME_MAX ||
        !add_u64(at, n * ROW + name_len, &end) || end > file)
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
static int judge(const struct edit_file *f, struct journal *j, uint64_t file, uint64_t size,
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
 * Opens the journal if there is one, and judges it. Checks the file's type before opening it,
 * because opening a device may have side effects.
 */
static int look(const struct edit_file *f, struct journal *j, struct err *e)
{
    const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
    char name[NAME_MAX + 1];
    struct stat model, st;
    int r = edit_file_stat(f, &model, e);
    if (r < 0 || model.st_nlink == 0) /* an unnamed file has no journal */
        return r;
    edit_side_name(name, f->name, EDIT_JOURNAL_SUFFIX);
    r = f->sys->fstatat(f->sys, f->dir, name, &st);
    if (r == 0 && !edit_is_ours(&st, &model)) {
        (void)planted(name, &st, &model, e);
        j->state = JOURNAL_PLANTED;
        return 0;
    }
    if (r == 0)
        r = f->sys->openat(f->sys, f->dir, name, flags, 0);
    if (r < 0)
        return r == -ENOENT ? 0 : err_sys(e, r, "cannot open the journal");
    j->sys = f->sys;
    j->fd = r;
    r = f->sys->fstat(f->sys, j->fd, &st);
    if (r < 0)
        return err_sys(e, r, "cannot stat the journal");
    if (st.st_nlink == 0) { /* its edit has just ended */
        journal_free(j);
        return 0;
    }
    return edit_is_ours(&st, &model) ? judge(f, j, (uint64_t)st.st_size, (uint64_t)model.st_size, e)
                                     : planted(name, &st, &model, e);
}

static bool see(const struct edit_file *f, struct journal_seen *ret)
{
    char name[NAME_MAX + 1];
    struct stat st;
    *ret = (struct journal_seen){0};
    if (f->sys->fstat(f->sys, f->fd, &st) < 0)
        return false;
    ret->model = edit_id_of(&st);
    edit_side_name(name, f->name, EDIT_JOURNAL_SUFFIX);
    int r = st.st_nlink ? f->sys->fstatat(f->sys, f->dir, name, &st) : -ENOENT;
    if (r == 0)
        ret->journal = edit_id_of(&st);
    return r == 0 || r == -ENOENT;
}

static bool seen_equal(const struct journal_seen *a, const struct journal_seen *b)
{
    return edit_id_equal(&a->model, &b->model) && edit_id_equal(&a->journal, &b->journal);
}

/* Returns true if another process holds the lock, without affecting f's own lock. */
static bool is_edited(const struct edit_file *f)
{
    if (f->locked)
        return false;
    int r = f->sys->flock(f->sys, f->fd, LOCK_SH | LOCK_NB);
    if (r == 0)
        (void)f->sys->flock(f->sys, f->fd, LOCK_UN);
    return r == -EWOULDBLOCK;
}

/* Looks again if another process may have begun or ended an edit during the read. */
int journal_load(const struct edit_file *f, struct journal *ret, struct journal_seen *seen,
                 struct err *e)
{
    struct journal_seen before, now;
    struct err why = {0};
    int r = 0;
    *ret = JOURNAL_INIT;
    for (int i = 0; i < LOOKS; i++) {
        const bool saw = see(f, &before);
        why = (struct err){0};
        r = look(f, ret, &why);
        if (r == 0)
            break;
        journal_free(ret);
        if (saw && see(f, &now) && seen_equal(&before, &now) && !is_edited(f))
            break;
    }
    if (seen)
        *seen = before;
    if (r == 0 && ret->state == JOURNAL_REDO)
        ret->live = is_edited(f) || !see(f, &now) || !seen_equal(&before, &now);
    if (r == -ESTALE && is_edited(f))
        return err_set(e, -EBUSY, "another process is editing the model; try again");
    if (why.code)
        (void)err_set(e, why.code, "%s", why.msg);
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
    int r = journal_load(f, &j, NULL, e);
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
 * have other hard links, because an edit with break_hardlinks leaves these on the old file. Files
 * of other users are not even opened.
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

int edit_overlay(const struct edit_file *f, struct edit_overlay *ret, struct err *e)
{
    struct edit_overlay o = EDIT_OVERLAY_INIT;
    int r = journal_load(f, &o.journal, &o.seen, &o.planted);
    if (r < 0)
        return err_set(e, r, "%s", o.planted.msg);
    free(o.journal.room); /* the journal is not compared again */
    o.journal.room = NULL;
    if (o.journal.state != JOURNAL_REDO)
        journal_free(&o.journal);
    *ret = o;
    return 0;
}

bool edit_overlay_holds(const struct edit_overlay *o, const struct edit_file *f)
{
    struct journal_seen now;
    return !see(f, &now) || seen_equal(&o->seen, &now);
}

int edit_overlay_source(struct edit_overlay *o, const struct edit_file *f, struct source *ret,
                        struct err *e)
{
    const struct journal *j = &o->journal;
    struct source file, journal = {.fd = -1};
    uint64_t at = 0;
    int r = source_fd(f->fd, &file, e);
    if (r == 0 && j->n)
        r = source_fd(j->fd, &journal, e);
    if (r < 0)
        return r;
    struct image *im = o->image = image_new(NULL);
    if (!im)
        return err_set(e, -ENOMEM, "no memory");
    const uint32_t no = image_file(im, file), from = image_file(im, journal);
    for (size_t i = 0; i < j->n; i++) {
        image_add_file(im, no, at, j->row[i].at - at);
        image_add_file(im, from, j->row[i].src, j->row[i].n);
        at = row_end(&j->row[i]);
    }
    image_add_file(im, no, at, (j->n ? j->after : file.size) - at);
    r = image_end(im);
    *ret = image_source(im);
    ret->fd = f->fd;
    return err_sys(e, r, "cannot overlay the journal on the model");
}

int edit_overlay_map(const struct edit_overlay *o, struct map *m, struct err *e)
{
    const struct journal *j = &o->journal;
    for (size_t i = 0; i < j->n; i++) {
        const struct journal_row *row = &j->row[i];
        void *at = (void *)(uintptr_t)(m->data + row->at);
        if (row->at >= m->size || !is_units(j, row) || row->src % JOURNAL_UNIT)
            continue;
        size_t n = (size_t)min_u64(row->n, m->size - row->at);
        if (mmap(at, n, PROT_READ, MAP_SHARED | MAP_FIXED, j->fd, (off_t)row->src) == MAP_FAILED)
            return err_set(e, -errno, "cannot map the journal: %s", strerror(errno));
    }
    if (j->n)
        m->own = min_u64(m->size, j->before);
    return 0;
}

void edit_overlay_free(struct edit_overlay *o)
{
    journal_free(&o->journal);
    image_unref(o->image);
    *o = EDIT_OVERLAY_INIT;
}

/* SPDX-License-Identifier: MIT */
/* A history for people: see history_look.h. */
#include "edit/history_look.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "edit/restore.h"

#define NAMES_SHOWN 5 /* of each kind of change; how many more there are is counted */

/* ---- what changed ---- */

enum kind { CHANGED, RENAMED_OR_ADDED, REMOVED, KINDS };

struct diff {
    const struct gguf *from, *to;
    struct buf names[KINDS];
    size_t n[KINDS];
    bool moved; /* keys that both have stand in another order */
};

static void add_name(struct diff *d, enum kind kind, const struct gguf *g, uint32_t kv)
{
    char shown[SHOW_MAX];
    struct buf *b = &d->names[kind];
    if (d->n[kind]++ < NAMES_SHOWN)
        buf_printf(b, "%s%s", b->len ? ", " : "",
                   show(shown, gguf_key(g, &g->kv[kv]), g->kv[kv].key_len));
}

static void compare(struct diff *d)
{
    uint32_t last = 0;
    for (uint32_t i = 0; i < d->to->n_kv; i++) {
        const struct gguf_kv *kv = &d->to->kv[i];
        uint32_t k = gguf_find_key(d->from, gguf_key(d->to, kv), kv->key_len);
        if (edit_key_is_own(d->to, i))
            continue;
        if (k == UINT32_MAX) {
            add_name(d, RENAMED_OR_ADDED, d->to, i);
            continue;
        }
        d->moved |= k < last;
        last = k;
        if (!gguf_same_value(d->from, k, d->to, i))
            add_name(d, CHANGED, d->to, i);
    }
    for (uint32_t k = 0; k < d->from->n_kv; k++) {
        const struct gguf_kv *kv = &d->from->kv[k];
        if (!edit_key_is_own(d->from, k) &&
            gguf_find_key(d->to, gguf_key(d->from, kv), kv->key_len) == UINT32_MAX)
            add_name(d, REMOVED, d->from, k);
    }
}

void history_describe(const struct gguf *from, const struct gguf *to, struct buf *out)
{
    static const char *const words[KINDS] = {"changed", "added", "removed"};
    struct diff d = {.from = from, .to = to};
    size_t begin = out->len;
    compare(&d);
    for (int kind = 0; kind < KINDS; kind++) {
        struct buf *b = &d.names[kind];
        if (d.n[kind]) {
            buf_printf(out, "%s%s ", out->len > begin ? "; " : "", words[kind]);
            buf_add(out, b->data, b->len);
        }
        if (d.n[kind] > NAMES_SHOWN)
            buf_printf(out, " and %zu more", d.n[kind] - NAMES_SHOWN);
        buf_free(b);
    }
    if (out->len == begin && d.moved)
        buf_str(out, "changed the order of the keys");
}

/* ---- the list ---- */

static bool left_by(const struct history_record *r, uint64_t id)
{
    return id == r->landed || id == r->planned;
}

/* A state, when it is known what comes after it. */
struct line {
    uint64_t number;
    struct history_record rec;
    struct gguf *keys; /* owned; NULL: no state exists */
};

static void put_time(int64_t at, struct buf *out)
{
    char text[64] = "";
    time_t t = (time_t)at;
    struct tm tm;
    if (localtime_r(&t, &tm))
        (void)strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm);
    buf_str(out, text);
}

static void put_line(const struct line *l, const struct gguf *next, bool last, struct buf *out)
{
    CLEANUP(buf_free) struct buf what = BUF_INIT;
    history_describe(l->keys, next, &what);
    if (what.len == 0)
        return;
    buf_printf(out, "%llu\t", (unsigned long long)l->number);
    put_time(l->rec.begin, out);
    buf_char(out, '\t');
    if (l->rec.restored)
        buf_printf(out, "undo, back to %llu: ", (unsigned long long)l->rec.restored);
    buf_add(out, what.data, what.len);
    if (last && !left_by(&l->rec, edit_keys_id(next)))
        buf_str(out, " (also by another program)");
    buf_char(out, '\n');
}

static void line_free(struct line *l)
{
    gguf_free(l->keys);
    *l = (struct line){0};
}

/* The line of a state, and those of damaged ones behind it. */
static void put_lines(struct line *l, struct buf *damaged, const struct gguf *next, bool last,
                      struct buf *out)
{
    if (l->keys)
        put_line(l, next, last, out);
    buf_add(out, damaged->data, damaged->len);
    buf_free(damaged);
    line_free(l);
}

int history_text(struct history *h, const struct gguf *now, struct buf *out, struct err *e)
{
    CLEANUP(history_list_free) struct history_list list = HISTORY_LIST_INIT;
    CLEANUP(buf_free) struct buf damaged = BUF_INIT;
    CLEANUP(line_free) struct line before = {0};
    int r = history_list(h, &list, e);
    for (size_t i = 0; i < list.n && r == 0; i++) {
        struct line l = {.number = list.name[i].number};
        struct err why = {0};
        int found = history_read_listed(h, &list.name[i], &l.rec, &l.keys, &why);
        if (found < 0) { /* the one before is compared with the next that can be read */
            buf_printf(&damaged, "%llu\tcannot be restored: %s\n", (unsigned long long)l.number,
                       why.msg);
            continue;
        }
        put_lines(&before, &damaged, l.keys, false, out);
        before = l;
    }
    put_lines(&before, &damaged, now, true, out);
    return r < 0 ? r : buf_error(out);
}

/* ---- which one ---- */

void history_pick_free(struct history_pick *p)
{
    gguf_free(p->keys);
    *p = HISTORY_PICK_INIT;
}

/* The last state whose edits reached the file. Behind it there is at most one that was never used. */
static int newest(struct history *h, const struct history_list *l, uint64_t id,
                  const struct history_name **ret, struct history_record *rec, struct err *e)
{
    for (size_t i = l->n; i > 0; i--) {
        *ret = &l->name[i - 1];
        int r = history_read_listed(h, *ret, rec, NULL, e);
        if (r < 0)
            return r;
        if (!history_is_void(rec) || (rec->planned == id && id != rec->before))
            return 0;
    }
    return err_set(e, -ENOENT, "there is nothing to undo: no edit of this model is recorded");
}

int history_pick(struct history *h, uint64_t number, const struct gguf *now,
                 struct history_pick *ret, struct err *e)
{
    CLEANUP(history_list_free) struct history_list list = HISTORY_LIST_INIT;
    struct history_record rec;
    struct err why = {0};
    const struct history_name *last = NULL;
    uint64_t id = edit_keys_id(now);
    *ret = HISTORY_PICK_INIT;
    int r = history_list(h, &list, e);
    if (r < 0)
        return r;
    r = newest(h, &list, id, &last, &rec, &why);
    ret->fits = r == 0 && left_by(&rec, id);
    if (number == 0 && r < 0)
        return err_set(e, r, "%s", why.msg);
    if (number == 0 && !ret->fits)
        return err_set(e, -ESTALE,
                       "the keys are not those that the last recorded edit left: another program "
                       "changed or replaced the file (ggufs --history shows the states, --undo=N "
                       "restores one in any case)");
    return number ? history_read(h, number, &ret->rec, &ret->keys, e)
                  : history_read_listed(h, last, &ret->rec, &ret->keys, e);
}

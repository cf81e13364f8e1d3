/* SPDX-License-Identifier: MIT */
/* The contract, and the states that answers allow: see oracle.h. */
#include "oracle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/hash.h"
#include "scheduler.h"

enum { FILES = 40, MOMENTS = 72, WAITING = 16, NONE = -1 };
enum { ALL_KEYS = (1 << KEYS) - 1 };
/* Answers besides -errno. */
enum { FAULT = 1, GONE, NO_UNDO, TAKEN_OUT, NO_TENSOR, NO_ROOM };

/* What may be seen at one moment. */
struct moment {
    value_t val[KEYS];
    uint16_t draft[KEYS]; /* code_of() a text that may be shown though it is not accepted, or 0 */
    int8_t file[NAMES];   /* the file of each name, or NONE */
    uint8_t gone;         /* keys whose removal is accepted, but may not be written yet */
    uint8_t written;      /* of these, those whose removal may be on the disk */
    uint8_t hidden;       /* keys renamed to a helper */
};

enum draft { CLEAN, EMPTIED, WRITTEN, REFUSED };

/* A file of metadata/, with its draft while some handle writes it. */
struct file {
    uint64_t node; /* 0: not known yet */
    int8_t name;   /* NONE: removed */
    bool used, helper;
    int8_t backs; /* a helper's: the hidden key whose text it has, or NONE */
    uint8_t type; /* a helper's: that of the key that it was, or that it was given, or 0 */
    bool given;   /* ... which counts for any key that it becomes */
    uint8_t draft, typed;
    struct chars text; /* of the draft, or of a helper */
    uint16_t version;  /* of its text */
    int16_t why;       /* REFUSED: the error that is repeated */
};

struct handle_of {
    int8_t file;
    bool writes, wrote, dirty;
    uint16_t version; /* of the text, after its last write */
};

enum edit { EDIT_TEXT, EDIT_NAME, EDIT_MOVE, EDIT_TYPE, WRITE_ALL, UNDO };

/* An edit that waits for its turn. */
struct waiting {
    uint8_t kind, typed;
    bool now;     /* what was accepted before it is written before its answer */
    bool removed; /* a rename's: the new name was removed after a signal had ended the wait */
    bool stored;  /* a key's rename: its value was there */
    uint8_t gone; /* keys that were removed before it */
    int8_t caller, file, from, to;
    struct chars text;
    uint16_t version;
};

struct state {
    struct moment now;
    struct file file[FILES];
    struct handle_of handle[HANDLES];
    struct waiting queue[WAITING];
    unsigned queued;
    struct {
        uint8_t phase; /* enum phase */
        bool waits;    /* its edit has waited for its turn */
        int16_t result;
        uint32_t since; /* the first moment that a look may see */
    } call[CALLERS];
    uint32_t floor; /* the first moment that may be on the disk */
    uint32_t moments;
    struct moment moment[MOMENTS];
};

enum phase { IDLE, BEGUN, QUEUED, DONE };

static struct oracle *o; /* of the call in progress */

/* ---- values and texts ---- */

value_t value_make(unsigned type, unsigned number)
{
    return (value_t)(type << 12 | number);
}

static unsigned type_of(value_t v)
{
    return v >> 12;
}

static int number_in(const char *b, unsigned n)
{
    int v = 0;
    for (unsigned i = 0; i < n; i++)
        v = v < 0 || b[i] < '0' || b[i] > '9' ? -1 : v * 10 + b[i] - '0';
    return n ? v : EMPTY;
}

/* Returns what the text is as a value of the type (0: a new key's), or -errno. */
static int judge(unsigned type, const struct chars *t)
{
    const int v = number_in(t->b, t->n && t->b[t->n - 1] == '\n' ? t->n - 1u : t->n);
    if (v < 0)
        return type == TYPE_U32 || type == TYPE_U64 ? -EINVAL : -EILSEQ;
    if (v == EMPTY)
        return type && type != TYPE_STRING ? -EINVAL : value_make(TYPE_STRING, EMPTY);
    return value_make(type ? type : TYPE_U32, (unsigned)v);
}

static struct chars text_of(value_t v)
{
    struct chars t = {"", 0};
    char s[16] = "";
    if (v)
        t.n = (uint8_t)((v & EMPTY) == EMPTY ? snprintf(s, sizeof(s), "\n")
                                             : snprintf(s, sizeof(s), "%u\n", v & EMPTY));
    memcpy(t.b, s, sizeof(t.b));
    return t;
}

/* Returns a number for each text. */
static uint16_t code_of(const char *b, unsigned n)
{
    uint16_t code = 1;
    for (unsigned i = 0; i < n; i++)
        code = (uint16_t)(code * 257 + (uint8_t)b[i] + 1);
    return code ? code : 1;
}

static uint16_t code_of_value(value_t v)
{
    const struct chars t = text_of(v);
    return code_of(t.b, t.n);
}

static bool same_text(const struct chars *a, const struct chars *b)
{
    return a->n == b->n && memcmp(a->b, b->b, a->n) == 0;
}

/* ---- files of a state ---- */

static bool is_rename(const struct waiting *q)
{
    return q->kind == EDIT_NAME || q->kind == EDIT_MOVE;
}

static unsigned writers(const struct state *s, int f, bool dirty)
{
    unsigned n = 0;
    for (unsigned i = 0; i < HANDLES; i++)
        n += s->handle[i].file == f && s->handle[i].writes && (!dirty || s->handle[i].dirty);
    return n;
}

static bool is_waiting(const struct state *s, int f)
{
    bool is = false;
    for (unsigned i = 0; i < s->queued; i++)
        is |= s->queue[i].file == f;
    return is;
}

/* Returns the key whose file this is, or NONE. */
static int key_of(const struct state *s, int f)
{
    return f >= 0 && !s->file[f].helper ? s->file[f].name : NONE;
}

/* Returns the key's value, which a key that is gone has not. */
static value_t stored(const struct state *s, int k)
{
    return s->now.gone & 1u << k ? 0 : s->now.val[k];
}

static int by_node(const struct state *s, uint64_t node)
{
    for (int f = 0; f < FILES; f++)
        if (s->file[f].used && s->file[f].node == node)
            return f;
    return NONE;
}

static int make_file(struct state *s, int name, bool helper)
{
    int f = 0;
    while (f < FILES && s->file[f].used)
        f++;
    if (f == FILES)
        sched_fail("the oracle has too few files");
    s->file[f] = (struct file){.used = true, .name = (int8_t)name, .helper = helper, .backs = NONE};
    s->now.file[name] = (int8_t)f;
    return f;
}

static void drop(struct state *s, int name)
{
    if (s->now.file[name] >= 0)
        s->file[s->now.file[name]].name = s->file[s->now.file[name]].backs = NONE;
    s->now.file[name] = NONE;
}

static void move_file(struct state *s, int f, int to)
{
    drop(s, to);
    if (s->file[f].name >= 0)
        s->now.file[s->file[f].name] = NONE;
    s->file[f].name = (int8_t)to;
    s->now.file[to] = (int8_t)f;
}

/* Returns whether nobody has a draft of the file: its last release may wait to be judged, and until
 * then the draft is what others append to. */
static bool has_no_draft(const struct state *s, int f)
{
    bool waits = false;
    for (unsigned i = 0; i < s->queued; i++)
        waits |= s->queue[i].kind == EDIT_TEXT && s->queue[i].file == f &&
                 s->queue[i].version == s->file[f].version;
    return !waits && !writers(s, f, false);
}

static bool is_shown(const struct state *s, int f)
{
    const unsigned d = s->file[f].draft;
    return (d == EMPTIED || d == WRITTEN) && !has_no_draft(s, f);
}

/* Returns whether its writers have flushed, and it was judged. */
static bool is_over(const struct state *s, int f)
{
    const unsigned d = s->file[f].draft;
    return (d == CLEAN || d == REFUSED) && !writers(s, f, true);
}

static void rewrite(struct state *s, int f, enum draft d)
{
    s->file[f].draft = (uint8_t)d;
    s->file[f].version++;
}

static void wrote(struct state *s, unsigned h)
{
    struct handle_of *q = &s->handle[h];
    q->wrote = q->dirty = true;
    q->version = s->file[q->file].version;
}

static void refuse(struct state *s, int f, uint16_t version, int why)
{
    struct file *x = &s->file[f];
    if (!writers(s, f, false) || x->version != version)
        return;
    x->draft = REFUSED;
    x->why = (int16_t)why;
}

static void accept(struct state *s, int f, uint16_t version)
{
    struct file *x = &s->file[f];
    if (x->version != version)
        return;
    x->draft = CLEAN;
    x->typed = 0;
}

/* Gives each visible key a file, and drops those that show nothing. */
static void tidy(struct state *s)
{
    for (int k = 0; k < KEYS; k++) {
        const int f = s->now.file[k];
        const bool visible = s->now.val[k] && !((s->now.gone | s->now.hidden) & 1u << k);
        if (visible && f < 0)
            (void)make_file(s, k, false);
        else if (!visible && f >= 0 && !writers(s, f, false) && !is_waiting(s, f))
            drop(s, k);
    }
    uint64_t used = 0;
    for (unsigned i = 0; i < HANDLES; i++)
        used |= s->handle[i].file >= 0 ? UINT64_C(1) << s->handle[i].file : 0;
    for (int f = 0; f < FILES; f++)
        if (s->file[f].used && s->file[f].name < 0 && !(used & UINT64_C(1) << f) &&
            !is_waiting(s, f))
            s->file[f] = (struct file){0};
}

/* ---- moments ---- */

/* Returns the first moment that a look may still see. */
static uint32_t looked_at(const struct state *s)
{
    uint32_t from = s->moments - 1;
    for (unsigned c = 0; c < CALLERS; c++)
        if (s->call[c].phase == BEGUN && o->op[c].kind <= OP_VIEW && s->call[c].since < from)
            from = s->call[c].since;
    return from;
}

static bool same_disk(const struct moment *a, const struct moment *b)
{
    return a->written == b->written && a->gone == b->gone &&
           memcmp(a->val, b->val, sizeof(a->val)) == 0;
}

/* Forgets what nobody can see any more: whole moments, or what is not on the disk. */
static void forget_moments(struct state *s)
{
    const uint32_t looks = looked_at(s);
    uint32_t n = 0, j;
    for (uint32_t i = 0; i < s->moments; i++) {
        struct moment m = s->moment[i];
        if (i < looks && i < s->floor)
            continue;
        for (j = 0; i < looks && j < n && !same_disk(&s->moment[j], &m); j++)
            ;
        if (i < looks && j < n)
            continue;
        if (i < looks) {
            memset(m.draft, 0, sizeof(m.draft));
            memset(m.file, 0, sizeof(m.file));
            m.hidden = 0;
        }
        s->moment[n++] = m;
    }
    const uint32_t less = s->moments - n;
    memset(&s->moment[n], 0, less * sizeof(struct moment));
    s->moments = n;
    s->floor = s->floor <= looks ? 0 : s->floor - less;
    for (unsigned c = 0; c < CALLERS; c++)
        s->call[c].since -= s->call[c].since ? less : 0;
}

static void add_moment(struct state *s, const struct moment *m)
{
    if (s->moments && memcmp(&s->moment[s->moments - 1], m, sizeof(*m)) == 0)
        return;
    if (s->moments == MOMENTS)
        forget_moments(s);
    if (s->moments == MOMENTS)
        sched_fail("the oracle has too few moments");
    s->moment[s->moments++] = *m;
}

static void note_moment(struct state *s)
{
    tidy(s);
    for (int k = 0; k < KEYS; k++) {
        const int f = s->now.file[k];
        const struct chars *text = f >= 0 && is_shown(s, f) ? &s->file[f].text : NULL;
        for (unsigned i = 0; i < s->queued && !text; i++)
            if (f >= 0 && s->queue[i].file == f && s->queue[i].kind == EDIT_TEXT)
                text = &s->queue[i].text;
        s->now.draft[k] = text ? code_of(text->b, text->n) : 0;
    }
    add_moment(s, &s->now);
}

static void end_removal(struct state *s, int k, bool written);

/* These removals were made. */
static void end_removals(struct state *s, unsigned removals)
{
    for (int k = 0; k < KEYS; k++)
        if (removals & s->now.gone & 1u << k)
            end_removal(s, k, true);
}

/* Everything up to now is on the disk, and so are these removals. */
static void on_disk(struct state *s, unsigned removals)
{
    end_removals(s, removals);
    note_moment(s);
    s->floor = s->moments - 1;
}

/* ---- the states to come ---- */

static struct {
    struct state *at;
    unsigned n, room;
} todo;

static void emit(const struct state *s)
{
    if (todo.n == todo.room) {
        o->lost = true;
        return;
    }
    todo.at[todo.n] = *s;
    note_moment(&todo.at[todo.n++]);
}

static void done(struct state *s, int caller, int result)
{
    if (caller < 0)
        return;
    s->call[caller].phase = DONE;
    s->call[caller].result = (int16_t)result;
}

static void emit_done(const struct state *s, int caller, int result)
{
    struct state t = *s;
    done(&t, caller, result);
    emit(&t);
}

static void into_queue(struct state *s, int caller, struct waiting q)
{
    if (s->queued == WAITING)
        sched_fail("the oracle has too short a queue");
    q.caller = (int8_t)caller;
    q.gone = s->now.gone;
    s->queue[s->queued++] = q;
}

static void wait_turn(struct state *s, int caller, struct waiting q)
{
    into_queue(s, caller, q);
    if (caller >= 0) {
        s->call[caller].phase = QUEUED;
        s->call[caller].waits = true;
    }
    emit(s);
}

/* ---- a removal that is taken back, or not ---- */

static void unhide(struct state *s, int k)
{
    for (int f = 0; f < FILES; f++)
        if (s->file[f].used && s->file[f].backs == k)
            s->file[f].backs = NONE;
    s->now.hidden &= (uint8_t) ~(1u << k);
}

/* The removal of a key is taken back, or it has been written. */
static void end_removal(struct state *s, int k, bool written)
{
    const uint8_t bit = (uint8_t)(1u << k);
    if (!(s->now.gone & bit))
        return;
    s->now.gone &= (uint8_t)~bit;
    s->now.written &= (uint8_t)~bit;
    if (written)
        s->now.val[k] = 0;
    if (written || o->astray)
        return;
    for (uint32_t i = s->moments; i > s->floor && s->moment[i - 1].gone & bit; i--)
        s->moment[i - 1].written &= (uint8_t)~bit; /* but not an earlier removal's */
}

/* A key that was removed or hidden is created: it is the same key. late: its removal is being
 * written, so it is gone until its name has a new value. */
static void spare(struct state *s, int k, bool late)
{
    unhide(s, k);
    if (!late)
        end_removal(s, k, false);
}

static unsigned ways_to_spare(const struct state *s, int k)
{
    return s->now.gone & 1u << k ? 2 : 1;
}

static void removed(struct state *s, int k)
{
    for (unsigned i = 0; i < s->queued; i++)
        s->queue[i].removed |= is_rename(&s->queue[i]) && s->queue[i].to == k;
    if (!s->now.val[k])
        return;
    s->now.gone |= (uint8_t)(1u << k);
    s->now.written |= (uint8_t)(1u << k);
    /* an edit that is written just then is written with the removal, or fails for want of its room */
    for (unsigned c = 0; c < CALLERS && o->fails; c++)
        if (s->call[c].phase == DONE && s->call[c].result == 0 &&
            (o->op[c].kind == OP_FSYNC || o->op[c].kind == OP_SYNC))
            s->call[c].result = NO_ROOM;
}

/* The helper with the only text of a hidden key is gone: the key was meant. */
static void lost_backup(struct state *s, int k)
{
    if (k < 0)
        return;
    s->now.hidden &= (uint8_t) ~(1u << k);
    removed(s, k);
}

/* ---- calls ---- */

static void fails(const struct state *s, int c)
{
    if (o->fails)
        emit_done(s, c, FAULT);
}

/* A new handle on a file. */
static void opened(struct state *s, unsigned c, int f, bool emptied)
{
    const struct op *q = &o->op[c];
    struct file *x = &s->file[f];
    const int k = key_of(s, f);
    const bool writes = q->flags & F_WRITE, first = has_no_draft(s, f);
    if (writes && (first || (k >= 0 && is_over(s, f)))) {
        if (k >= 0)
            x->text = text_of(stored(s, k));
        x->typed = 0;
        rewrite(s, f, CLEAN);
    }
    s->handle[q->handle] = (struct handle_of){.file = (int8_t)f, .writes = writes};
    if (writes && emptied) {
        x->text = (struct chars){"", 0};
        rewrite(s, f, EMPTIED);
        wrote(s, q->handle);
    }
}

/* The call opens a file that is there. Its draft may be over; if it was a new key's, a type given
 * since then counts or does not, because the file is only there until a late release. */
static void open_there(const struct state *s, unsigned c, int f)
{
    const unsigned typed = s->file[f].typed;
    const int k = key_of(s, f);
    struct state t = *s;
    opened(&t, c, f, o->op[c].flags & F_TRUNC);
    emit_done(&t, (int)c, 0);
    if (k < 0 || stored(s, k) || t.file[f].typed == typed)
        return;
    t.file[f].typed = (uint8_t)typed;
    emit_done(&t, (int)c, 0);
}

static void start_open(struct state *s, unsigned c)
{
    const struct op *q = &o->op[c];
    const int f = by_node(s, q->node);
    fails(s, (int)c);
    if (f < 0 || s->file[f].name < 0)
        emit_done(s, (int)c, GONE);
    if (f < 0 || (s->file[f].name < 0 && q->flags & F_WRITE))
        return;
    open_there(s, c, f);
}

static void start_create(struct state *s, unsigned c)
{
    const struct op *q = &o->op[c];
    fails(s, (int)c);
    if (q->name < KEYS && s->now.hidden & 1u << q->name) { /* even so, it may be there again */
        struct state t = *s;
        spare(&t, q->name, false);
        fails(&t, (int)c);
    }
    if (s->now.file[q->name] >= 0) {
        if (q->flags & F_EXCL)
            emit_done(s, (int)c, -EEXIST);
        else
            open_there(s, c, s->now.file[q->name]);
        return;
    }
    const bool helper = q->name >= KEYS;
    for (unsigned way = 0; way < (helper ? 1 : ways_to_spare(s, q->name)); way++) {
        struct state t = *s;
        if (!helper)
            spare(&t, q->name, way);
        opened(&t, c, make_file(&t, q->name, helper), true);
        emit_done(&t, (int)c, 0);
    }
}

static void overwrite(struct chars *t, const struct chars *with)
{
    memcpy(t->b, with->b, with->n);
    t->n = with->n > t->n ? with->n : t->n;
}

static unsigned type_for(const struct state *s, int k, unsigned typed)
{
    return typed ? typed : type_of(stored(s, k));
}

static void write_on(struct state t, unsigned c, const struct chars *base)
{
    const unsigned h = o->op[c].handle;
    const int f = t.handle[h].file, k = key_of(&t, f);
    struct file *x = &t.file[f];
    if (base)
        x->text = *base;
    if (base && x->draft == REFUSED)
        x->typed = 0;
    overwrite(&x->text, &o->op[c].text);
    rewrite(&t, f, WRITTEN);
    wrote(&t, h);
    emit_done(&t, (int)c, 0);
    const struct chars *now = &x->text;
    if (k < 0 ||
        number_in(now->b, now->n && now->b[now->n - 1] == '\n' ? now->n - 1u : now->n) >= 0)
        return;
    const int why = judge(type_for(&t, k, x->typed), now); /* no continuation can make it valid */
    t.call[c].phase = BEGUN;
    t.call[c].waits = true;
    emit(&t); /* a flush may take it before it is refused */
    refuse(&t, f, x->version, why);
    emit_done(&t, (int)c, why);
}

static void start_write(struct state *s, unsigned c)
{
    const struct handle_of *h = &s->handle[o->op[c].handle];
    const int f = h->file, k = key_of(s, f);
    if (s->call[c].waits) { /* to be refused */
        const struct chars spoilt = {"\xff", 1};
        const int why = judge(k < 0 ? 0 : type_for(s, k, s->file[f].typed), &spoilt);
        refuse(s, f, h->version, why);
        emit_done(s, (int)c, why);
        return;
    }
    write_on(*s, c, NULL);
    /* a judged draft may go as soon as its writers have flushed, and a refused one before others write */
    const bool others = s->file[f].draft == REFUSED && is_over(s, f) && !h->wrote;
    if (k < 0 || (s->file[f].draft != CLEAN && !others))
        return;
    const struct chars is = text_of(stored(s, k));
    if (others || !same_text(&is, &s->file[f].text))
        write_on(*s, c, &is);
}

static void start_cut(struct state *s, unsigned c)
{
    const unsigned h = o->op[c].handle;
    s->file[s->handle[h].file].text = (struct chars){"", 0};
    rewrite(s, s->handle[h].file, EMPTIED);
    wrote(s, h);
    emit_done(s, (int)c, 0);
}

static struct waiting judged(const struct state *s, int f, bool now)
{
    const struct file *x = &s->file[f];
    return (struct waiting){.kind = EDIT_TEXT,
                            .now = now,
                            .file = (int8_t)f,
                            .from = (int8_t)x->name,
                            .text = x->text,
                            .typed = x->typed,
                            .version = x->version};
}

static void start_flush(struct state *s, unsigned c, bool sync)
{
    struct handle_of *h = &s->handle[o->op[c].handle];
    const int f = h->file;
    const bool key = h->writes && key_of(s, f) >= 0;
    const bool written = key && s->file[f].draft == WRITTEN;
    const bool judges = written && (sync || h->dirty || !writers(s, f, true));
    h->dirty = false;
    if (key && h->wrote && s->file[f].draft == REFUSED)
        emit_done(s, (int)c, s->file[f].why);
    else if (judges)
        wait_turn(s, (int)c, judged(s, f, sync));
    else if (sync)
        wait_turn(s, (int)c, (struct waiting){.kind = WRITE_ALL, .now = true, .file = NONE});
    else
        emit_done(s, (int)c, 0);
}

static bool has_empty_value(const struct state *s, int f)
{
    const unsigned type = type_for(s, s->file[f].name, s->file[f].typed);
    return !type || type == TYPE_STRING;
}

/* Returns whether the last release of a key's file is an edit. */
static bool brings_text(const struct state *s, int f)
{
    const unsigned d = s->file[f].draft;
    return d == WRITTEN || (d == EMPTIED && has_empty_value(s, f));
}

static void start_release(struct state *s, unsigned c)
{
    struct handle_of *h = &s->handle[o->op[c].handle];
    const int f = h->file;
    const bool writes = h->writes;
    *h = (struct handle_of){.file = NONE};
    done(s, (int)c, 0);
    if (!writes || writers(s, f, false))
        emit(s);
    else if (key_of(s, f) >= 0 && brings_text(s, f))
        wait_turn(s, NONE, judged(s, f, false));
    else
        emit(s);
}

static void start_unlink(struct state *s, unsigned c)
{
    const int name = o->op[c].name, f = s->now.file[name];
    if (f < 0) {
        emit_done(s, (int)c, -ENOENT);
        return;
    }
    fails(s, (int)c);
    const int backs = s->file[f].backs;
    drop(s, name);
    if (name >= KEYS)
        lost_backup(s, backs);
    else
        removed(s, name);
    emit_done(s, (int)c, 0);
}

static void rename_to_helper(struct state *s, unsigned c, int f)
{
    const int from = o->op[c].name, to = o->op[c].to, target = s->now.file[to];
    const int backs = target >= 0 ? s->file[target].backs : NONE;
    struct file *x = &s->file[f];
    const bool key = !x->helper;
    if (key) {
        const value_t v = stored(s, from);
        const bool keeps = is_shown(s, f) || (writers(s, f, false) && !v);
        if (!keeps)
            x->text = text_of(v);
        if (x->draft != EMPTIED)
            rewrite(s, f, CLEAN);
        x->given = keeps && x->typed; /* what the text has been given goes with it */
        x->type = (uint8_t)(x->given ? x->typed : type_of(v));
        x->typed = 0;
        x->helper = true;
        if (v || is_waiting(s, f)) {
            x->backs = (int8_t)from;
            s->now.hidden |= (uint8_t)(1u << from);
        }
    }
    move_file(s, f, to);
    lost_backup(s, backs);
    emit_done(s, (int)c, 0);
}

/* A file has become a key's. */
static void become(struct state *s, int f, int to)
{
    const int backs = s->file[f].backs;
    s->file[f].backs = NONE;
    s->file[f].helper = false;
    move_file(s, f, to);
    if (backs != to)
        lost_backup(s, backs);
}

static void rename_to_key(const struct state *s, unsigned c, int f)
{
    const int from = o->op[c].name, to = o->op[c].to;
    const struct file *x = &s->file[f];
    const bool unwritten = x->helper && x->draft == EMPTIED && !x->text.n && writers(s, f, false);
    const struct waiting q = {.kind = x->helper ? EDIT_NAME : EDIT_MOVE,
                              .file = (int8_t)f,
                              .from = (int8_t)from,
                              .to = (int8_t)to,
                              .text = x->text,
                              .version = x->version,
                              .stored = !x->helper && stored(s, from)};
    if (!(unwritten && writers(s, f, true))) {
        struct state t = *s;
        wait_turn(&t, (int)c, q);
    }
    if (!unwritten && (x->helper || stored(s, from)))
        return;
    for (unsigned way = 0; way < ways_to_spare(s, to); way++) {
        struct state t = *s;
        spare(&t, to, way);
        if (x->helper)
            t.file[f].typed = x->given ? x->type : 0;
        become(&t, f, to);
        emit_done(&t, (int)c, 0);
    }
}

static void start_rename(struct state *s, unsigned c)
{
    const struct op *q = &o->op[c];
    const int f = s->now.file[q->name];
    if (f < 0 || q->name == q->to)
        emit_done(s, (int)c, f < 0 ? -ENOENT : 0);
    else if (q->to >= KEYS)
        rename_to_helper(s, c, f);
    else
        rename_to_key(s, c, f);
}

static void start_retype(struct state *s, unsigned c)
{
    const int f = by_node(s, o->op[c].node);
    const unsigned type = o->op[c].type;
    if (f < 0 || s->file[f].name < 0) {
        if (f >= 0) /* nobody can see the type of a file that was removed */
            emit_done(s, (int)c, 0);
        emit_done(s, (int)c, GONE);
        return;
    }
    struct file *x = &s->file[f];
    const int k = key_of(s, f);
    const struct waiting edit = {
        .kind = EDIT_TYPE, .typed = (uint8_t)type, .file = (int8_t)f, .from = x->name};
    if (k < 0) {
        struct state t = *s;
        if (is_waiting(s, f)) /* it may be about to become a key */
            wait_turn(&t, (int)c, edit);
        x->type = (uint8_t)type;
        x->given = true;
        emit_done(s, (int)c, 0);
        return;
    }
    const bool coming =
        writers(s, f, false) &&
        (is_shown(s, f) || (x->draft == REFUSED && !is_over(s, f)) || !stored(s, k));
    if (coming) {
        struct state t = *s;
        t.file[f].typed = (uint8_t)type;
        emit_done(&t, (int)c, 0);
    }
    if (type == type_of(stored(s, k)))
        emit_done(s, (int)c, 0);
    if (coming && !is_waiting(s, f) && !o->stopped) /* a signal may have ended a wait meanwhile */
        return;
    x->typed = 0;
    wait_turn(s, (int)c, edit);
}

static void start_truncate(struct state *s, unsigned c)
{
    const int f = by_node(s, o->op[c].node);
    if (f < 0 || s->file[f].name < 0) {
        emit_done(s, (int)c, GONE);
        return;
    }
    fails(s, (int)c);
    struct file *x = &s->file[f];
    const int k = key_of(s, f);
    if (k >= 0 && (has_no_draft(s, f) || is_over(s, f)))
        x->typed = 0;
    x->text = (struct chars){"", 0};
    rewrite(s, f, EMPTIED);
    if (k >= 0 && !writers(s, f, true) && has_empty_value(s, f)) {
        wait_turn(s, (int)c, judged(s, f, false));
        return;
    }
    if (k >= 0 && !writers(s, f, true)) { /* a mere truncation of a number ends the draft */
        rewrite(s, f, CLEAN);
        x->typed = 0;
    }
    emit_done(s, (int)c, 0); /* those who write it bring it */
}

static void start(const struct state *from, unsigned c)
{
    struct state s = *from;
    switch (o->op[c].kind) {
    case OP_OPEN:
        start_open(&s, c);
        break;
    case OP_CREATE:
        start_create(&s, c);
        break;
    case OP_WRITE:
        start_write(&s, c);
        break;
    case OP_CUT:
        start_cut(&s, c);
        break;
    case OP_FLUSH:
    case OP_FSYNC:
        start_flush(&s, c, o->op[c].kind == OP_FSYNC);
        break;
    case OP_RELEASE:
        start_release(&s, c);
        break;
    case OP_UNLINK:
        start_unlink(&s, c);
        break;
    case OP_RENAME:
        start_rename(&s, c);
        break;
    case OP_RETYPE:
        start_retype(&s, c);
        break;
    case OP_TRUNCATE:
        start_truncate(&s, c);
        break;
    case OP_SYNC:
    case OP_UNDO:
        wait_turn(&s, (int)c,
                  (struct waiting){.kind = o->op[c].kind == OP_SYNC ? WRITE_ALL : UNDO,
                                   .now = true,
                                   .file = NONE});
        break;
    default:
        break;
    }
}

/* ---- an edit whose turn has come ---- */

/* Returns the key that an edit is of, or NONE. *either: or of none: its file was removed, but the key
 * was created anew while the edit had its turn, which took the removal back. */
static int key_meant(const struct state *s, const struct waiting *q, bool *either)
{
    *either = false;
    if (is_rename(q))
        return q->to;
    if (q->file < 0 || key_of(s, q->file) >= 0)
        return key_of(s, q->file);
    const struct file *x = &s->file[q->file];
    if (x->helper && x->backs >= 0 && (q->from < KEYS || q->kind == EDIT_TYPE))
        return x->backs; /* it was renamed meanwhile */
    if (q->from >= KEYS) /* a helper that did not become a key */
        return NONE;
    *either = s->now.file[q->from] >= 0 || s->now.hidden & 1u << q->from;
    return *either ? q->from : NONE;
}

/* Returns whether a key that is renamed has neither a value nor a text that comes. */
static bool is_lost(const struct state *s, const struct waiting *q)
{
    const bool comes = !q->stored && (writers(s, q->file, false) || is_waiting(s, q->file));
    return q->kind == EDIT_MOVE && !stored(s, q->from) && !(comes && key_of(s, q->file) == q->from);
}

/* Makes the edit of key k in s. Returns the answer, or 0. *edits: it changes a value. */
static int make_edit(struct state *s, const struct waiting *q, bool *edits, int k)
{
    value_t *v = k >= 0 ? &s->now.val[k] : NULL;
    *edits = false;
    if (q->kind == WRITE_ALL || q->kind == UNDO || (q->kind == EDIT_TEXT && !v))
        return 0;
    if (q->kind == EDIT_TYPE && !v && s->file[q->file].helper && s->file[q->file].name != NONE) {
        s->file[q->file].type = q->typed;
        s->file[q->file].given = true;
        return 0;
    }
    if (q->kind == EDIT_TYPE && !(v && stored(s, k)))
        return -ENOENT;
    if (q->kind == EDIT_MOVE && !stored(s, q->from)) /* a new key: its draft moves */
        return is_lost(s, q) ? -ENOENT : 0;
    int is;
    unsigned typed = q->typed;
    struct chars text = q->text;
    if (q->kind == EDIT_NAME && (s->file[q->file].given || !*v))
        typed = s->file[q->file].type;
    if (q->kind == EDIT_MOVE)
        text = text_of(s->now.val[q->from]);
    if (q->kind == EDIT_TYPE)
        text = text_of(*v);
    if (q->kind == EDIT_MOVE && !*v)
        is = s->now.val[q->from];
    else
        is = judge(type_for(s, k, typed), &text);
    if (is < 0)
        return is;
    *edits = is != *v || q->kind == EDIT_MOVE;
    *v = (value_t)is;
    if (q->kind == EDIT_MOVE)
        s->now.val[q->from] = 0;
    return 0;
}

/* Follows an edit that was made, or that was not (why < 0, or FAULT). */
static void end_edit(struct state *s, const struct waiting *q, int why)
{
    if (why && q->kind == EDIT_TEXT)
        refuse(s, q->file, q->version, why);
    if (why && why != -ENOENT && is_rename(q) && q->caller >= 0)
        spare(s, q->to, false);
    if (why)
        return;
    if (q->kind == EDIT_TEXT || (q->kind == EDIT_NAME && q->caller >= 0))
        accept(s, q->file, q->version);
    if (!is_rename(q))
        return;
    if (q->removed)
        removed(s, q->to);
    if (q->caller < 0) /* a signal ended the wait: both names stay as they are */
        return;
    spare(s, q->to, false);
    if (s->file[q->file].backs >= 0) /* the key that was moved aside goes right after the edit */
        add_moment(s, &s->now);
    if (q->kind == EDIT_MOVE && !q->stored && stored(s, q->to)) /* the target keeps its type */
        s->file[q->file].typed = 0;
    become(s, q->file, q->to);
    if (q->kind == EDIT_NAME && !writers(s, q->file, false) && brings_text(s, q->file))
        into_queue(s, NONE, judged(s, q->file, false)); /* it was closed when it was a helper */
}

/* other: a key that was renamed was removed after that had begun. written: if the key was removed,
 * that is in the file. */
static void take_turn_as(const struct state *from, int k, bool other, bool written)
{
    struct state before = *from, s;
    struct waiting q = from->queue[0];
    bool edits;
    before.queued--;
    memmove(before.queue, before.queue + 1, before.queued * sizeof(q));
    memset(before.queue + before.queued, 0, sizeof(q));
    if (k >= 0 && q.kind != EDIT_TYPE && !is_lost(&before, &q))
        end_removal(&before, k, written);
    s = before;
    int why = make_edit(&s, &q, &edits, k);
    if (why == -ENOENT && other) {
        end_removal(&s, q.from, false);
        why = make_edit(&s, &q, &edits, k);
    }
    /* with a faulty medium, a journal that could not be removed may come back after a power cut */
    const bool writes = (edits && o->durable) || (q.now && !(o->astray && !edits));
    if (why) { /* refused: everything stays as it was */
        s = before;
    } else if (o->fails && (edits || q.now || o->durable)) {
        /* who changes nothing also hears of an earlier edit that is not finished */
        struct state t = before;
        end_edit(&t, &q, edits ? FAULT : 0); /* an equal text is accepted */
        if (o->astray) {
            struct moment there = t.now;
            for (int i = 0; i < KEYS; i++)
                there.val[i] = stored(&s, i);
            add_moment(&t, &there);
        }
        done(&t, q.caller, FAULT);
        emit(&t);
    }
    if (q.kind == UNDO)
        emit_done(&before, q.caller, NO_UNDO);
    if (q.kind == WRITE_ALL && o->tensors) /* a new tensor could not be added */
        emit_done(&before, q.caller, NO_TENSOR);
    end_edit(&s, &q, why);
    if (!why && q.now && o->fails && (s.now.gone || o->tensors)) { /* no room for a removal alone */
        struct state t = s;
        on_disk(&t, 0);
        emit_done(&t, q.caller, FAULT);
    }
    if (!why && writes)
        on_disk(&s, q.now ? q.gone : 0);
    else if (!why && q.now)
        end_removals(&s, q.gone);
    if (!why && writes && o->finishes)
        emit_done(&s, q.caller, FAULT); /* in place, after the journal: it is finished later */
    done(&s, q.caller, why);
    emit(&s);
}

/* A signal ends the wait of an edit, which does not happen. */
static void take_out(const struct state *from, unsigned i)
{
    struct state s = *from;
    done(&s, s.queue[i].caller, TAKEN_OUT);
    s.queued--;
    memmove(&s.queue[i], &s.queue[i + 1], (s.queued - i) * sizeof(s.queue[0]));
    memset(&s.queue[s.queued], 0, sizeof(s.queue[0]));
    emit(&s);
}

static void take_turn(const struct state *s)
{
    const struct waiting *q = &s->queue[0];
    bool either;
    if (q->caller >= 0 && o->stopped & 1u << q->caller) {
        struct state t = *s; /* its turn has begun */
        t.queue[0].caller = NONE;
        done(&t, q->caller, TAKEN_OUT);
        if (is_rename(q))
            emit(&t);
        take_out(s, 0);
    }
    const int k = key_meant(s, q, &either);
    const bool gone = k >= 0 && s->now.gone & 1u << k;
    if (gone && q->kind != EDIT_TYPE)
        take_turn_as(s, k, false, true);
    if (!gone || q->kind != EDIT_TEXT || o->fails)
        take_turn_as(s, k, false, false);
    if (either) /* the text is no longer the key's */
        take_turn_as(s, NONE, false, false);
    if (q->kind == EDIT_MOVE && q->caller < 0)
        take_turn_as(s, k, true, false);
    if (is_rename(q) && gone && !q->removed) { /* it shows the key before it is done */
        struct state t = *s;
        end_removal(&t, k, false);
        emit(&t);
    }
}

/* ---- all states ---- */

static unsigned visited_n;
static struct state *visited_at; /* of the search in progress, then its results */
static uint32_t slots[4 * STATES];

static void begin_search(void)
{
    memset(slots, 0, sizeof(slots));
    visited_n = todo.n = 0;
}

/* Returns whether the state is new. */
static bool visit(const struct state *s)
{
    const size_t n = offsetof(struct state, moment) + s->moments * sizeof(struct moment);
    uint64_t h = 14695981039346656037u;
    const uint64_t *p = (const uint64_t *)s;
    for (size_t i = 0; i < n / 8; i++)
        h = (h ^ p[i]) * 1099511628211u + (h >> 29);
    uint32_t i = (uint32_t)(h >> 20) % (4 * STATES);
    for (; slots[i]; i = (i + 1) % (4 * STATES)) {
        const struct state *t = &visited_at[slots[i] - 1];
        if (t->moments == s->moments && memcmp(t, s, n) == 0)
            return false;
    }
    if (visited_n == STATES) {
        o->lost = true;
        return false;
    }
    visited_at[visited_n] = *s;
    slots[i] = ++visited_n;
    return true;
}

typedef bool fits_fn(struct state *s, unsigned caller, const void *arg);

/* Returns the number of states in which the answer fits, each reached by as few steps as possible.
 * PROBE: only whether there is one. Otherwise they are in o->state; ANSWER: the call has ended. */
enum search { PROBE, PARK, ANSWER };
static unsigned search(unsigned caller, fits_fn *fits, const void *arg, enum search how)
{
    unsigned n = 0;
    static struct state s;
    begin_search();
    for (unsigned i = 0; i < o->n; i++) {
        todo.at[todo.n++] = o->state[i];
    }
    struct state *found = o->state + STATES; /* the second half */
    while (todo.n && !o->lost) {
        s = todo.at[--todo.n];
        if (!visit(&s))
            continue;
        if (fits(&s, caller, arg)) {
            found[n++] = s;
            if (how == PROBE)
                return n;
            continue;
        }
        for (unsigned c = 0; c < CALLERS; c++)
            if (s.call[c].phase == BEGUN && o->op[c].kind > OP_VIEW)
                start(&s, c);
        if (s.queued)
            take_turn(&s);
    }
    if (o->lost) { /* there are too many: from here on, only the form of the file is checked */
        o->off = true;
        return 1;
    }
    if (how == PROBE)
        return n;
    begin_search();
    unsigned left = 0;
    for (unsigned i = 0; i < n; i++) {
        if (how == ANSWER && caller < CALLERS) {
            memset(&found[i].call[caller], 0, sizeof(found[i].call[caller]));
        }
        forget_moments(&found[i]);
        if (visit(&found[i]))
            left++;
    }
    if (left)
        memcpy(o->state, visited_at, left * sizeof(struct state));
    if (left)
        o->n = left;
    sched_note("%u states, visited %u, %u calls %s", o->n, n, caller, "");
    return left;
}

static const char *const kinds[] = {"lookup", "read",   "list",     "view",  "open",    "create",
                                    "write",  "cut",    "flush",    "fsync", "release", "unlink",
                                    "rename", "retype", "truncate", "sync",  "undo"};

/* ---- what a finding says ---- */

static unsigned tell_state(const struct state *s, char *dst, unsigned room)
{
    static const char *const drafts[] = {"clean", "emptied", "written", "refused"};
    unsigned n = 0;
#define TELL(...) n += n < room ? (unsigned)snprintf(dst + n, room - n, __VA_ARGS__) : 0
    for (int k = 0; k < KEYS; k++) {
        const int f = s->now.file[k];
        TELL(" %s%s%s%s=%u:%d", names[k], s->now.gone & 1u << k ? "(gone)" : "",
             s->now.hidden & 1u << k ? "(hidden)" : "", f >= 0 ? "" : "(none)",
             type_of(s->now.val[k]), s->now.val[k] & EMPTY);
        if (f >= 0)
            TELL("@%llx", (unsigned long long)s->file[f].node);
        if (f >= 0 && writers(s, f, false))
            TELL("/%s \"%.*s\"", drafts[s->file[f].draft],
                 (int)(s->file[f].text.n ? s->file[f].text.n - 1 : 0), s->file[f].text.b);
    }
    for (int i = KEYS; i < NAMES; i++)
        if (s->now.file[i] >= 0)
            TELL(" %s", names[i]);
    TELL("; waiting");
    for (unsigned i = 0; i < s->queued; i++)
        TELL(" %u(%d)", s->queue[i].kind, s->queue[i].caller);
    TELL("; calls");
    for (unsigned c = 0; c < CALLERS; c++)
        if (s->call[c].phase)
            TELL(" %u:%s %u", c, kinds[o->op[c].kind], s->call[c].phase);
#undef TELL
    return n;
}

static _Noreturn void wrong(unsigned caller, const char *what)
{
    char text[900] = "";
    for (unsigned i = 0; i < o->n && i < 8; i++) {
        (void)tell_state(&o->state[i], text, sizeof(text));
        sched_note("state %u of %u:%s", i, o->n, text);
    }
    (void)tell_state(&o->state[0], text, sizeof(text));
    const struct op *q = caller < CALLERS ? &o->op[caller] : NULL;
    sched_fail("%s %s: %s; of %u states the first is%s", q ? kinds[q->kind] : "a look at the disk",
               q && (q->kind == OP_LOOKUP || q->kind == OP_CREATE || q->kind == OP_UNLINK ||
                     q->kind == OP_RENAME)
                   ? names[q->name]
                   : "",
               what, o->n, text);
}

/* ---- calls ---- */

void oracle_call(struct oracle *of, unsigned caller, const struct op *op)
{
    o = of;
    o->op[caller] = *op;
    sched_note("%c: %s %s %s, node %llx, handle %u, type %u", "ABCDZ-"[caller], kinds[op->kind],
               names[op->name], names[op->to], (unsigned long long)op -> node, op -> handle,
               op -> type);
    o->stopped &= ~(1u << caller);
    for (unsigned i = 0; i < o->n; i++) {
        struct state *s = &o->state[i];
        s->call[caller].phase = BEGUN;
        if (op->kind <= OP_VIEW)
            s->call[caller].since = s->moments - 1;
    }
}

void oracle_signal(struct oracle *of, unsigned caller)
{
    of->stopped |= 1u << caller;
}

static bool fits_parked(struct state *s, unsigned c, const void *arg)
{
    (void)arg;
    return s->call[c].waits;
}

/* Follows the states to all in which the answer fits. If there is none, the run fails, with a text
 * that says what was answered. */
static void follow(struct oracle *of, unsigned caller, fits_fn *fits, const void *arg,
                   enum search how, const char *text)
{
    o = of;
    if (!o->off && !search(caller, fits, arg, how))
        wrong(caller, text);
}

void oracle_parked(struct oracle *of, unsigned caller)
{
    follow(of, caller, fits_parked, NULL, PARK, "waits, which it should not");
}

struct answer {
    int r;
    uint64_t node;
};

static bool fits_result(struct state *s, unsigned c, const void *arg)
{
    const struct answer *a = arg;
    const int r = a->r, is = s->call[c].result;
    if (s->call[c].phase != DONE)
        return false;
    if (is == FAULT || (is == NO_ROOM && r < 0))
        return *o->faults && r < 0 && r != -EINVAL && r != -EILSEQ;
    if (is == NO_UNDO)
        return r == -EIO || r == -EBUSY || r == -ENOENT || r == -ENODATA || r == -ESTALE;
    if (is == NO_TENSOR)
        return r == -EINVAL || r == -EOPNOTSUPP || r == -EFBIG;
    return is == GONE ? r == -ESTALE || r == -ENOENT : r == (is == NO_ROOM ? 0 : is);
}

/* Returns whether the states fit. Binds the file to its node. */
static bool bind(struct state *s, int f, uint64_t node)
{
    const int g = by_node(s, node);
    if (f < 0)
        return false;
    if (g == f)
        return true;
    for (unsigned i = 0; i < HANDLES; i++)
        if (s->handle[i].file >= 0 &&
            (s->handle[i].file == g || (s->handle[i].file == f && s->file[f].node)))
            return false;
    if (g >= 0)
        s->file[g].node = 0;
    s->file[f].node = node;
    return true;
}

/* A signal ended the wait: the edit did not happen, or it goes on. */
static bool fits_interrupted(struct state *s, unsigned c, const void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < s->queued; i++)
        if (s->queue[i].caller == (int)c) {
            take_out(s, i);
            s->queue[i].caller = NONE;
        }
    return s->call[c].phase == QUEUED ||
           (s->call[c].phase == DONE &&
            (o->op[c].kind != OP_RENAME || s->call[c].result == TAKEN_OUT));
}

static bool fits_created(struct state *s, unsigned c, const void *arg)
{
    const struct answer *a = arg;
    return fits_result(s, c, a) && (a->r < 0 || bind(s, s->handle[o->op[c].handle].file, a->node));
}

static bool fits_lookup(struct state *s, unsigned c, const void *arg)
{
    const struct answer *a = arg;
    for (uint32_t i = s->moments; i > s->call[c].since; i--) {
        const int f = s->moment[i - 1].file[o->op[c].name];
        if (a->r < 0 ? f < 0 && a->r == -ENOENT
                     : f >= 0 && (!s->file[f].used || bind(s, f, a->node)))
            return true;
    }
    return false;
}

void oracle_answer(struct oracle *of, unsigned caller, int r, uint64_t node)
{
    const struct answer a = {r, node};
    char what[64];
    fits_fn *fits = of->op[caller].kind == OP_LOOKUP   ? fits_lookup
                    : of->op[caller].kind == OP_CREATE ? fits_created
                                                       : fits_result;
    (void)snprintf(what, sizeof(what), "%s @%llx", r < 0 ? strerror(-r) : "success",
                   (unsigned long long)node);
    if (r == -EINTR)
        fits = fits_interrupted;
    of->off |= r == -EINTR && of->op[caller].kind == OP_UNDO; /* it may go on */
    follow(of, caller, fits, &a, ANSWER, what);
}

/* Whatever a file that has lost its name shows. */
static bool fits_read(struct state *s, unsigned c, const void *arg)
{
    const uint16_t code = *(const uint16_t *)arg;
    const int f = by_node(s, o->op[c].node);
    if (f < 0 || s->file[f].helper || s->file[f].name < 0)
        return true;
    for (uint32_t i = s->call[c].since; i < s->moments; i++) {
        const struct moment *m = &s->moment[i];
        int k = 0;
        while (k < KEYS && m->file[k] != f)
            k++;
        if (k == KEYS || (code && (m->draft[k] == code ||
                                   code_of_value(m->gone & 1u << k ? 0 : m->val[k]) == code)))
            return true;
    }
    return false;
}

void oracle_answer_read(struct oracle *of, unsigned caller, const char *text, int n)
{
    char what[64];
    const uint16_t code = n < 0 ? 0 : code_of(text, (unsigned)n);
    if (n < 0)
        (void)snprintf(what, sizeof(what), "%s", strerror(-n));
    else
        (void)snprintf(what, sizeof(what), "\"%.*s\"", n < 20 ? n : 20, text);
    follow(of, caller, fits_read, &code, ANSWER, what);
}

static bool fits_list(struct state *s, unsigned c, const void *arg)
{
    unsigned seen = 0, not = 0;
    for (uint32_t i = s->call[c].since; i < s->moments; i++)
        for (int k = 0; k < KEYS; k++)
            *(s->moment[i].file[k] >= 0 ? &seen : &not ) |= 1u << k;
    const unsigned listed = *(const unsigned *)arg;
    return !(listed & ~seen) && !(~listed & ~not &((1u << KEYS) - 1));
}

void oracle_answer_list(struct oracle *of, unsigned caller, unsigned listed)
{
    char what[32];
    (void)snprintf(what, sizeof(what), "keys %x are listed", listed);
    follow(of, caller, fits_list, &listed, ANSWER, what);
}

static bool fits_view(struct state *s, unsigned c, const void *arg)
{
    const value_t *seen = arg;
    for (uint32_t i = s->call[c].since; i < s->moments; i++) {
        const struct moment *m = &s->moment[i];
        int k = 0;
        for (; k < KEYS; k++) {
            const bool hidden = m->hidden & 1u << k, gone = m->gone & 1u << k;
            if (seen[k] ? gone || seen[k] != m->val[k] : m->val[k] && !gone && !hidden)
                break;
        }
        if (k == KEYS)
            return true;
    }
    return false;
}

static bool fits_all(struct state *s, unsigned c, const void *arg)
{
    (void)s;
    (void)c;
    (void)arg;
    return true;
}

void oracle_no_answer(struct oracle *of, unsigned caller)
{
    follow(of, caller, fits_all, NULL, ANSWER, "is never answered");
}

static void tell_values(const value_t v[KEYS], char *dst, unsigned room)
{
    unsigned n = 0;
    for (int k = 0; k < KEYS; k++)
        n += (unsigned)snprintf(dst + n, room - n, " %s=%u:%d", names[k], type_of(v[k]),
                                v[k] & EMPTY);
}

void oracle_answer_view(struct oracle *of, unsigned caller, const value_t seen[KEYS])
{
    char what[128];
    tell_values(seen, what, sizeof(what));
    follow(of, caller, fits_view, seen, ANSWER, what);
}

static bool fits_disk(struct state *s, unsigned c, const void *arg)
{
    const value_t *disk = arg;
    (void)c;
    for (unsigned i = 0; i < s->queued; i++)
        if (s->queue[i].kind == UNDO) /* it may have been written */
            return true;
    for (uint32_t i = s->floor; i < s->moments; i++) {
        const struct moment *m = &s->moment[i];
        int k = 0;
        while (k < KEYS && (disk[k] == m->val[k] || (!disk[k] && m->written & 1u << k)))
            k++;
        if (k == KEYS)
            return true;
    }
    return false;
}

void oracle_look(struct oracle *of, const char *when, const value_t disk[KEYS])
{
    char what[160];
    const int n = snprintf(what, sizeof(what), "%s", when);
    tell_values(disk, what + n, (unsigned)(sizeof(what) - (size_t)n));
    follow(of, CALLERS, fits_disk, disk, PROBE, what);
}

static bool fits_rest(struct state *s, unsigned c, const void *arg)
{
    (void)c;
    (void)arg;
    return !s->queued;
}

void oracle_finished(struct oracle *of)
{
    if (of->off)
        return;
    follow(of, CALLERS, fits_rest, NULL, ANSWER, "cannot end");
    for (unsigned i = 0; i < o->n && !o->astray; i++)
        on_disk(&o->state[i], ALL_KEYS);
}

void oracle_undone(struct oracle *of, const value_t now[KEYS])
{
    o = of;
    for (unsigned i = 0; i < o->n && !o->off; i++) {
        struct state *s = &o->state[i];
        for (int k = 0; k < KEYS; k++) {
            const value_t was = s->now.gone & 1u << k ? 0 : s->now.val[k];
            const int f = s->now.file[k];
            if (was != now[k])
                spare(s, k, false);
            if (was != now[k] && f >= 0 && s->file[f].draft == CLEAN) {
                s->file[f].text = text_of(now[k]);
                s->file[f].typed = 0;
            }
            s->now.val[k] = now[k];
        }
        s->now.gone = s->now.written = 0;
        on_disk(s, ALL_KEYS);
    }
}

/* ---- the beginning ---- */

void oracle_prepare(struct oracle *of)
{
    const int prot = PROT_READ | PROT_WRITE;
    of->state = mmap(NULL, 2 * STATES * sizeof(struct state), prot,
                     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    todo.room = 2 * STATES;
    todo.at = mmap(NULL, todo.room * sizeof(struct state), prot,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    visited_at = mmap(NULL, STATES * sizeof(struct state), prot,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (of->state == MAP_FAILED || todo.at == MAP_FAILED || visited_at == MAP_FAILED) {
        perror("oracle");
        exit(2);
    }
}

void oracle_reset(struct oracle *of, const unsigned *faults)
{
    of->n = 0;
    of->off = of->lost = false;
    of->faults = faults;
}

void oracle_begin(struct oracle *of, const value_t first[KEYS], bool durable)
{
    o = of;
    o->durable = durable;
    o->n = 1;
    struct state *s = &o->state[0];
    memset(s, 0, sizeof(*s));
    for (int i = 0; i < NAMES; i++)
        s->now.file[i] = NONE;
    for (int i = 0; i < HANDLES; i++)
        s->handle[i].file = NONE;
    memcpy(s->now.val, first, sizeof(s->now.val));
    note_moment(s);
}

/* SPDX-License-Identifier: MIT */
/* Finds and edits the values that keys have in the model, and judges drafts (edits.h). */
#include "live/edits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "base/bytes.h"
#include "base/lock.h"
#include "gguf/value.h"
#include "text/number.h"
#include "text/text.h"

/* ---- types ---- */

bool type_by_name(const char *name, size_t n, struct typed *ret)
{
    *ret = (struct typed){.set = true};
    return type_name_get(name, n, &ret->type, &ret->elem);
}

void type_put(const struct typed *t, struct buf *out)
{
    char name[GGUF_TYPE_NAME_MAX];
    const struct gguf_value v = {.type = (uint8_t)t->type, .elem = (uint8_t)t->elem};
    buf_str(out, gguf_type_name(&v, name));
}

/* ---- stored values ---- */

bool stored_has(const struct live *l, const struct name *x)
{
    const struct edit_slot *s;
    assert(lock_held(&l->lock));
    return x->key && edit_find(&l->next.change, x->key, x->key_len, &s);
}

/* Return the value that a key has in the base, without pending edits. */
static struct shown base_value(const struct live *l, const char *key, size_t n)
{
    struct snapshot *g = base_snapshot(l);
    uint32_t kv = gguf_find_key(g->gguf, key, n);
    return kv == UINT32_MAX ? SHOWN_NONE : (struct shown){snapshot_ref(g), NULL, kv};
}

struct shown stored_value(const struct live *l, const struct name *x)
{
    const struct edit_slot *s;
    assert(lock_held(&l->lock));
    if (!x->key || !edit_find(&l->next.change, x->key, x->key_len, &s))
        return SHOWN_NONE;
    if (!s)
        return base_value(l, x->key, x->key_len);
    if (s->value)
        return (struct shown){snapshot_ref(base_snapshot(l)), edit_value_ref(s->value), 0};
    const struct gguf *own = l->next.change.on.g;
    return base_value(l, gguf_key(own, &own->kv[s->old]), own->kv[s->old].key_len);
}

static struct typed stored_wanted_type(const struct name *x)
{
    const struct draft *d = x->file ? x->file->draft : NULL;
    return d && d->typed.set ? d->typed : x->typed;
}

struct typed stored_known_type(const struct live *l, const struct name *x)
{
    assert(lock_held(&l->lock));
    struct gguf_value v;
    struct typed type = stored_wanted_type(x);
    if (type.set)
        return type;
    CLEANUP(shown_free) struct shown s = stored_value(l, x);
    if (shown_value(&s, &v))
        type = (struct typed){.set = true, .type = v.type, .elem = v.elem};
    return type;
}

static uint64_t stored_rank(const struct live *l, const struct name *x)
{
    assert(lock_held(&l->lock));
    const struct edit_slot *s;
    const struct snapshot *base = base_snapshot(l);
    (void)edit_find(&l->next.change, x->key, x->key_len, &s);
    if (s)
        return s->rank;
    uint32_t kv = gguf_find_key(snapshot_own(base), x->key, x->key_len);
    if (kv == UINT32_MAX)
        return x->rank;
    return base->rank ? base->rank[kv] : edit_first_rank(kv);
}

/* ---- the content of a name ---- */

void name_hide(struct live *l, struct name *x)
{
    assert(lock_held(&l->lock));
    if (x->file && !x->file->draft && !stored_has(l, x))
        name_leave(&l->names, x);
}

void name_follow(struct live *l, struct name *x)
{
    assert(lock_held(&l->lock));
    if (!x || !x->key)
        return;
    if (!stored_has(l, x)) {
        name_spare(&l->names, x);
        name_hide(l, x);
        return;
    }
    x->rank = stored_rank(l, x);
    if (!x->doomed && !x->backup)
        x->typed.set = false;
}

int name_refused(struct live *l, struct name *x, const struct err *e)
{
    assert(lock_held(&l->lock));
    char name[SHOW_MAX];
    live_log(l, LOG_WARNING, "%s: refused: %s", show(name, x->text, strlen(x->text)), e->msg);
    name_set_error(&l->names, x, e->msg);
    return e->code;
}

/* ---- files ---- */

struct shown look_shown(const struct live *l, const struct file *f)
{
    assert(lock_held(&l->lock));
    return f->kind == FILE_KEY ? stored_value(l, f->of) : SHOWN_NONE;
}

struct shown look_attr(const struct live *l, struct file *f, struct live_attr *ret)
{
    assert(lock_held(&l->lock));
    const struct name *x = f->of;
    const struct buf *bytes = file_bytes(f);
    *ret = (struct live_attr){.number = f->number,
                              .ino = x->ino,
                              .size = bytes ? bytes->len : 0,
                              .link = f->kind == FILE_LINK,
                              .mtime = x->mtime};
    return bytes ? SHOWN_NONE : look_shown(l, f);
}

void look_measure(struct shown *s, struct live_attr *ret)
{
    if (s->snap)
        ret->size = shown_size(s);
    shown_free(s);
}

/* ---- by name and number ---- */

/* Return the number of an untouched key of the base, which still has its original rank. The second
 * function returns the key with this number. */
static uint32_t first_number(const struct snapshot *g, uint32_t kv)
{
    return g->rank ? (uint32_t)(g->rank[kv] / EDIT_RANK_STEP - 1) : kv;
}

static uint32_t key_of_number(const struct snapshot *g, uint32_t number)
{
    uint32_t from = 0, to = snapshot_own(g)->n_kv;
    while (g->rank && from < to) {
        const uint32_t mid = from + (to - from) / 2;
        if (g->rank[mid] < edit_first_rank(number))
            from = mid + 1;
        else
            to = mid;
    }
    return g->rank ? from : number;
}

bool look_untouched(const struct live *l, const struct snapshot *g, uint32_t kv, uint32_t *ret)
{
    assert(lock_held(&l->lock));
    const uint64_t rank = g->rank ? g->rank[kv] : edit_first_rank(kv);
    if (rank % EDIT_RANK_STEP || rank > l->names.first * EDIT_RANK_STEP ||
        (g->rank &&
         /* A restored key also has its old rank. */
         key_of_number(g, first_number(g, kv)) != kv) ||
        names_file(&l->names, first_number(g, kv)))
        return false;
    *ret = first_number(g, kv);
    return true;
}

void look_text(const struct live *l, uint32_t number, char ret[TREE_NAME_MAX + 1])
{
    assert(lock_held(&l->lock));
    const struct gguf *own = snapshot_own(base_snapshot(l));
    const struct gguf_kv *k = &own->kv[key_of_number(base_snapshot(l), number)];
    (void)name_encode(gguf_key(own, k), k->key_len, ret);
}

static struct name *touch(struct live *l, uint32_t kv)
{
    uint32_t number;
    const struct snapshot *g = base_snapshot(l);
    const struct gguf_kv *k = &snapshot_own(g)->kv[kv];
    const char *key = gguf_key(snapshot_own(g), k);
    struct name *x = look_untouched(l, g, kv, &number) /* else another name has had this place */
                         ? names_touch(&l->names, number, key, k->key_len)
                         : names_get_key(&l->names, key, k->key_len);
    if (x)
        x->rank = g->rank ? g->rank[kv] : edit_first_rank(kv);
    l->names.missing = x ? 0 : -ENOMEM;
    return x;
}

struct name *look_key(struct live *l, const char *key, size_t n)
{
    assert(lock_held(&l->lock));
    struct name *x = names_find_key(&l->names, key, n);
    const uint32_t kv = x ? UINT32_MAX : gguf_find_key(snapshot_own(base_snapshot(l)), key, n);
    return kv == UINT32_MAX ? x : touch(l, kv);
}

/* Return the visible key with this name in the base. */
static uint32_t find_key(const struct live *l, const char *text)
{
    const struct snapshot *g = base_snapshot(l);
    const uint32_t kv = snapshot_find(g, true, text);
    return kv != UINT32_MAX && snapshot_shows_key(g, kv) ? kv : UINT32_MAX;
}

bool look_number(const struct live *l, const char *text, uint32_t *ret)
{
    const struct snapshot *g = base_snapshot(l);
    const uint32_t kv = names_find(&l->names, text) ? UINT32_MAX : find_key(l, text);
    if (kv == UINT32_MAX)
        return false;
    const struct gguf_kv *k = &g->gguf->kv[kv];
    const uint32_t own = gguf_find_key(snapshot_own(g), gguf_key(g->gguf, k), k->key_len);
    return look_untouched(l, g, own, ret);
}

bool look_is_first(const struct live *l, uint32_t number)
{
    assert(lock_held(&l->lock));
    return number < l->names.first && !names_file(&l->names, number);
}

struct shown look_first(const struct live *l, uint32_t number, struct live_attr *ret)
{
    const struct gguf *own = snapshot_own(base_snapshot(l));
    const struct gguf_kv *k = &own->kv[key_of_number(base_snapshot(l), number)];
    *ret = (struct live_attr){.number = number, .ino = number};
    return base_value(l, gguf_key(own, k), k->key_len);
}

struct name *look_name(struct live *l, const char *text)
{
    assert(lock_held(&l->lock));
    struct name *x = names_find(&l->names, text);
    const struct gguf *g = base_snapshot(l)->gguf;
    l->names.missing = -ENOENT;
    const uint32_t kv = x ? UINT32_MAX : find_key(l, text);
    return kv == UINT32_MAX ? x : look_key(l, gguf_key(g, &g->kv[kv]), g->kv[kv].key_len);
}

struct file *look_file(struct live *l, uint32_t number)
{
    assert(lock_held(&l->lock));
    struct file *f = names_file(&l->names, number);
    l->names.missing = -ENOENT;
    if (f || number >= l->names.first)
        return f;
    const struct name *x = touch(l, key_of_number(base_snapshot(l), number));
    return x ? x->file : NULL;
}

struct file *look_visible(struct live *l, struct name *x)
{
    assert(lock_held(&l->lock));
    const bool lacks = !x->file && x->key && !x->doomed && !x->backup && stored_has(l, x);
    l->names.missing = lacks && !file_new(&l->names, x, FILE_KEY) ? -ENOMEM : -ENOENT;
    return x->file;
}

struct file *look_find(struct live *l, const char *text)
{
    struct name *x = look_name(l, text);
    return x ? look_visible(l, x) : NULL;
}

bool look_is_key(const struct live *l, const char *text)
{
    assert(lock_held(&l->lock));
    const struct name *x = names_find(&l->names, text);
    return x ? x->key != NULL : find_key(l, text) != UINT32_MAX;
}

static bool is_key_name(const void *live, const char *name)
{
    return look_is_key(live, name);
}

enum name_class look_classify(const struct live *l, const char *text, enum name_way way)
{
    const struct name_keys keys = {is_key_name, l};
    return look_is_key(l, text) ? NAME_KEY : name_classify(text, way, &keys);
}

bool name_typed(const char *file, char key[TREE_NAME_MAX + 1], struct typed *ret)
{
    const char *colon = strrchr(file, ':');
    if (!colon || colon == file || !type_by_name(colon + 1, strlen(colon + 1), ret))
        return false;
    *(char *)mempcpy(key, file, (size_t)(colon - file)) = '\0';
    return true;
}

struct typed look_type(const struct file *f)
{
    if (f->kind == FILE_HELPER && !f->inherited)
        return f->typed;
    return f->kind == FILE_KEY && file_name(f) ? stored_wanted_type(f->of) : (struct typed){0};
}

static bool has_type(const struct live *l, const struct file *f, const struct typed *type)
{
    struct gguf_value v;
    CLEANUP(shown_free) struct shown s = look_shown(l, f);
    if (shown_value(&s, &v))
        return v.type == type->type && (v.type != GGUF_ARRAY || v.elem == type->elem);
    const struct typed wanted = look_type(f);
    return wanted.set && wanted.type == type->type && wanted.elem == type->elem;
}

struct file *look_find_typed(struct live *l, const char *text)
{
    char key[TREE_NAME_MAX + 1];
    struct typed type;
    struct file *f = look_find(l, text);
    if (f || !name_typed(text, key, &type))
        return f;
    f = look_find(l, key);
    return f && has_type(l, f, &type) ? f : NULL;
}

/* ---- values ---- */

static bool has_nul(const struct gguf *g, bool keys)
{
    uint32_t i = 0;
    const uint32_t n = keys ? g->n_kv : g->n_tensors;
    while (i < n && !memchr(gguf_name_of(g, keys, i).at, 0, gguf_name_of(g, keys, i).len))
        i++;
    return i < n;
}

bool has_nul_names(const struct gguf *g)
{
    return has_nul(g, true) || has_nul(g, false);
}

/* Return a pointer to the bytes. An empty text has no memory, but pointer arithmetic needs a valid
 * address. */
static const uint8_t *bytes_of(const struct buf *text)
{
    return text->len ? text->data : (const uint8_t *)"";
}

static struct typed edits_type(const struct live *l, const struct name *x, const struct buf *text)
{
    struct typed type = stored_known_type(l, x);
    if (!type.set)
        text_new_type(key_find(x->key, x->key_len), bytes_of(text), text->len, &type.type,
                      &type.elem);
    type.set = true;
    return type;
}

/* Accept an operation as part of the change. An edit of the alignment moves the tensors, so it is
 * planned first: parsing the plan detects errors. */
static int accepted(struct live *l, struct name *x, struct name *other, size_t mark, struct err *e)
{
    bool aligns = strcmp(x->key, "general.alignment") == 0;
    batch_touch(l);
    int r = aligns ? batch_freshen(l, e) : 0;
    if (r == 0)
        r = batch_check(l, e);
    if (r < 0) {
        batch_undo(l, mark);
        return r;
    }
    x->edit = ++l->edits;
    if (other)
        other->edit = l->edits;
    return 1;
}

static int no_memory(struct err *e)
{
    return err_set(e, -ENOMEM, "no memory for the edit");
}

static int set_payload(struct live *l, struct name *x, uint32_t type, struct buf *payload,
                       struct err *e)
{
    struct edit_change *c = &l->next.change;
    size_t mark = edit_mark(c);
    struct edit_value *v = edit_value_make(type, payload);
    if (!v)
        return no_memory(e);
    int r = edit_set(c, x->key, x->key_len, v, x->rank ? x->rank : l->names.ranks, e);
    if (r == 0)
        r = accepted(l, x, NULL, mark, e);
    if (r > 0 && !x->rank) {
        x->rank = l->names.ranks;
        l->names.ranks += EDIT_RANK_STEP;
    }
    edit_value_unref(v);
    return r;
}

static int edits_parse(const struct live *l, const struct name *x, const struct buf *text,
                       const struct typed *type, struct buf *payload, struct err *e)
{
    CLEANUP(shown_free) struct shown old = stored_value(l, x);
    struct gguf_value v;
    bool known = shown_value(&old, &v);
    int r = text_parse(&l->newest->view.snap->gguf->fmt, type->type, type->elem, bytes_of(text),
                       text->len, known ? &v : NULL, payload, e);
    return r == 0 && shown_is(&old, type->type, payload) ? 1 : r;
}

/* Report that the key cannot be edited before any other error. */
int edits_accept(struct live *l, struct name *x, const struct buf *text, struct err *e)
{
    CLEANUP(buf_free) struct buf payload = BUF_INIT;
    assert(lock_held(&l->lock));
    struct typed type = edits_type(l, x, text);
    int r = edits_parse(l, x, text, &type, &payload, e);
    const bool same = r > 0;
    if (!same && key_is_own(x->key, x->key_len))
        return err_set(e, -EPERM, "cannot be edited");
    if (r == 0)
        r = set_payload(l, x, type.type, &payload, e);
    if (r < 0)
        return r;
    name_spare(&l->names, x);
    x->typed.set = false;
    if (same) /* an editor may restore the value after a refused write, so the reason is kept */
        return 0;
    x->mtime = when_date();
    name_set_error(&l->names, x, NULL);
    return 1;
}

int edits_retype(struct live *l, struct name *x, struct typed type, struct err *e)
{
    assert(lock_held(&l->lock));
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    CLEANUP(shown_free) struct shown s = stored_value(l, x);
    assert(s.snap); /* without a value, type_to_come() sets the draft's type */
    if (strcmp(x->key, "general.alignment") == 0)
        return err_set(e, -EINVAL, "its type cannot be changed");
    shown_text(&s, &text);
    if (buf_error(&text))
        return no_memory(e);
    if (x->file->draft) /* a type set by opening KEY:TYPE is now outdated */
        x->file->draft->typed.set = false;
    x->typed = type;
    int r = edits_accept(l, x, &text, e);
    x->typed.set = false;
    return r;
}

static int edits_restore(struct live *l, struct name *x, const struct shown *value, struct err *e)
{
    assert(lock_held(&l->lock));
    CLEANUP(buf_free) struct buf payload = BUF_INIT;
    CLEANUP(shown_free) struct shown now = stored_value(l, x);
    struct gguf_value v;
    size_t n;
    if (!value->snap) {
        int r = now.snap ? edits_remove(l, x, e) : 0;
        x->typed.set = false; /* forget the type of a value that was never stored */
        return r;
    }
    (void)shown_value(value, &v);
    const uint8_t *bytes = shown_bytes(value, &n);
    buf_add(&payload, bytes, n);
    if (buf_error(&payload))
        return no_memory(e);
    int r = shown_is(&now, v.type, &payload) ? 0 : set_payload(l, x, v.type, &payload, e);
    if (r > 0)
        name_spare(&l->names, x);
    return r;
}

/* ---- names ---- */

/* Remember the type and place of a key that is about to be removed, in case it is created again. */
static void remember(const struct live *l, struct name *x)
{
    struct gguf_value v;
    CLEANUP(shown_free) struct shown s = stored_value(l, x);
    x->rank = stored_rank(l, x);
    (void)shown_value(&s, &v);
    x->typed = (struct typed){true, v.type, v.elem};
}

int edits_remove(struct live *l, struct name *x, struct err *e)
{
    assert(lock_held(&l->lock));
    struct edit_change *c = &l->next.change;
    size_t mark = edit_mark(c);
    remember(l, x);
    int r = edit_remove(c, x->key, x->key_len, e);
    if (r == 0)
        r = accepted(l, x, NULL, mark, e);
    if (r > 0) {
        name_spare(&l->names, x);
        name_set_error(&l->names, x, NULL); /* the error was about a value that is being removed */
    }
    return r;
}

int edits_remove_due(struct live *l)
{
    assert(lock_held(&l->lock));
    int result = 0;
    for (struct name *x = l->names.oldest; x && l->names.n_doomed; x = x->newer) {
        struct err e = {0};
        if (!x->doomed || edits_remove(l, x, &e) >= 0)
            continue;
        name_spare(&l->names, x); /* the key is visible again */
        x->typed.set = false;
        result = name_refused(l, x, &e);
    }
    return result;
}

int edits_rename(struct live *l, struct name *from, struct name *to, struct err *e)
{
    assert(lock_held(&l->lock));
    struct edit_change *c = &l->next.change;
    size_t mark = edit_mark(c);
    remember(l, from);
    int r = edit_rename(c, from->key, from->key_len, to->key, to->key_len, e);
    if (r == 0)
        r = accepted(l, from, to, mark, e);
    if (r > 0) {
        name_spare(&l->names, to);
        to->mtime = from->mtime;
        from->rank = 0; /* the place moves with the key */
        to->typed.set = false;
        name_set_error(&l->names, to, NULL);
    }
    return r;
}

bool draft_is_shown(const struct draft *d)
{
    return d->state == DRAFT_EMPTIED || (d->state == DRAFT_WRITTEN && !d->why.code);
}

bool draft_is_unjudged(const struct draft *d)
{
    return d->state == DRAFT_WRITTEN || d->state == DRAFT_REFUSED || d->state == DRAFT_SHORT;
}

struct buf *file_bytes(struct file *f)
{
    bool in_memory = f->kind != FILE_KEY || (!file_name(f) && f->draft);
    if (f->draft && (in_memory || draft_is_shown(f->draft)))
        return &f->draft->text;
    return in_memory ? &f->content : NULL;
}

void file_set_kind(struct live *l, struct file *f, enum file_kind kind)
{
    size_t n = f->draft ? f->draft->text.len : 0;
    assert(f->kind != FILE_HELPER || kind == FILE_KEY);
    if (f->kind == FILE_HELPER)
        l->names.helper_bytes -= n;
    if (f->kind == FILE_KEY && kind == FILE_HELPER)
        l->names.helper_bytes += n;
    f->kind = kind;
}

/* True if the file has a key's text, which will become the key's value; the bytes of a helper or an
 * orphan are not judged. */
static bool is_key(const struct file *f)
{
    return f->kind == FILE_KEY && file_name(f);
}

/* Check that the content can be n bytes long. */
static int check_room(const struct live *l, const struct file *f, uint64_t n)
{
    if (f->kind == FILE_HELPER)
        return names_have_room(&l->names, f->draft->text.len, n) ? 0 : -ENOSPC;
    return n > TEXT_MAX ? -EFBIG : 0;
}

/* ---- a key's text ---- */

/*
 * True for a text that ends in a newline and can only be followed by blanks or more lines of an
 * array, so that an error in it is final. A text that begins with a bracket must end with one (a
 * JSON string contains no newline). Never true for arrays of arrays.
 */
static bool looks_whole(const struct typed *type, const struct buf *text)
{
    const uint8_t *p = text->data;
    size_t n = text->len;
    if (n == 0 || p[n - 1] != '\n' || type->type == GGUF_STRING ||
        (type->type == GGUF_ARRAY && type->elem == GGUF_ARRAY))
        return false;
    scan_trim(&p, &n);
    return n > 0 && (*p != '[' || p[n - 1] == ']');
}

/* True if the text shown for the stored value begins with these bytes. That text is always
 * accepted, even if it is not UTF-8. */
static bool begins_stored(const struct live *l, const struct name *x, const struct buf *draft)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    CLEANUP(shown_free) struct shown s = stored_value(l, x);
    shown_text(&s, &text);
    return buf_error(&text) ||
           (text.len >= draft->len && memcmp(text.data, draft->data, draft->len) == 0);
}

/* Check a write cheaply, but parse a text that looks complete after a single write: a write is the
 * only call whose failure a shell's echo reports, because shells ignore the result of close(2). */
static int key_written(struct live *l, struct name *x, const struct draft *d, bool at_once,
                       struct err *e)
{
    CLEANUP(buf_free) struct buf payload = BUF_INIT;
    const struct buf *text = &d->text;
    struct typed type = stored_known_type(l, x);
    bool known = type.set;
    if (!known && !at_once) /* the type may still change */
        return 0;
    if (!known)
        type = edits_type(l, x, text);
    bool line = text->len && text->data[text->len - 1] == '\n';
    bool whole = at_once && (looks_whole(&type, text) || (line && type.type == GGUF_STRING));
    if (!whole)
        return 0;
    if (known)
        type = edits_type(l, x, text);
    int why = edits_parse(l, x, text, &type, &payload, e);
    if (why == 0) /* the text of the stored value is always accepted */
        why = edit_check_value(l->newest->view.snap->gguf, x->key, x->key_len, type.type,
                               payload.data, payload.len, e);
    if (why == -EILSEQ)
        return begins_stored(l, x, text) ? 0 : why;
    return why == -EINVAL || why == -ERANGE ? why : 0; /* only these errors are final */
}

/*
 * Refuse the draft of a key, with the event DRAFT_REFUSE or DRAFT_LACK. If a program forked after
 * writing half a text, that half may have been accepted when the child's copy of the file was
 * closed. Now that the rest is refused, the previous value is restored, unless the key has been
 * changed since by another edit.
 */
static int refuse(struct live *l, struct file *f, enum draft_event event, const struct err *e)
{
    struct draft *d = f->draft;
    struct err why = {0};
    draft_event(d, event);
    if (event == DRAFT_REFUSE)
        d->why = *e;
    const bool own = d->edit && d->edit == f->of->edit;
    int r = own ? edits_restore(l, f->of, &d->before, &why) : 0;
    if (r < 0)
        live_log(l, LOG_ERR, "%s: cannot be put back: %s", f->of->key, why.msg);
    if (r > 0)
        (void)writer_accepted(l, NULL);
    d->edit = 0;
    return name_refused(l, f->of, e);
}

/* Accept a truncation without a write, which makes an empty string or array. Returns 0 or -errno. */
static int accept_truncation(struct live *l, struct file *f)
{
    struct err e = {0};
    struct name *x = f->of;
    struct typed type = stored_known_type(l, x);
    const struct key_row *row = key_find(x->key, x->key_len);
    if (!type.set)
        type.type = row ? row->type : GGUF_STRING;
    if (type.type != GGUF_STRING && type.type != GGUF_ARRAY)
        return 0;
    int r = edits_accept(l, x, &f->draft->text, &e);
    draft_event(f->draft, r < 0 ? DRAFT_REFUSE : DRAFT_PASS);
    if (r < 0)
        return name_refused(l, x, &e);
    promise_make(&f->promise, x->edit);
    return r > 0 ? writer_accepted(l, NULL) : 0;
}

/* ---- content ---- */

/* Set the length of the content, extending it with zeros. A helper's bytes count towards the limit
 * for all helpers. */
static int set_length(struct live *l, const struct file *f, uint64_t len)
{
    struct buf *b = &f->draft->text;
    size_t was = b->len;
    if (len > was)
        buf_zero(b, (size_t)len - was);
    else
        b->len = (size_t)len;
    if (f->kind == FILE_HELPER)
        l->names.helper_bytes += b->len - was;
    int r = buf_error(b);
    b->err = 0;
    return r;
}

static void empty(struct live *l, struct file *f)
{
    struct draft *d = f->draft;
    (void)set_length(l, f, 0);
    d->whole = true;
    d->why = (struct err){0};
    draft_event(d, DRAFT_EMPTY);
}

/* ---- begin ---- */

/* Start over from a helper's content or from the stored value. truncate: the stored value's text is
 * not needed. */
static int restart(struct live *l, struct file *f, bool truncate)
{
    struct draft *d = f->draft;
    struct buf text = BUF_INIT;
    if (f->kind == FILE_HELPER) {
        text = f->content;
        f->content = BUF_INIT;
    } else if (is_key(f) && !truncate) {
        CLEANUP(shown_free) struct shown s = stored_value(l, f->of);
        shown_text(&s, &text);
    }
    int r = buf_error(&text);
    if (r < 0) {
        buf_free(&text);
        return r;
    }
    buf_free(&d->text);
    d->text = text;
    d->whole = text.len == 0;
    d->closed = d->anew = false;
    d->edit = 0;
    d->typed = (struct typed){0};
    d->why = (struct err){0};
    d->restarts++;
    draft_event(d, DRAFT_REOPEN);
    return 0;
}

static int begin(struct live *l, struct file *f, bool truncate, bool made,
                 const struct err *unready)
{
    if (is_key(f) && unready->code)
        return name_refused(l, f->of, unready);
    f->draft = draft_new();
    int r = f->draft ? restart(l, f, truncate || made) : -ENOMEM;
    if (r < 0) {
        draft_free(f->draft);
        f->draft = NULL;
        return r;
    }
    f->draft->anew = made;
    if (made)
        draft_event(f->draft, DRAFT_EMPTY);
    f->drafts++;
    return 0;
}

/*
 * True if the draft has ended, even though the kernel may not have reported its last release yet. A
 * program that opens the file begins with the file's content, not with a draft that was accepted or
 * was refused at a close.
 */
static bool is_over(const struct draft *d)
{
    return d->why.code || d->state == DRAFT_SHORT ? d->closed : d->state == DRAFT_ACCEPTED;
}

int draft_join(struct live *l, struct file *f, bool truncate, bool made, const struct err *unready)
{
    assert(lock_held(&l->lock));
    int r = 0;
    if (!f->draft)
        r = begin(l, f, truncate, made, unready);
    else if (is_key(f) && is_over(f->draft))
        r = restart(l, f, truncate);
    if (r < 0)
        return r;
    if (truncate)
        empty(l, f);
    f->draft->writers++;
    return 0;
}

/* Prepare a write at `off`, or a truncation to `off` bytes. If that is past the end of the accepted
 * text, the program has seen the stored text, so the draft starts over from the stored text. */
static int reach(struct live *l, struct file *f, uint64_t off)
{
    bool beyond = f->draft->state == DRAFT_ACCEPTED && off > f->draft->text.len;
    return beyond && is_key(f) ? restart(l, f, false) : 0;
}

/* ---- write ---- */

/* Write to a draft. Any failure refuses the whole draft, because a partly written text is not a
 * value. */
int draft_write(struct live *l, struct file *f, bool append, uint64_t off, const void *bytes,
                size_t n)
{
    struct draft *d = f->draft;
    struct err e = {0};
    uint64_t end = UINT64_MAX;
    assert(lock_held(&l->lock));
    d->closed = false;
    if (append)
        off = d->text.len;
    (void)add_u64(off, n, &end);
    int r = reach(l, f, off);
    d->whole &= off <= d->text.len;
    draft_event(d, DRAFT_WRITE);
    if (r == 0)
        r = check_room(l, f, end);
    if (r == 0 && end > d->text.len)
        r = set_length(l, f, end);
    if (r == 0 && n)
        memcpy(d->text.data + off, bytes, n);
    if (r < 0)
        (void)err_sys(&e, r, "cannot be written");
    else if (is_key(f) && (d->whole || append)) /* an append keeps the existing text */
        r = key_written(l, f->of, d, d->text.len == n, &e);
    return r == 0 || !is_key(f) ? r : refuse(l, f, DRAFT_REFUSE, &e);
}

int draft_truncate(struct live *l, struct file *f, uint64_t size)
{
    struct draft *d = f->draft;
    assert(lock_held(&l->lock));
    int r = check_room(l, f, size);
    if (r == 0)
        r = reach(l, f, size);
    if (r == 0 && size == 0)
        empty(l, f);
    if (r < 0 || size == 0)
        return r;
    size_t was = d->text.len;
    r = set_length(l, f, size);
    if (r == 0 && size != was)
        draft_event(d, DRAFT_WRITE);
    d->whole &= size <= was;
    return r;
}

/* ---- from draft to value ---- */

/*
 * A close may come from a fork in another thread while the text is half written. If the text may
 * still become a value, only that close fails; the text is dropped at the last close.
 */
int draft_settle(struct live *l, struct file *f)
{
    struct draft *d = f->draft;
    struct err e = {0};
    assert(lock_held(&l->lock));
    if (!is_key(f))
        return 0;
    if (d->state == DRAFT_SHORT) /* not written since the last close */
        return -EINVAL;
    if (d->state != DRAFT_WRITTEN || d->why.code)
        return d->why.code;
    if (!d->edit || d->edit != f->of->edit) {
        shown_free(&d->before);
        d->before = stored_value(l, f->of);
    }
    int r = edits_accept(l, f->of, &d->text, &e);
    if (r < 0) {
        const struct buf *text = &d->text;
        const struct typed type = stored_known_type(l, f->of);
        const bool lacks = r == -EINVAL && type.set && text->len && !looks_whole(&type, text);
        return refuse(l, f, lacks ? DRAFT_LACK : DRAFT_REFUSE, &e);
    }
    draft_event(d, DRAFT_PASS);
    if (r > 0)
        d->edit = f->of->edit;
    d->anew = false;
    d->typed.set = false; /* the key itself now has the type */
    promise_make(&f->promise, f->of->edit);
    return r;
}

/* ---- the end, and changes between keys and helpers ---- */

/* Keep the text of a name that is about to be renamed over a key: that key's type may need it as it
 * was written, not as the type that it got shows it. */
static void keep_text(struct live *l, struct file *f)
{
    struct draft *d = f->draft;
    const struct name_keys keys = {is_key_name, l};
    if (!d->edit || d->edit != f->of->edit || !name_is_temporary(f->of->text, &keys))
        return;
    f->written = d->edit;
    file_set_content(&l->names, f, &d->text);
}

int draft_leave(struct live *l, struct file *f)
{
    assert(lock_held(&l->lock));
    struct draft *d = f->draft;
    int r = 0;
    if (--d->writers > 0)
        return 0;
    if (f->kind == FILE_HELPER) {
        file_free_content(&l->names, f);
        f->content = d->text;
        d->text = BUF_INIT;
    } else if (is_key(f) && !l->ending && f->draft->state == DRAFT_EMPTIED) {
        /* When the mount ends, the daemon releases the files, not the program, so a text that no
         * flush or fsync has judged is dropped. */
        r = accept_truncation(l, f);
    } else if (!l->ending && draft_settle(l, f) > 0) { /* no flush came: the process was killed */
        (void)writer_accepted(l, NULL);
    }
    if (is_key(f))
        keep_text(l, f);
    f->draft = NULL;
    draft_free(d);
    return r;
}

void draft_to_key(struct draft *d, bool emptied)
{
    d->edit = 0;
    d->why = (struct err){0};
    draft_event(d, DRAFT_EMPTY);
    if (emptied)
        return;
    d->anew = false;
    draft_event(d, DRAFT_WRITE);
    draft_event(d, DRAFT_PASS);
}

void draft_to_helper(struct draft *d, struct buf *text)
{
    buf_free(&d->text);
    d->text = *text;
    *text = BUF_INIT;
    d->whole = d->text.len == 0;
    d->typed.set = false;
    d->anew = false;
    d->why = (struct err){0};
    draft_event(d, DRAFT_EMPTY);
}

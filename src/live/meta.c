/* SPDX-License-Identifier: MIT */
/* Files of metadata/: open, read, write and close them, list them, and tell their attributes
 * (meta.h). */
#include "live/meta.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "gguf/value.h"
#include "live/dir.h"
#include "live/draft.h"
#include "live/tensors.h"
#include "live/overlay.h"
#include "live/value.h"
#include "text/text.h"

/* ---- edits of texts ---- */

/* Return the name of the key whose file this is; NULL for a helper, a link or an orphan. */
static struct name *key_of(const struct file *f)
{
    return f->kind == FILE_KEY ? f->name : NULL;
}

static int accept_text(struct live *l, struct request *q, struct err *e)
{
    struct name *x = key_meant(q->file);
    if (!x) /* it was removed meanwhile */
        return 0;
    request_pin(q, x);
    return value_accept(l, q, x, e);
}

/* The same for a helper that a request is about to make a key. */
static int accept_renamed(struct live *l, struct request *q, struct err *e)
{
    return key_of(q->file) ? accept_text(l, q, e) : 0;
}

static int text_accepted(struct live *l, struct request *q, int r, const struct err *e)
{
    struct file *f = q->file;
    struct name *x = key_meant(f);
    if (r < 0 && !q->done) {
        if (f->draft && f->draft->version == q->number)
            draft_refused(f->draft, e);
        return x ? name_refused(l, x, e) : r;
    }
    if (f->draft)
        draft_accepted(f->draft, q->number, &q->typed);
    if (x && q->changed) { /* else the reason for a refusal stays: an editor may restore the text */
        x->mtime = when_date();
        name_set_error(l, x, NULL);
        name_keep_raw(l, x, &q->text);
    }
    return r;
}

/* Judge the draft of a key. */
static int judge(struct live *l, struct file *f, enum when when, struct live_wait *w)
{
    struct draft *d = f->draft;
    struct err e = {0};
    int r = -ENOMEM;
    struct request *q = request_new(l, f, NULL, NULL);
    if (q) {
        buf_add(&q->text, d->text.data, d->text.len);
        q->typed = d->typed;
        q->number = d->version;
        q->when = when;
        q->apply = key_of(f) ? accept_text : accept_renamed;
        q->end = text_accepted;
        f->pins++; /* a request that cannot be added ends at once, and the file must outlast it */
        r = queue_add(l, q, w);
        f->pins--;
    }
    if (err_sys(&e, r, "cannot be judged") >= 0)
        return r;
    draft_refused(d, &e);
    return name_refused(l, f->name, &e);
}

/* ---- drafts ---- */

/* The text of a key, rendered without the lock for a file that is opened for writing. */
struct rendered {
    struct shown of;
    struct buf text;
};

static void rendered_free(struct rendered *p)
{
    shown_free(&p->of);
    buf_free(&p->text);
}

/* Return true if a writer of this file begins with the stored text, and that is not what was
 * rendered. */
static bool needs_text(const struct live *l, const struct file *f, struct rendered *p)
{
    if (!key_of(f) || (f->draft && !draft_is_over(f->draft)))
        return false;
    struct shown now = value_stored(l, f->name);
    if (now.snap == p->of.snap && now.kv == p->of.kv) {
        shown_free(&now);
        return false;
    }
    rendered_free(p);
    *p = (struct rendered){.of = now};
    return true;
}

static void mark_dirty(struct live_file *h)
{
    h->file->draft->dirty += !h->dirty;
    h->dirty = true;
}

static void mark_flushed(struct live_file *h)
{
    h->file->draft->dirty -= h->dirty;
    h->dirty = false;
}

/* Drop what a draft has, and count it out of the helpers' bytes. */
static void empty(struct live *l, struct file *f)
{
    if (f->kind == FILE_HELPER)
        l->helper_bytes -= f->draft->text.len;
    draft_empty(f->draft);
}

/* Begin the draft of a file, or begin it again. */
static int begin(struct file *f, struct rendered *p)
{
    struct buf *from = f->kind == FILE_HELPER ? &f->content : &p->text;
    if (!f->draft && !(f->draft = draft_new()))
        return -ENOMEM;
    buf_free(&f->draft->text);
    f->draft->text = *from;
    *from = BUF_INIT;
    draft_restart(f->draft);
    return 0;
}

/* Begin the draft of a file unless it is being written. */
static int begin_once(struct live *l, struct file *f, struct rendered *p, const struct err *unready)
{
    struct name *x = key_of(f);
    if (x && (l->stop || unready->code))
        return l->stop ? -EROFS : name_refused(l, x, unready);
    return !f->draft || (x && draft_is_over(f->draft)) ? begin(f, p) : 0;
}

static int join(struct live *l, struct live_file *h, struct rendered *p, bool emptied,
                const struct err *unready)
{
    struct file *f = h->file;
    const int r = begin_once(l, f, p, unready);
    if (r < 0)
        return r;
    f->draft->writers++;
    if (emptied) {
        empty(l, f);
        mark_dirty(h);
        h->version = f->draft->version;
    }
    return 0;
}

/* ---- open ---- */

/* Open a file. made: it is new. */
static int open_locked(struct live *l, struct live_file *h, struct file *f, int flags, bool made,
                       struct rendered *p, const struct err *unready)
{
    const bool writes = (flags & O_ACCMODE) != O_RDONLY;
    if (f->kind == FILE_LINK)
        return -ELOOP;
    if (writes && !f->name)
        return -ESTALE; /* makes the kernel look the name up again */
    *h = (struct live_file){.file = f, .writes = writes, .append = flags & O_APPEND};
    const int r = writes ? join(l, h, p, made || flags & O_TRUNC, unready) : 0;
    if (r < 0)
        return r;
    f->opens++;
    return 0;
}

/* Get the content of a file opened for reading. The bytes of a helper are read by live_read()
 * instead. */
static int text_of(const struct live *l, const struct file *f, struct live_text *ret)
{
    if (f->kind == FILE_HELPER)
        return 0;
    ret->fixed = true;
    if (!f->name && !f->draft)
        return -ESTALE;
    if (!f->name || draft_is_shown(f->draft))
        buf_add(&ret->bytes, f->draft->text.data, f->draft->text.len);
    else
        ret->value = value_stored(l, f->name);
    return buf_error(&ret->bytes);
}

int live_open_file(struct live *l, uint32_t number, int flags, struct live_file **ret,
                   struct live_text *text)
{
    CLEANUP(rendered_free) struct rendered p = {0};
    struct err unready = {0};
    struct file *f;
    int why;
    const bool writes = (flags & O_ACCMODE) != O_RDONLY;
    struct live_file *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    if (writes)
        overlay_ready(l, &unready);
    lock_take(&l->lock);
    while ((f = file_numbered(l, number, &why)) && writes && !(flags & O_TRUNC) &&
           needs_text(l, f, &p)) {
        lock_drop(&l->lock);
        shown_text(&p.of, &p.text);
        lock_take(&l->lock);
    }
    int r = f ? buf_error(&p.text) : why;
    if (r == 0 && !writes)
        r = text_of(l, f, text);
    if (r == 0)
        r = open_locked(l, h, f, flags, false, &p, &unready);
    if (r == 0 && writes) /* not earlier: this handle may have joined the draft of the made file */
        live_end_made(l);
    lock_drop(&l->lock);
    if (r < 0)
        free(h);
    else
        *ret = h;
    return r;
}

/* ---- create ---- */

static struct shown attr_of(const struct live *l, const struct file *f, struct live_attr *ret);

/* A key is created while its removal is being written: the new key has the same type. */
static void keep_type(const struct live *l, struct file *f)
{
    CLEANUP(shown_free) struct shown s = value_stored(l, f->name);
    struct gguf_value v;
    if (f->name->gone && l->busy && shown_value(&s, &v) &&
        !(v.type == GGUF_ARRAY && v.elem == GGUF_ARRAY))
        f->draft->typed = (struct typed){true, v.type, v.elem};
}

static int create_locked(struct live *l, const char *name, int flags, const struct err *unready,
                         struct live_attr *ret, struct live_file *h)
{
    CLEANUP(rendered_free) struct rendered p = {0};
    char key[TREE_NAME_MAX + 1];
    struct typed type;
    int why, r = 0;
    struct file *f = file_look(l, name, &why);
    const bool typed = type_of_name(name, key, &type);
    if (!f && typed)
        f = file_look(l, key, &why);
    if (f && flags & O_EXCL)
        return -EEXIST;
    const bool made = !f;
    if (made)
        r = name_create(l, typed ? key : name, flags & LIVE_MKSTEMP ? NAME_MKSTEMP : NAME_CREATED,
                        &f);
    if (r == 0 && !made && !(flags & O_TRUNC) && needs_text(l, f, &p))
        shown_text(&p.of, &p.text); /* it was created since the kernel looked */
    if (r == 0)
        r = buf_error(&p.text);
    if (r == 0)
        r = open_locked(l, h, f, (flags & ~O_ACCMODE) | O_RDWR, made, &p, unready);
    if (r < 0 && f && made)
        file_drop(l, f);
    if (r < 0)
        return r;
    if (made && f->kind == FILE_KEY) {
        keep_type(l, f);
        name_spare(l, f->name);
    }
    if (typed && f->kind == FILE_KEY)
        f->draft->typed = type;
    struct shown shown = attr_of(l, f, ret);
    shown_free(&shown);
    ret->size = f->draft->text.len;
    f->lookups++;
    live_end_made(l);
    return 0;
}

int live_create(struct live *l, const char *name, int flags, struct live_attr *ret,
                struct live_file **f)
{
    struct err unready;
    struct live_file *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    overlay_ready(l, &unready);
    lock_take(&l->lock);
    int r = create_locked(l, name, flags, &unready, ret, h);
    if (r == 0 && !f) {
        l->made.file = h;
        l->made.due = when_after(LIVE_MADE * 1000);
        queue_tick(l, &l->made.due);
    }
    lock_drop(&l->lock);
    if (r < 0)
        free(h);
    else if (f)
        *f = h;
    return r;
}

int live_make(struct live *l, const char *name, struct live_attr *ret)
{
    return live_create(l, name, O_EXCL, ret, NULL);
}

/* ---- read and write ---- */

/* The content is copied with the lock held, because other writers may move it. A file that was a
 * helper when it was opened keeps its bytes until it is closed. */
size_t live_read(struct live *l, const struct live_file *h, uint64_t off, size_t n, void *dst)
{
    LOCKED(&l->lock);
    const struct file *f = h->file;
    const bool drafted = f->draft && (h->writes || f->kind == FILE_HELPER);
    const struct buf *b = drafted ? &f->draft->text : &f->content;
    n = (size_t)within_u64(off, n, b->len);
    if (n > 0)
        memcpy(dst, b->data + off, n);
    return n;
}

/* Check that the content can be n bytes long. */
static int check_room(const struct live *l, const struct file *f, uint64_t n)
{
    if (f->kind == FILE_HELPER)
        return helper_room(l, f->draft->text.len, n);
    return n > TEXT_MAX ? -EFBIG : 0;
}

/* A program that writes or truncates past the end of a text that was accepted has seen the size of
 * the stored text, so its draft begins with that. */
static int reach(struct live *l, struct file *f, uint64_t off)
{
    CLEANUP(rendered_free) struct rendered p = {0};
    if (f->draft->state != DRAFT_CLEAN || off <= f->draft->text.len || !key_of(f))
        return 0;
    p.of = value_stored(l, f->name);
    shown_text(&p.of, &p.text);
    return buf_error(&p.text) ? buf_error(&p.text) : begin(f, &p);
}

/* Any failure refuses the whole draft, because a partly written text is not a value. */
int live_write(struct live *l, struct live_file *h, uint64_t off, const void *bytes, size_t n)
{
    struct err e = {0};
    uint64_t end = UINT64_MAX;
    if (!h->writes)
        return -EBADF;
    LOCKED(&l->lock);
    struct file *f = h->file;
    struct draft *d = f->draft;
    struct name *x = key_of(f);
    if (x && d->broken) /* an earlier part is missing */
        return d->why.code;
    int r = h->append ? 0 : reach(l, f, off);
    const size_t was = d->text.len;
    if (h->append)
        off = was;
    (void)add_u64(off, n, &end);
    mark_dirty(h);
    if (r == 0)
        r = check_room(l, f, end);
    if (r == 0)
        r = draft_write(d, off, bytes, n);
    h->version = d->version;
    if (f->kind == FILE_HELPER)
        l->helper_bytes += d->text.len - was;
    if (f->kind == FILE_HELPER && f->name)
        f->name->mtime = when_date();
    if (!x)
        return r;
    d->broken = r < 0;
    if (r < 0)
        (void)err_sys(&e, r, "cannot be written");
    else if (d->whole || h->append) /* an append keeps the existing text */
        r = value_check_write(l, x, &d->typed, &d->text, h->append || d->text.len == n, &e);
    if (r == 0)
        return 0;
    draft_refused(d, &e);
    return name_refused(l, x, &e);
}

/* A truncation without a write makes an empty string or array. */
static bool has_empty_value(const struct live *l, const struct file *f)
{
    const struct name *x = f->name;
    const struct key_row *row = key_find(x->key, x->key_len);
    CLEANUP(shown_free) struct shown s = value_stored(l, x);
    struct gguf_value v;
    uint32_t type = row ? row->type : GGUF_STRING;
    if (f->draft->typed.set)
        type = f->draft->typed.type;
    else if (shown_value(&s, &v))
        type = v.type;
    return type == GGUF_STRING || type == GGUF_ARRAY;
}

int draft_judge_rest(struct live *l, struct file *f, struct live_wait *w)
{
    const struct draft *d = f->draft;
    if (!key_of(f))
        return 0;
    if (!l->ending &&
        (d->state == DRAFT_WRITTEN || (d->state == DRAFT_EMPTIED && has_empty_value(l, f))))
        return judge(l, f, WHEN_MODE, w);
    draft_restart(f->draft);
    return 0;
}

static int resize(struct live *l, struct file *f, uint64_t size)
{
    int r = reach(l, f, size);
    const size_t was = f->draft->text.len;
    if (r == 0)
        r = check_room(l, f, size);
    if (r == 0)
        r = draft_resize(f->draft, size);
    if (f->kind == FILE_HELPER)
        l->helper_bytes += f->draft->text.len - was;
    return r;
}

static int truncate_locked(struct live *l, struct file *f, uint64_t size, struct rendered *p,
                           const struct err *unready, struct live_wait *w)
{
    if (!f->name)
        return -ESTALE;
    if (f->kind == FILE_LINK)
        return -EINVAL;
    int r = buf_error(&p->text) ? buf_error(&p->text) : begin_once(l, f, p, unready);
    if (r == 0)
        r = resize(l, f, size);
    if (r == 0 && !f->draft->dirty) /* else those who write it bring it */
        r = draft_judge_rest(l, f, w);
    file_settle(l, f);
    return r;
}

int live_truncate(struct live *l, uint32_t number, struct live_file *h, uint64_t size,
                  struct live_wait *w)
{
    CLEANUP(rendered_free) struct rendered p = {0};
    struct err unready;
    struct file *f;
    int why, r;
    overlay_ready(l, &unready);
    lock_take(&l->lock);
    if (h && h->writes) {
        mark_dirty(h);
        r = resize(l, h->file, size);
        h->version = h->file->draft->version;
    } else {
        while ((f = file_numbered(l, number, &why)) && size > 0 && needs_text(l, f, &p)) {
            lock_drop(&l->lock);
            shown_text(&p.of, &p.text);
            lock_take(&l->lock);
        }
        r = f ? truncate_locked(l, f, size, &p, &unready, w) : why;
    }
    lock_drop(&l->lock);
    return r;
}

/* ---- close ---- */

/* Judge what a handle and others wrote, if that was not refused already. Returns true with the
 * result, or false if there is nothing to judge. */
static bool flush(struct live *l, struct live_file *h, enum when when, struct live_wait *w, int *r)
{
    const struct file *f = h->file;
    const struct draft *d = f->draft;
    const bool key = key_of(f) || (when == WHEN_NOW && f->name && f->pins);
    const int refusal = key ? draft_refusal(d, h->version) : 0;
    const bool judges = key && d->state == DRAFT_WRITTEN &&
                        (when == WHEN_NOW || h->dirty || !d->dirty); /* else they may not be done */
    mark_flushed(h);
    *r = refusal;
    if (!refusal && judges)
        *r = judge(l, h->file, when, w);
    return refusal || judges;
}

int live_flush(struct live *l, struct live_file *h, struct live_wait *w)
{
    if (!h->writes)
        return 0;
    LOCKED(&l->lock);
    int r = 0;
    (void)flush(l, h, WHEN_MODE, w, &r);
    return r;
}

int live_fsync(struct live *l, struct live_file *h, struct live_wait *w)
{
    LOCKED(&l->lock);
    if (!h) {
        live_end_made(l);
        tensors_hurry(l);
    }
    int r;
    return h && h->writes && flush(l, h, WHEN_NOW, w, &r) ? r : queue_sync(l, w);
}

static void release_locked(struct live *l, struct live_file *h)
{
    struct file *f = h->file;
    if (h->writes) {
        mark_flushed(h);
        if (--f->draft->writers == 0)
            (void)draft_judge_rest(l, f, NULL);
    }
    if (--f->opens == 0 && f->kind == FILE_KEY)
        buf_free(&f->content); /* what it had as a helper */
    file_settle(l, f);
}

void live_release(struct live *l, struct live_file *h)
{
    lock_take(&l->lock);
    release_locked(l, h);
    lock_drop(&l->lock);
    free(h);
}

void live_end_made(struct live *l)
{
    struct live_file *h = l->made.file;
    l->made.file = NULL;
    if (h)
        release_locked(l, h);
    free(h);
}

/* ---- attributes ---- */

/* Get a file's attributes. If the size is that of a stored value, returns the value, which is to be
 * measured without the lock. */
static struct shown attr_of(const struct live *l, const struct file *f, struct live_attr *ret)
{
    const struct name *x = f->name;
    *ret = (struct live_attr){.number = f->number,
                              .ino = x ? x->ino : f->number,
                              .link = f->kind == FILE_LINK,
                              .mtime = x ? x->mtime : (struct timespec){0}};
    const struct draft *d = f->kind == FILE_HELPER || draft_is_shown(f->draft) ? f->draft : NULL;
    if (d || f->kind != FILE_KEY || !x)
        ret->size = d ? d->text.len : f->content.len;
    else
        return value_stored(l, x);
    return SHOWN_NONE;
}

/* The same for a key that nobody has touched. */
static struct shown attr_of_key(const struct live *l, uint32_t kv, struct live_attr *ret)
{
    const struct gguf *own = snapshot_own(l->state);
    const struct gguf_kv *k = &own->kv[kv];
    const uint32_t number = key_number(l, kv);
    *ret = (struct live_attr){.number = number, .ino = number};
    return (struct shown){snapshot_ref(l->state),
                          gguf_find_key(l->state->gguf, gguf_key(own, k), k->key_len)};
}

static void measure(struct shown *s, struct live_attr *ret)
{
    if (s->snap)
        ret->size = shown_size(s);
    shown_free(s);
}

int live_attr(struct live *l, uint32_t number, const struct live_file *h, struct live_attr *ret)
{
    CLEANUP(shown_free) struct shown s = SHOWN_NONE;
    int why = -ENOENT;
    lock_take(&l->lock);
    struct file *f = file_numbered(l, number, &why);
    if (f)
        s = attr_of(l, f, ret);
    if (f && h && h->writes) {
        shown_free(&s);
        ret->size = h->file->draft->text.len;
    }
    if (f)
        file_settle(l, f); /* it may have been made for this call */
    lock_drop(&l->lock);
    measure(&s, ret);
    return f ? 0 : why;
}

/* Find a visible name. attrs: get all attributes, and count a reference. Call with the lock held. */
static int find(struct live *l, const char *name, bool attrs, struct live_attr *ret,
                struct shown *s)
{
    int why = -ENOENT;
    struct name *x = name_find(l, name);
    const uint32_t kv = x ? UINT32_MAX : key_named(l, name);
    if (kv != UINT32_MAX) {
        *s = attr_of_key(l, kv, ret);
        return 0;
    }
    if (!attrs && x && !x->file && name_shows_key(l, x)) {
        *ret = (struct live_attr){.number = x->ino, .ino = x->ino};
        return 0;
    }
    struct file *f = file_look(l, name, &why);
    if (!f)
        return why;
    *s = attr_of(l, f, ret);
    f->lookups += attrs;
    return 0;
}

int live_lookup(struct live *l, const char *name, struct live_attr *ret)
{
    struct shown s = SHOWN_NONE;
    lock_take(&l->lock);
    int r = find(l, name, true, ret, &s);
    lock_drop(&l->lock);
    measure(&s, ret);
    return r;
}

void live_forget(struct live *l, uint32_t number, uint64_t n)
{
    LOCKED(&l->lock);
    struct file *f = file_known(l, number);
    if (!f)
        return;
    f->lookups -= min_u64(f->lookups, n);
    file_settle(l, f);
}

/* ---- listing ---- */

static int list_add(struct live_list *list, const char *text)
{
    int r = array_grow(&list->at, &list->cap, list->n, sizeof(*list->at));
    if (r < 0)
        return r;
    list->at[list->n++] = list->names.len;
    buf_add(&list->names, text, strlen(text) + 1);
    return buf_error(&list->names);
}

/* List the names of a state, and then those that it lacks. */
static int list_names(struct live *l, struct live_list *ret)
{
    const struct snapshot *g = l->state;
    char text[TREE_NAME_MAX + 1];
    int r = 0;
    for (uint32_t kv = 0; kv < g->gguf->n_kv && r == 0; kv++) {
        const struct gguf_kv *k = &g->gguf->kv[kv];
        if (!snapshot_shows_key(g, kv))
            continue;
        (void)name_encode(gguf_key(g->gguf, k), k->key_len, text);
        const struct name *x = l->by_text.n ? name_find(l, text) : NULL;
        if (!x || x->file || name_shows_key(l, x))
            r = list_add(ret, text);
    }
    for (const struct name *x = l->first; x && r == 0; x = x->next)
        if (x->file && !value_is_stored(l, x))
            r = list_add(ret, x->text);
    return r;
}

int live_list(struct live *l, struct live_list *list)
{
    struct live_list now = {0};
    lock_take(&l->lock);
    int r = list_names(l, &now);
    lock_drop(&l->lock);
    live_list_free(r < 0 ? &now : list);
    if (r == 0)
        *list = now;
    return r;
}

void live_list_free(struct live_list *list)
{
    buf_free(&list->names);
    free(list->at);
    *list = (struct live_list){0};
}

int live_list_at(struct live *l, const struct live_list *list, uint64_t *i, bool attrs,
                 char name[TREE_NAME_MAX + 1], struct live_attr *ret)
{
    struct shown s = SHOWN_NONE;
    lock_take(&l->lock);
    int r = -ENOENT;
    for (; *i < list->n && r == -ENOENT; ++*i)
        r = find(l, strcpy(name, (const char *)list->names.data + list->at[*i]), attrs, ret, &s);
    *i -= r == 0;
    lock_drop(&l->lock);
    if (attrs)
        measure(&s, ret);
    shown_free(&s);
    return r == 0 ? 1 : r == -ENOENT ? 0 : r;
}

/* ---- facts and types ---- */

int live_facts(struct live *l, uint32_t number, struct live_facts *ret)
{
    CLEANUP(shown_free) struct shown s = SHOWN_NONE;
    struct gguf_value v;
    int why;
    *ret = (struct live_facts){0};
    lock_take(&l->lock);
    struct file *f = file_numbered(l, number, &why);
    const struct name *x = f ? f->name : NULL;
    if (f && key_of(f))
        s = value_stored(l, x);
    const struct typed none = {0};
    const struct typed *typed = !f || s.snap                              ? &none
                                : f->kind == FILE_HELPER && !f->inherited ? &f->typed
                                : f->draft                                ? &f->draft->typed
                                                                          : &none;
    if (typed->set)
        type_put(typed, &ret->type);
    ret->helper = f && f->kind == FILE_HELPER;
    if (x && x->key)
        buf_add(&ret->key, x->key, x->key_len);
    buf_str(&ret->error, x && x->error ? x->error : "");
    if (f)
        file_settle(l, f);
    lock_drop(&l->lock);
    if (shown_value(&s, &v))
        type_name_put(&v, &ret->type);
    int r = !f                                                                        ? why
            : buf_error(&ret->key) || buf_error(&ret->type) || buf_error(&ret->error) ? -ENOMEM
                                                                                      : 0;
    if (r < 0)
        live_facts_free(ret);
    return r;
}

void live_facts_free(struct live_facts *f)
{
    buf_free(&f->key);
    buf_free(&f->type);
    buf_free(&f->error);
}

static int accept_type(struct live *l, struct request *q, struct err *e)
{
    struct gguf_value v;
    struct name *x = key_meant(q->file);
    CLEANUP(shown_free) struct shown s = x ? value_stored(l, x) : SHOWN_NONE;
    if (!s.snap)
        return err_set(e, -ENOENT, "the key is gone");
    if (strcmp(x->key, "general.alignment") == 0)
        return err_set(e, -EINVAL, "its type cannot be changed");
    if (shown_value(&s, &v) && v.type == GGUF_ARRAY && v.elem == GGUF_ARRAY)
        return err_set(e, -EOPNOTSUPP, "arrays of arrays cannot be edited");
    request_pin(q, x);
    lock_drop(&l->lock);
    shown_text(&s, &q->text);
    lock_take(&l->lock);
    return buf_error(&q->text) ? err_set(e, -ENOMEM, "no memory for the edit")
                               : value_accept(l, q, x, e);
}

int live_retype(struct live *l, uint32_t number, const void *name, size_t n, struct live_wait *w)
{
    struct typed type;
    int why;
    if (!type_by_name(name, n, &type))
        return -EINVAL;
    LOCKED(&l->lock);
    struct file *f = file_numbered(l, number, &why);
    if (!f || !f->name)
        return f ? -ENOENT : why;
    if (f->kind == FILE_LINK)
        return -EPERM;
    if (f->kind == FILE_HELPER) { /* for the key that it is renamed to (rsync -X) */
        f->typed = type;
        f->inherited = false;
        return 0;
    }
    struct draft *d = f->pins ? NULL : f->draft; /* else the text is judged before the type */
    if (d && (draft_is_shown(d) || (d->state == DRAFT_REFUSED && !draft_is_over(d)) ||
              !value_is_stored(l, f->name))) {
        d->typed = type; /* for the text that comes (cp -a) */
        return 0;
    }
    struct request *q = request_new(l, f, NULL, NULL);
    if (!q)
        return -ENOMEM;
    if (d)
        d->typed.set = false; /* that of KEY:TYPE is outdated */
    q->typed = type;
    q->number = UINT64_MAX; /* no draft's */
    q->apply = accept_type;
    q->end = text_accepted;
    q->when = WHEN_MODE;
    return queue_add(l, q, w);
}

int live_forgive(struct live *l, uint32_t number)
{
    int why;
    LOCKED(&l->lock);
    struct file *f = file_numbered(l, number, &why);
    if (f && f->name)
        name_set_error(l, f->name, NULL);
    return f ? 0 : why;
}

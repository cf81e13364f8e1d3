/* SPDX-License-Identifier: MIT */
/* Names and files of metadata/ (meta.h). */
#include "live/meta.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "gguf/value.h"
#include "live/names.h"
#include "live/overlay.h"
#include "live/value.h"
#include "text/text.h"

/* ---- keys that nobody has touched ---- */

uint32_t key_named(const struct live *l, const char *text)
{
    const struct snapshot *g = l->state;
    const uint32_t kv = snapshot_find(g, true, text);
    if (kv == UINT32_MAX || !snapshot_shows_key(g, kv))
        return UINT32_MAX;
    const struct gguf_kv *k = &g->gguf->kv[kv];
    return g->shard ? gguf_find_key(snapshot_own(g), gguf_key(g->gguf, k), k->key_len) : kv;
}

/* ---- making and freeing ---- */

void name_set_error(struct live *l, struct name *x, const char *why)
{
    char *copy = why ? strdup(why) : NULL;
    l->n_errors += copy != NULL;
    l->n_errors -= x->error != NULL;
    free(x->error);
    x->error = copy;
}

struct name *name_make(struct live *l, const char *text, const char *key, size_t key_len,
                       uint32_t ino)
{
    struct name *x = calloc(1, sizeof(*x));
    if (!x)
        return NULL;
    x->text = strdup(text);
    if (key && (x->key = malloc(key_len + 1))) {
        *(char *)mempcpy(x->key, key, key_len) = '\0';
        x->key_len = key_len;
    }
    if (!x->text || (key && !x->key) ||
        table_add(&l->by_text, &x->link, hash_name(text, strlen(text))) < 0) {
        free(x->text);
        free(x->key);
        free(x);
        return NULL;
    }
    x->ino = ino;
    x->before = l->last;
    *(l->last ? &l->last->next : &l->first) = x;
    l->last = x;
    return x;
}

static void name_free(struct live *l, struct name *x)
{
    name_set_error(l, x, NULL);
    l->n_gone -= x->gone;
    table_remove(&l->by_text, &x->link);
    *(x->before ? &x->before->next : &l->first) = x->next;
    *(x->next ? &x->next->before : &l->last) = x->before;
    free(x->text);
    free(x->key);
    free(x);
}

static struct file *file_known(const struct live *l, uint32_t number)
{
    struct link *i = table_first(&l->by_number, hash_number(number));
    while (i && ((struct file *)i)->number != number)
        i = table_next(i);
    return (struct file *)i;
}

/* The name of a key that the model had at first stays: the key may come back, by an undo, and its
 * number may be another's. */
void name_reap(struct live *l, struct name *x)
{
    const bool born = x->key && gguf_find_key(l->born, x->key, x->key_len) != UINT32_MAX;
    if (!x->file && !x->backup && !x->gone && !x->pins && !x->error && !born &&
        !value_is_stored(l, x))
        name_free(l, x);
}

struct file *file_make(struct live *l, struct name *x)
{
    struct file *f = calloc(1, sizeof(*f));
    const uint32_t number = file_known(l, x->ino) ? l->given++ : x->ino;
    if (!f || table_add(&l->by_number, &f->link, hash_number(number)) < 0) {
        free(f);
        return NULL;
    }
    f->number = number;
    f->name = x;
    x->file = f;
    return f;
}

static void live_file_free(struct live *l, struct file *f)
{
    table_remove(&l->by_number, &f->link);
    buf_free(&f->text);
    free(f);
}

void file_drop(struct live *l, struct file *f)
{
    struct name *x = f->name;
    if (f->backs)
        f->backs->backup = NULL;
    f->backs = NULL;
    f->name = NULL;
    x->file = NULL;
    file_settle(l, f);
    name_reap(l, x);
}

void file_move(struct live *l, struct file *f, struct name *to)
{
    struct name *from = f->name;
    to->pins++;
    if (to->file)
        file_drop(l, to->file);
    if (from)
        from->file = NULL;
    f->name = to;
    to->file = f;
    to->pins--;
    if (from)
        name_reap(l, from);
}

void names_close(struct live *l)
{
    while (l->first)
        name_free(l, l->first);
    for (struct link *i; (i = table_each(&l->by_number, NULL));)
        live_file_free(l, (struct file *)i);
    table_free(&l->by_text);
    table_free(&l->by_number);
}

/* ---- finding ---- */

struct name *name_find(const struct live *l, const char *text)
{
    struct link *i = table_first(&l->by_text, hash_name(text, strlen(text)));
    while (i && strcmp(((struct name *)i)->text, text) != 0)
        i = table_next(i);
    return (struct name *)i;
}

/* Return the name of this key, making one if the accepted state has the key. */
static struct name *name_look(struct live *l, const char *text, int *why)
{
    struct name *x = name_find(l, text);
    const uint32_t kv = x ? UINT32_MAX : key_named(l, text);
    *why = -ENOENT;
    if (kv == UINT32_MAX)
        return x;
    const struct gguf *own = snapshot_own(l->state);
    const char *key = gguf_key(own, &own->kv[kv]);
    const uint32_t number = gguf_find_key(l->born, key, own->kv[kv].key_len);
    x = name_make(l, text, key, own->kv[kv].key_len, number == UINT32_MAX ? l->given++ : number);
    *why = x ? 0 : -ENOMEM;
    return x;
}

struct name *file_key(const struct file *f)
{
    return f->name && f->name->key ? f->name : NULL;
}

static bool name_shows_key(const struct live *l, const struct name *x)
{
    return x->key && !x->backup && value_is_stored(l, x);
}

static bool has_type(const struct live *l, const struct file *f, const struct typed *type)
{
    struct gguf_value v;
    CLEANUP(shown_free) struct shown s = value_stored(l, f->name);
    if (shown_value(&s, &v))
        return v.type == type->type && (v.type != GGUF_ARRAY || v.elem == type->elem);
    return f->typed.set && f->typed.type == type->type && f->typed.elem == type->elem;
}

/* Return the file that a name shows, making one if it has none. */
static struct file *find_plain(struct live *l, const char *text, int *why)
{
    struct name *x = name_look(l, text, why);
    if (!x)
        return NULL;
    *why = -ENOENT;
    if (!x->file && name_shows_key(l, x) && !file_make(l, x))
        *why = -ENOMEM;
    return x->file;
}

struct file *file_look(struct live *l, const char *text, int *why)
{
    char key[TREE_NAME_MAX + 1];
    struct typed type;
    struct file *f = find_plain(l, text, why);
    if (f || *why != -ENOENT || !type_of_name(text, key, &type.type, &type.elem))
        return f;
    f = find_plain(l, key, why);
    if (f && file_key(f) && has_type(l, f, &type))
        return f;
    *why = f ? -ENOENT : *why;
    return NULL;
}

struct file *file_numbered(struct live *l, uint32_t number, int *why)
{
    char text[TREE_NAME_MAX + 1];
    struct file *f = file_known(l, number);
    *why = f ? 0 : -ENOENT;
    if (f || number >= l->born->n_kv)
        return f;
    const struct gguf_kv *k = &l->born->kv[number];
    (void)name_encode(gguf_key(l->born, k), k->key_len, text);
    f = find_plain(l, text, why);
    if (!f || f->number == number)
        return f;
    *why = -ESTALE; /* another file has taken the key's name */
    return NULL;
}

/* ---- changing ---- */

int name_refused(struct live *l, struct name *x, const struct err *e)
{
    char shown[SHOW_MAX];
    live_log(l, LOG_WARNING, "%s: refused: %s", show(shown, x->text, strlen(x->text)), e->msg);
    name_set_error(l, x, e->msg);
    return e->code;
}

void name_keep(struct live *l, struct name *x)
{
    const struct edit_slot *s;
    if (!x->gone || (l->busy && !edit_find(&l->pending, x->key, x->key_len, &s)))
        return;
    l->changes++;
    l->n_gone--;
    x->gone = false;
    queue_spared(l);
}

void names_spare_all(struct live *l, const struct err *why)
{
    for (struct name *x = l->first; x && l->n_gone; x = x->next) {
        if (!x->gone || !(why || x->file))
            continue;
        name_keep(l, x);
        if (why && why->code)
            (void)name_refused(l, x, why);
    }
}

void name_spare(struct live *l, struct name *x)
{
    name_keep(l, x);
    if (x->backup)
        x->backup->backs = NULL;
    x->backup = NULL;
}

void file_settle(struct live *l, struct file *f)
{
    struct name *x = f->name;
    const bool rests = !f->writers && !f->pins && !f->made;
    if (rests && !(file_key(f) && x->ino >= l->born->n_kv && f->state == DRAFT_CLEAN))
        draft_restart(l, f);
    if (rests && file_key(f) && !value_is_stored(l, x)) {
        file_drop(l, f);
    } else if (rests && !f->opens && !f->lookups && (!x || x->key)) {
        if (x)
            x->file = NULL;
        live_file_free(l, f);
        if (x)
            name_reap(l, x);
    }
}

void names_removed(struct live *l)
{
    for (struct name *x = l->first, *next; x && l->n_gone; x = next) {
        next = x->next;
        if (!x->gone || gguf_find_key(l->state->gguf, x->key, x->key_len) != UINT32_MAX)
            continue;
        l->n_gone--;
        x->gone = false;
        name_set_error(l, x, NULL);
        name_reap(l, x);
    }
}

struct name *name_key(struct live *l, const char *text)
{
    char key[TREE_NAME_MAX + 1];
    size_t n;
    int why;
    struct name *x = name_look(l, text, &why);
    if (!x && why == -ENOENT && name_decode(text, key, &n) == 0)
        x = name_make(l, text, key, n, l->given++);
    return x;
}

/* ---- attributes ---- */

/* Get a file's attributes. If the size is that of a stored value, returns the value, which is to be
 * measured without the lock. */
static struct shown attr_of(const struct live *l, const struct file *f, struct live_attr *ret)
{
    const struct name *x = f->name;
    *ret = (struct live_attr){.number = f->number,
                              .ino = x ? x->ino : f->number,
                              .mtime = x ? x->mtime : (struct timespec){0}};
    if (file_key(f) && !draft_is_shown(f))
        return value_stored(l, x);
    ret->size = f->text.len;
    return SHOWN_NONE;
}

static void measure(struct shown *s, struct live_attr *ret)
{
    if (s->snap)
        ret->size = shown_size(s);
    shown_free(s);
}

/* ---- open and create ---- */

/* Open a file. emptied: it is new or truncated. */
static int open_found(struct live *l, struct live_file *h, struct file *f, int flags, bool emptied,
                      const struct err *unready)
{
    const bool writes = (flags & O_ACCMODE) != O_RDONLY;
    if (writes && !f->name)
        return -ESTALE; /* makes the kernel look the name up again */
    *h = (struct live_file){.file = f, .writes = writes, .append = flags & O_APPEND};
    const int r = writes ? draft_open(l, f, unready) : 0;
    if (r < 0)
        return r;
    f->opens++;
    f->writers += writes;
    f->made &= !writes;
    if (writes && emptied)
        draft_empty(l, h);
    return 0;
}

/* True if the key of this file went before its text was needed. */
static bool has_lost_text(const struct file *f)
{
    return !f->name && f->state == DRAFT_NONE && f->text.len == 0;
}

/* Get the content of a file opened for reading. */
static int text_of(const struct live *l, const struct file *f, struct live_text *ret)
{
    if (has_lost_text(f))
        return -ESTALE;
    if (!file_key(f) || draft_is_shown(f))
        buf_add(&ret->bytes, f->text.data, f->text.len);
    else
        ret->value = value_stored(l, f->name);
    return buf_error(&ret->bytes);
}

int live_open_file(struct live *l, uint32_t number, int flags, struct live_file **ret,
                   struct live_text *text)
{
    struct err unready = {0};
    int r;
    const bool writes = (flags & O_ACCMODE) != O_RDONLY;
    struct live_file *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    if (writes)
        overlay_ready(l, true, &unready);
    lock_take(&l->lock);
    struct file *f = file_numbered(l, number, &r);
    if (f)
        r = writes ? 0 : text_of(l, f, text);
    if (r == 0)
        r = open_found(l, h, f, flags, flags & O_TRUNC, &unready);
    lock_drop(&l->lock);
    if (r < 0)
        free(h);
    else
        *ret = h;
    return r;
}

/* Make a file, and open it. name: without a type. */
static int open_new(struct live *l, const char *name, int flags, const struct err *unready,
                    struct live_file *h)
{
    struct file *f;
    int r = name_create(l, name, flags & LIVE_MKSTEMP ? NAME_MKSTEMP : NAME_CREATED, &f);
    if (r < 0)
        return r;
    r = open_found(l, h, f, flags, true, unready);
    if (r < 0) {
        file_drop(l, f);
        return r;
    }
    if (file_key(f))
        name_spare(l, f->name);
    return 0;
}

int live_create(struct live *l, const char *name, int flags, struct live_attr *ret,
                struct live_file **opened)
{
    struct shown shown = SHOWN_NONE;
    char key[TREE_NAME_MAX + 1];
    struct err unready;
    struct typed type = {.set = true};
    int why, r;
    const bool typed = type_of_name(name, key, &type.type, &type.elem);
    struct live_file *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    flags = (flags & ~O_ACCMODE) | O_RDWR;
    overlay_ready(l, true, &unready);
    lock_take(&l->lock);
    struct file *f = file_look(l, name, &why);
    if (!f && typed)
        f = file_look(l, key, &why);
    if (f) /* it was created since the kernel looked */
        r = flags & O_EXCL ? -EEXIST : open_found(l, h, f, flags, flags & O_TRUNC, &unready);
    else
        r = open_new(l, typed ? key : name, flags, &unready, h);
    if (r == 0) {
        f = h->file;
        if (typed && file_key(f))
            f->typed = type;
        shown = attr_of(l, f, ret);
        f->lookups++;
        *opened = h;
    }
    lock_drop(&l->lock);
    measure(&shown, ret);
    if (r < 0)
        free(h);
    return r;
}

int live_make(struct live *l, const char *name, struct live_attr *ret)
{
    struct live_file *h;
    const int r = live_create(l, name, O_EXCL, ret, &h);
    if (r < 0)
        return r;
    lock_take(&l->lock);
    h->file->made = true;
    lock_drop(&l->lock);
    live_release(l, h);
    return 0;
}

/* ---- read ---- */

/* The content is copied with the lock held, because writers may move it. */
int live_read(struct live *l, const struct live_file *h, uint64_t off, size_t n, void *dst,
              size_t *ret)
{
    LOCKED(&l->lock);
    const struct file *f = h->file;
    const struct buf *b = &f->text;
    if (!h->wrote)
        draft_pass_on(l, h->file);
    const int r = draft_load(l, h->file, 0);
    if (r < 0 || has_lost_text(f))
        return r < 0 ? r : -ESTALE;
    *ret = (size_t)within_u64(off, n, b->len);
    if (*ret > 0)
        memcpy(dst, b->data + off, *ret);
    return 0;
}

int live_attr(struct live *l, uint32_t number, const struct live_file *h, struct live_attr *ret)
{
    CLEANUP(shown_free) struct shown s = SHOWN_NONE;
    int why = -ENOENT;
    lock_take(&l->lock);
    struct file *f = file_numbered(l, number, &why);
    if (f)
        s = attr_of(l, f, ret);
    if (f && h && h->wrote && h->file->state != DRAFT_NONE) {
        shown_free(&s);
        ret->size = h->file->text.len;
    }
    if (f)
        file_settle(l, f); /* it may have been made for this call */
    lock_drop(&l->lock);
    measure(&s, ret);
    return f ? 0 : why;
}

/* Find a visible name. refs: number of references to count. Call with the lock held. */
static int find_attr(struct live *l, const char *name, unsigned refs, struct live_attr *ret,
                     struct shown *s)
{
    int why;
    struct file *f = file_look(l, name, &why);
    if (!f)
        return why;
    *s = attr_of(l, f, ret);
    f->lookups += refs;
    file_settle(l, f); /* it may have been made for this call */
    return 0;
}

int live_lookup(struct live *l, const char *name, struct live_attr *ret)
{
    struct shown s = SHOWN_NONE;
    lock_take(&l->lock);
    int r = find_attr(l, name, 1, ret, &s);
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
    f->made &= f->lookups > 0;
    file_settle(l, f);
}

/* ---- listing ---- */

/* List the names of the state, and then those that it lacks. */
int live_list(struct live *l, struct buf *names)
{
    LOCKED(&l->lock);
    const struct snapshot *g = l->state;
    char text[TREE_NAME_MAX + 1];
    names->len = 0;
    for (uint32_t kv = 0; kv < g->gguf->n_kv; kv++) {
        const struct gguf_kv *k = &g->gguf->kv[kv];
        if (!snapshot_shows_key(g, kv))
            continue;
        (void)name_encode(gguf_key(g->gguf, k), k->key_len, text);
        const struct name *x = l->by_text.n ? name_find(l, text) : NULL;
        if (!x || (x->file && !x->gone) || name_shows_key(l, x))
            buf_add(names, text, strlen(text) + 1);
    }
    for (const struct name *x = l->first; x; x = x->next)
        if (x->file && !value_is_stored(l, x))
            buf_add(names, x->text, strlen(x->text) + 1);
    return buf_error(names);
}

int live_list_at(struct live *l, const struct buf *names, uint64_t *at, bool attrs,
                 char name[TREE_NAME_MAX + 1], struct live_attr *ret)
{
    struct shown s = SHOWN_NONE;
    int r = -ENOENT;
    lock_take(&l->lock);
    while (r == -ENOENT && *at < names->len) {
        const char *text = (const char *)names->data + *at;
        if (*at == 0 || text[-1] == '\0')
            r = find_attr(l, strcpy(name, text), attrs, ret, &s);
        *at += r < 0;
    }
    lock_drop(&l->lock);
    if (attrs)
        measure(&s, ret);
    shown_free(&s);
    return r == 0 ? 1 : r == -ENOENT ? 0 : r;
}

/* ---- facts ---- */

int live_facts(struct live *l, uint32_t number, const struct live_facts *to)
{
    CLEANUP(shown_free) struct shown s = SHOWN_NONE;
    struct gguf_value v;
    int why;
    lock_take(&l->lock);
    struct file *f = file_numbered(l, number, &why);
    const struct name *x = f ? f->name : NULL;
    if (x)
        s = value_stored(l, x);
    const bool typed = x && !s.snap && f->typed.set && !f->typed.inherited;
    if (typed)
        v = (struct gguf_value){.type = (uint8_t)f->typed.type, .elem = (uint8_t)f->typed.elem};
    *to->helper = x && !x->key;
    if (x && x->key)
        buf_add(to->key, x->key, x->key_len);
    buf_str(to->error, x && x->error ? x->error : "");
    if (f)
        file_settle(l, f);
    lock_drop(&l->lock);
    if (typed || shown_value(&s, &v))
        type_name_put(&v, to->type);
    return f ? 0 : why;
}

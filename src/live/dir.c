/* SPDX-License-Identifier: MIT */
/* Names and files of metadata/, and the calls that change them (dir.h). */
#include "live/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "gguf/value.h"
#include "live/draft.h"
#include "live/overlay.h"
#include "live/value.h"

/* ---- keys that nobody has touched ---- */

uint32_t key_number(const struct live *l, uint32_t kv)
{
    return ids_of(l->state->key_ids, kv).number;
}

uint32_t key_numbered(const struct live *l, uint32_t number)
{
    const uint32_t kv = ids_find(l->state->key_ids, snapshot_own(l->state)->n_kv, number);
    return kv == IDS_NONE ? UINT32_MAX : kv;
}

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

/* key: NULL for a helper. */
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
    buf_free(&x->raw);
    free(x->text);
    free(x->key);
    free(x);
}

struct file *file_known(const struct live *l, uint32_t number)
{
    struct link *i = table_first(&l->by_number, hash_number(number));
    while (i && ((struct file *)i)->number != number)
        i = table_next(i);
    return (struct file *)i;
}

/* A key whose number another file has (vim's backup) needs its name to have one of its own. */
void name_reap(struct live *l, struct name *x)
{
    const bool told = x->error || (x->mtime.tv_sec && value_is_stored(l, x));
    const bool ousted = x->key && file_known(l, x->ino) && value_is_stored(l, x);
    if (!x->file && !x->backup && !x->gone && !x->pins && !told && !ousted)
        name_free(l, x);
}

/* A key's file gets the key's own number unless an earlier file of it is still in use. */
struct file *file_make(struct live *l, struct name *x, enum file_kind kind)
{
    struct file *f = calloc(1, sizeof(*f));
    const uint32_t number = file_known(l, x->ino) ? l->given++ : x->ino;
    if (!f || table_add(&l->by_number, &f->link, hash_number(number)) < 0) {
        free(f);
        return NULL;
    }
    f->number = number;
    f->first = kind == FILE_KEY && number == x->ino;
    f->kind = kind;
    f->name = x;
    x->file = f;
    return f;
}

static void file_free(struct live *l, struct file *f)
{
    if (f->kind != FILE_KEY)
        l->helper_bytes -= f->content.len;
    table_remove(&l->by_number, &f->link);
    draft_free(f->draft);
    buf_free(&f->content);
    free(f);
}

static void file_reap(struct live *l, struct file *f)
{
    struct name *x = f->name;
    if (f->opens || f->lookups || f->pins || (x && f->kind != FILE_KEY))
        return;
    if (f->first && !(x && x->ino == f->number))
        return;
    if (x)
        x->file = NULL;
    file_free(l, f);
    if (x)
        name_reap(l, x);
}

void file_drop(struct live *l, struct file *f)
{
    struct name *x = f->name;
    if (f->backs)
        f->backs->backup = NULL;
    f->backs = NULL;
    f->name = NULL;
    x->file = NULL;
    file_reap(l, f);
    name_reap(l, x);
}

/* Give a file another name, whose file becomes an orphan. */
void file_move(struct live *l, struct file *f, struct name *to)
{
    struct name *from = f->name;
    to->pins++;
    if (!to->file && to->key && value_is_stored(l, to) && !file_known(l, to->ino))
        (void)file_make(l, to, FILE_KEY); /* who still has its number gets ESTALE */
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
    for (struct name *x = l->first, *next; x; x = next) {
        next = x->next;
        free(x->error);
        buf_free(&x->raw);
        free(x->text);
        free(x->key);
        free(x);
    }
    for (struct link *i; (i = table_each(&l->by_number, NULL));)
        file_free(l, (struct file *)i);
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

/* Make the name of key kv of the accepted state. */
static struct name *touch(struct live *l, uint32_t kv, int *why)
{
    char text[TREE_NAME_MAX + 1];
    const struct gguf *own = snapshot_own(l->state);
    const char *key = gguf_key(own, &own->kv[kv]);
    (void)name_encode(key, own->kv[kv].key_len, text);
    struct name *x = name_find(l, text);
    if (!x)
        x = name_make(l, text, key, own->kv[kv].key_len, key_number(l, kv));
    *why = x ? 0 : -ENOMEM;
    return x;
}

struct name *name_look(struct live *l, const char *text, int *why)
{
    assert(lock_held(&l->lock));
    struct name *x = name_find(l, text);
    const uint32_t kv = x ? UINT32_MAX : key_named(l, text);
    *why = -ENOENT;
    return kv == UINT32_MAX ? x : touch(l, kv, why);
}

struct name *key_meant(const struct file *f)
{
    return f->kind == FILE_KEY ? f->name : f->backs;
}

bool name_shows_key(const struct live *l, const struct name *x)
{
    return x->key && !x->gone && !x->backup && value_is_stored(l, x);
}

struct file *name_file(struct live *l, struct name *x, int *why)
{
    *why = -ENOENT;
    if (!x->file && name_shows_key(l, x) && !file_make(l, x, FILE_KEY))
        *why = -ENOMEM;
    return x->file;
}

static bool has_type(const struct live *l, const struct file *f, const struct typed *type)
{
    struct gguf_value v;
    CLEANUP(shown_free) struct shown s = value_stored(l, f->name);
    if (shown_value(&s, &v))
        return v.type == type->type && (v.type != GGUF_ARRAY || v.elem == type->elem);
    return f->draft && f->draft->typed.set && f->draft->typed.type == type->type &&
           f->draft->typed.elem == type->elem;
}

static struct file *find_plain(struct live *l, const char *text, int *why)
{
    struct name *x = name_look(l, text, why);
    return x ? name_file(l, x, why) : NULL;
}

struct file *file_look(struct live *l, const char *text, int *why)
{
    char key[TREE_NAME_MAX + 1];
    struct typed type;
    struct file *f = find_plain(l, text, why);
    if (f || *why != -ENOENT || !type_of_name(text, key, &type))
        return f;
    f = find_plain(l, key, why);
    if (f && f->kind == FILE_KEY && has_type(l, f, &type))
        return f;
    *why = f ? -ENOENT : *why;
    return NULL;
}

struct file *file_numbered(struct live *l, uint32_t number, int *why)
{
    struct file *f = file_known(l, number);
    const uint32_t kv = f ? UINT32_MAX : key_numbered(l, number);
    *why = f ? 0 : -ENOENT;
    struct name *x = kv == UINT32_MAX ? NULL : touch(l, kv, why);
    if (x)
        f = name_file(l, x, why);
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

void name_spare(struct live *l, struct name *x)
{
    if (x->gone)
        atomic_store(&l->stale, true);
    l->n_gone -= x->gone;
    x->gone = false;
    if (!overlay_is_pending(l))
        l->trouble = (struct err){0};
    if (x->backup)
        x->backup->backs = NULL;
    x->backup = NULL;
}

static void end_draft(struct file *f)
{
    if (f->kind == FILE_HELPER) {
        buf_free(&f->content);
        f->content = f->draft->text;
        f->draft->text = BUF_INIT;
    }
    draft_free(f->draft);
    f->draft = NULL;
}

void file_settle(struct live *l, struct file *f)
{
    if (f->draft && !f->draft->writers && !f->pins)
        end_draft(f);
    const bool hides = f->kind == FILE_KEY && f->name && !f->draft && !f->pins;
    if (hides && !value_is_stored(l, f->name))
        file_drop(l, f);
    else
        file_reap(l, f);
}

void names_removed(struct live *l)
{
    for (struct name *x = l->first, *next; x && l->n_gone; x = next) {
        next = x->next;
        if (!x->gone || value_is_stored(l, x))
            continue;
        l->n_gone--;
        x->gone = false;
        name_reap(l, x);
    }
}

int helper_room(const struct live *l, uint64_t was, uint64_t len)
{
    return len <= was || (len <= TEXT_MAX && l->helper_bytes - was <= TEXT_MAX - len) ? 0 : -ENOSPC;
}

/* ---- create ---- */

static bool is_key(const void *live, const char *text)
{
    const struct live *l = live;
    const struct name *x = name_find(l, text);
    return x ? x->key != NULL : key_named(l, text) != UINT32_MAX;
}

enum name_class name_class_of(const struct live *l, const char *text, enum name_way way)
{
    const struct name_keys keys = {is_key, l};
    return is_key(l, text) ? NAME_KEY : name_classify(text, way, &keys);
}

void name_keep_raw(struct live *l, struct name *x, struct buf *text)
{
    const struct name_keys keys = {is_key, l};
    buf_free(&x->raw);
    if (!name_is_temporary(x->text, &keys))
        return;
    x->raw = *text;
    *text = BUF_INIT;
}

int name_refuse(const struct live *l, const char *text)
{
    char shown[SHOW_MAX];
    live_log(l, LOG_WARNING,
             strchr(text, '.') && key_valid(text, strlen(text))
                 ? "%s: refused: a backup beside a key would not outlast the mount"
                 : "%s: refused: a key's name is letters, digits, _ and - with dots between, as in "
                   "my.flag",
             show(shown, text, strlen(text)));
    return -EINVAL;
}

/* Return the name of a key that may not be there yet. */
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

int name_create(struct live *l, const char *text, enum name_way way, struct file **ret)
{
    const enum name_class class = name_class_of(l, text, way);
    if (class == NAME_INVALID)
        return name_refuse(l, text);
    if (class == NAME_KEY && key_is_own(text, strlen(text)))
        return -EPERM;
    struct name *x =
        class == NAME_KEY ? name_key(l, text) : name_make(l, text, NULL, 0, l->given++);
    if (!x)
        return -ENOMEM;
    *ret = file_make(l, x, class == NAME_KEY ? FILE_KEY : FILE_HELPER);
    if (!*ret) {
        name_reap(l, x);
        return -ENOMEM;
    }
    if (!x->gone) /* a key that was moved aside is there again, even if this fails */
        name_spare(l, x);
    if (class == NAME_HELPER)
        x->mtime = when_date();
    return 0;
}

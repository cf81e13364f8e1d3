/* SPDX-License-Identifier: MIT */
/* Manages names, files and tensors (objects.h). */
#include "live/objects.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"

static void name_free(struct name *x)
{
    free(x->key);
    free(x->error);
    free(x);
}

static void file_free(struct file *f)
{
    assert(!f->draft);
    buf_free(&f->content);
    free(f);
}

/* ---- names ---- */

struct name *names_find(const struct names *n, const char *text)
{
    struct link *l = table_first(&n->by_text, hash_name(text, strlen(text)));
    while (l && strcmp(((struct name *)l)->text, text) != 0)
        l = table_next(l);
    return (struct name *)l;
}

static struct name *of_link(struct link *l)
{
    return l ? (struct name *)((char *)l - offsetof(struct name, ino_link)) : NULL;
}

struct name *names_of_ino(const struct names *n, uint32_t ino)
{
    struct link *l = table_first(&n->by_ino, hash_number(ino));
    while (l && of_link(l)->ino != ino)
        l = table_next(l);
    return of_link(l);
}

/* Removing the two entries first leaves room, so inserting them cannot fail. */
void name_swap_inos(struct names *n, struct name *x, struct name *y)
{
    uint32_t ino = x->ino;
    table_remove(&n->by_ino, &x->ino_link);
    table_remove(&n->by_ino, &y->ino_link);
    x->ino = y->ino;
    y->ino = ino;
    (void)table_add(&n->by_ino, &x->ino_link, hash_number(x->ino));
    (void)table_add(&n->by_ino, &y->ino_link, hash_number(y->ino));
}

struct name *names_find_key(const struct names *n, const char *key, size_t len)
{
    char text[TREE_NAME_MAX + 1];
    (void)name_encode(key, len, text);
    struct name *x = names_find(n, text);
    return x && x->key ? x : NULL;
}

static int set_key(struct name *x, const char *key, size_t len)
{
    x->key = malloc(len + 1);
    if (!x->key)
        return -ENOMEM;
    *(char *)mempcpy(x->key, key, len) = '\0';
    x->key_len = len;
    return 0;
}

/* Make a name; key is NULL for the name of a helper. */
static struct name *make(struct names *n, const char *text, const char *key, size_t len,
                         uint32_t ino)
{
    size_t size = strlen(text) + 1;
    struct name *x = calloc(1, sizeof(*x) + size);
    int r = !x || ino == UINT32_MAX ? -ENOMEM : key ? set_key(x, key, len) : 0;
    if (r == 0)
        r = table_add(&n->by_text, &x->link, hash_name(text, size - 1));
    if (r == 0 && (r = table_add(&n->by_ino, &x->ino_link, hash_number(ino))) < 0)
        table_remove(&n->by_text, &x->link);
    if (r < 0) {
        if (x)
            name_free(x);
        return NULL;
    }
    x->mtime = when_date();
    (void)memcpy(x->text, text, size);
    x->ino = ino;
    x->older = n->newest;
    *(n->newest ? &n->newest->newer : &n->oldest) = x;
    n->newest = x;
    return x;
}

/* Return a name, making it if needed; key is NULL for the name of a helper. The name of a helper
 * that has a file stays a helper's. */
static struct name *get(struct names *n, const char *text, const char *key, size_t len)
{
    struct name *x = names_find(n, text);
    if (!x) {
        x = make(n, text, key, len, n->given);
        n->given += x != NULL;
        return x;
    }
    if (key && !x->key && !x->file && set_key(x, key, len) < 0)
        return NULL;
    return x;
}

struct name *names_get(struct names *n, const char *text, bool key)
{
    char decoded[TREE_NAME_MAX + 1];
    size_t len = 0;
    if (key && name_decode(text, decoded, &len) < 0)
        return names_find(n, text);
    return get(n, text, key ? decoded : NULL, len);
}

struct name *names_get_key(struct names *n, const char *key, size_t len)
{
    char text[TREE_NAME_MAX + 1];
    (void)name_encode(key, len, text);
    return get(n, text, key, len);
}

/* Free a name if nothing refers to it. The name of a key that was once stored is kept, with the
 * key's type and place. */
void name_reap(struct names *n, struct name *x)
{
    if (x->file || x->refs || x->error || x->doomed || x->backup || x->rank || x->typed.set)
        return;
    table_remove(&n->by_text, &x->link);
    table_remove(&n->by_ino, &x->ino_link);
    *(x->newer ? &x->newer->older : &n->newest) = x->older;
    *(x->older ? &x->older->newer : &n->oldest) = x->newer;
    name_free(x);
}

void name_set_error(struct names *n, struct name *x, const char *why)
{
    n->n_errors -= x->error != NULL;
    free(x->error);
    x->error = why ? strdup(why) : NULL;
    n->n_errors += x->error != NULL;
}

void name_take(struct names *n, struct name *x, struct file *f)
{
    struct file *old = x->file;
    if (f->of) { /* otherwise the file is new */
        f->of->file = f->of->file == f ? NULL : f->of->file;
        f->of->refs--;
    }
    f->of = x;
    x->refs++;
    x->file = f;
    if (old)
        file_reap(n, old);
}

void name_leave(struct names *n, struct name *x)
{
    struct file *f = x->file;
    x->file = NULL;
    file_reap(n, f);
}

void name_doom(struct names *n, struct name *x)
{
    name_spare(n, x);
    x->doomed = true;
    n->n_doomed++;
    atomic_store(&n->other_doomed, true);
}

void name_spare(struct names *n, struct name *x)
{
    if (x->backup)
        x->backup->parked = NULL;
    x->backup = NULL;
    if (!x->doomed)
        return;
    x->doomed = false;
    n->n_doomed--;
    atomic_store(&n->other_doomed, true);
}

/* ---- files ---- */

static struct file *new_file(struct names *n, enum file_kind kind, uint32_t number)
{
    struct file *f = calloc(1, sizeof(*f));
    if (!f || table_add(&n->by_number, &f->link, hash_number(number)) < 0) {
        free(f);
        return NULL;
    }
    f->kind = kind;
    f->number = number;
    return f;
}

struct file *file_new(struct names *n, struct name *x, enum file_kind kind)
{
    struct file *f = n->given == UINT32_MAX ? NULL : new_file(n, kind, n->given);
    n->given += f != NULL;
    if (f)
        name_take(n, x, f);
    return f;
}

struct name *names_touch(struct names *n, uint32_t i, const char *key, size_t len)
{
    char text[TREE_NAME_MAX + 1];
    (void)name_encode(key, len, text);
    struct name *x = make(n, text, key, len, i);
    struct file *f = x ? new_file(n, FILE_KEY, i) : NULL;
    if (!f) {
        if (x)
            name_reap(n, x);
        return NULL;
    }
    x->mtime = (struct timespec){0}; /* shows the model's mtime */
    name_take(n, x, f);
    return x;
}

/* Free a file if nothing refers to it. The file and name of an original key are kept, because
 * without them the key would count as untouched. */
void file_reap(struct names *n, struct file *f)
{
    struct name *x = f->of;
    if (file_name(f) || f->opens || f->steps || f->lookups || f->number < n->first)
        return;
    file_free_content(n, f);
    table_remove(&n->by_number, &f->link);
    file_free(f);
    x->refs--;
    name_reap(n, x);
}

void file_free_content(struct names *n, struct file *f)
{
    n->helper_bytes -= f->content.len;
    buf_free(&f->content);
}

void file_set_content(struct names *n, struct file *f, struct buf *bytes)
{
    file_free_content(n, f);
    n->helper_bytes += bytes->len;
    f->content = *bytes;
    *bytes = BUF_INIT;
}

const struct buf *file_written(const struct file *f)
{
    return f->kind == FILE_KEY && f->written && f->written == f->of->edit ? &f->content : NULL;
}

void file_is_key(struct names *n, struct file *f)
{
    if (f->kind == FILE_KEY && !f->opens && !f->steps && !file_written(f))
        file_free_content(n, f);
}

struct file *names_file(const struct names *n, uint32_t number)
{
    struct link *l = table_first(&n->by_number, hash_number(number));
    while (l && ((struct file *)l)->number != number)
        l = table_next(l);
    return (struct file *)l;
}

bool names_have_room(const struct names *n, uint64_t was, uint64_t len)
{
    uint64_t others = n->helper_bytes - was;
    return len <= TEXT_MAX && others <= TEXT_MAX - len;
}

struct file *names_make(struct names *n, const char *text, enum file_kind kind)
{
    struct name *x = names_get(n, text, kind == FILE_KEY);
    struct file *f = x ? file_new(n, x, kind) : NULL;
    if (x && !f)
        name_reap(n, x);
    return f;
}

/* ---- beginning and end ---- */

void names_init(struct names *n, uint32_t first)
{
    *n = (struct names){.first = first, .given = first};
}

void names_close(struct names *n)
{
    for (struct name *x = n->oldest, *next; x; x = next) {
        next = x->newer;
        name_free(x);
    }
    for (struct link *l = table_each(&n->by_number, NULL), *next; l; l = next) {
        next = table_each(&n->by_number, l);
        file_free((struct file *)l);
    }
    table_free(&n->by_number);
    table_free(&n->by_ino);
    table_free(&n->by_text);
    *n = (struct names){0};
}

/* ---- lists ---- */

/* Append an object to a list; it must not be in any list. */
static void enlist(struct object_list *list, struct object *o)
{
    o->in = list;
    o->before = list->last;
    o->next = NULL;
    *(o->before ? &o->before->next : &list->first) = o;
    list->last = o;
    list->n++;
}

/* Remove an object from its list, if any. */
static void unlist(struct object *o)
{
    struct object_list *list = o->in;
    if (!list)
        return;
    *(o->before ? &o->before->next : &list->first) = o->next;
    *(o->next ? &o->next->before : &list->last) = o->before;
    list->n--;
    o->in = NULL;
}

void object_move_last(struct object *o)
{
    struct object_list *list = o->in;
    unlist(o);
    enlist(list, o);
}

/* ---- finding, making, naming ---- */

static void object_free(struct object *o)
{
    free(o->name);
    free(o->error);
    free(o);
}

void objects_free(struct objects *s)
{
    for (size_t i = 0; i < s->cap; i++)
        if (s->of[i])
            object_free(s->of[i]);
    table_free(&s->by_name);
    table_free(&s->nodes);
    table_free(&s->shared);
    free((void *)s->of);
    *s = (struct objects){0};
}

struct object *object_find(const struct objects *s, uint32_t number)
{
    return number < s->cap ? s->of[number] : NULL;
}

struct object *object_get(struct objects *s, uint32_t number)
{
    struct object *o = object_find(s, number);
    size_t cap = s->cap ? s->cap : 64;
    if (o)
        return o;
    while (cap <= number)
        cap *= 2;
    if (cap > s->cap) {
        struct object **of = realloc((void *)s->of, cap * sizeof(struct object *));
        if (!of)
            return NULL;
        memset((void *)(of + s->cap), 0, (cap - s->cap) * sizeof(struct object *));
        s->of = of;
        s->cap = cap;
    }
    o = calloc(1, sizeof(*o));
    if (!o)
        return NULL;
    o->number = number;
    s->of[number] = o;
    return o;
}

struct object *object_from(const struct objects *s, uint64_t number)
{
    while (number < s->cap && !s->of[number])
        number++;
    return number < s->cap ? s->of[number] : NULL;
}

void object_drop(struct objects *s, struct object *o)
{
    unlist(o);
    object_clear_name(s, o);
    object_set_error(s, o, NULL);
    s->of[o->number] = NULL;
    object_free(o);
}

struct object *object_named(const struct objects *s, const void *name, size_t n,
                            enum object_state state)
{
    for (struct link *l = table_first(&s->by_name, hash_name(name, n)); l; l = table_next(l)) {
        struct object *o = (struct object *)l;
        if (o->state == state && o->name_len == n && memcmp(o->name, name, n) == 0)
            return o;
    }
    return NULL;
}

int object_set_name(struct objects *s, struct object *o, const void *name, size_t n)
{
    char *copy = malloc(n + 1);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, name, n);
    object_clear_name(s, o);
    if (table_add(&s->by_name, &o->link, hash_name(copy, n)) < 0) {
        free(copy);
        return -ENOMEM;
    }
    o->name = copy;
    o->name_len = n;
    return 0;
}

void object_clear_name(struct objects *s, struct object *o)
{
    if (o->name)
        table_remove(&s->by_name, &o->link);
    free(o->name);
    o->name = NULL;
    o->rank = 0;
}

/* ---- states ---- */

/* Marks an event that cannot happen in a state. */
#define NEVER OBJECT_STATES

// clang-format off
static const enum object_state states[OBJECT_STATES][OBJECT_EVENTS] = {
    /* MAKE ADD DOOM REMOVE BACK LOSE REGAIN */
    [OBJECT_STORED] = {OBJECT_NEW,    NEVER,         OBJECT_DOOMED, OBJECT_ABSENT, NEVER,         OBJECT_LOST,   NEVER},
    [OBJECT_NEW]    = {NEVER,         OBJECT_STORED, NEVER,         OBJECT_GONE,   NEVER,         NEVER,         NEVER},
    [OBJECT_DOOMED] = {NEVER,         NEVER,         NEVER,         OBJECT_ABSENT, OBJECT_STORED, OBJECT_LOST,   NEVER},
    [OBJECT_ABSENT] = {NEVER,         NEVER,         NEVER,         NEVER,         OBJECT_STORED, OBJECT_LOST,   NEVER},
    [OBJECT_LOST]   = {NEVER,         NEVER,         NEVER,         NEVER,         NEVER,         OBJECT_LOST,   OBJECT_GONE},
    [OBJECT_GONE]   = {NEVER,         NEVER,         NEVER,         NEVER,         NEVER,         NEVER,         NEVER},
};
// clang-format on

/* True if the object's error comes from an edit and is counted. */
static bool counts(const struct object *o)
{
    return o->error && (o->state == OBJECT_STORED || o->state == OBJECT_DOOMED);
}

void object_set_error(struct objects *s, struct object *o, const char *why)
{
    s->n_errors -= counts(o);
    free(o->error);
    o->error = why ? strdup(why) : NULL;
    s->n_errors += counts(o);
}

void object_event(struct objects *s, struct object *o, enum object_event event)
{
    const enum object_state to = states[o->state][event];
    assert(to != NEVER);
    if (to == OBJECT_DOOMED)
        o->due = when_after(1000 * OBJECTS_QUIET);
    unlist(o);
    s->n_errors -= counts(o);
    o->state = to;
    s->n_errors += counts(o);
    if (to == OBJECT_DOOMED || to == OBJECT_NEW)
        enlist(to == OBJECT_NEW ? &s->fresh : &s->doomed, o);
    if (to == OBJECT_STORED || to == OBJECT_GONE)
        object_clear_name(s, o);
    if (event == OBJECT_BACK) {
        o->hidden = 0;
        o->generation++;
    }
}

void objects_sync(struct objects *s)
{
    s->now = true;
    s->syncs++;
}

bool objects_due(const struct objects *s)
{
    return s->doomed.n > 0 && (s->now || when_past(&s->doomed.last->due, 0));
}

/* ---- unlinked views ---- */

uint32_t object_hidden(struct object *o)
{
    if (o->hidden && when_past(&o->due, 0))
        o->hidden = 0;
    return o->hidden;
}

void object_hide(struct object *o, uint32_t row)
{
    o->hidden = object_hidden(o) | (uint32_t)1 << row;
    o->due = when_after(1000 * OBJECTS_VIEWS);
}

void object_unhide(struct object *o, uint32_t row)
{
    o->hidden &= ~((uint32_t)1 << row);
}

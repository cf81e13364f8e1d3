/* SPDX-License-Identifier: MIT */
/* Names, files and slots: see names.h. */
#include "live/names.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/when.h"
#include "base/hash.h"

static uint32_t pool_take(struct pool *p)
{
    return p->n_back ? p->back[--p->n_back] : p->given++;
}

/* Without memory it is not given again. */
static void pool_return(struct pool *p, uint32_t number)
{
    if (array_grow(&p->back, &p->cap, p->n_back, sizeof(*p->back)) == 0)
        p->back[p->n_back++] = number;
}

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

/* ---- slots ---- */

/* An event that cannot come in this state. */
#define NEVER SLOTS

// clang-format off
static const enum slot slot_table[SLOTS][SLOT_EVENTS] = {
    /*
     *               ACCEPT       CREATE       UNLINK       PARK         LOST         REMOVED
     * REFUSED      BACK         GONE
     */
    [SLOT_ABSENT] = {SLOT_STORED, SLOT_ABSENT, SLOT_ABSENT, SLOT_ABSENT, NEVER,       NEVER,       SLOT_ABSENT, SLOT_STORED, SLOT_ABSENT},
    [SLOT_STORED] = {SLOT_STORED, SLOT_STORED, SLOT_DOOMED, SLOT_PARKED, NEVER,       SLOT_ABSENT, SLOT_STORED, SLOT_STORED, SLOT_ABSENT},
    [SLOT_DOOMED] = {SLOT_STORED, SLOT_STORED, NEVER,       NEVER,       NEVER,       SLOT_ABSENT, SLOT_STORED, SLOT_DOOMED, SLOT_ABSENT},
    [SLOT_PARKED] = {SLOT_STORED, SLOT_STORED, NEVER,       NEVER,       SLOT_DOOMED, NEVER,       SLOT_STORED, SLOT_PARKED, SLOT_ABSENT},
};
// clang-format on

/* What comes with a state: its place in the list of all that are DOOMED, its backup while PARKED. */
void slot_event(struct names *n, struct name *x, enum slot_event event)
{
    enum slot to = slot_table[x->slot][event];
    assert(x->key && to != NEVER);
    if (to == x->slot)
        return;
    if (to == SLOT_DOOMED || x->slot == SLOT_DOOMED)
        atomic_store(&n->other_doomed, true);
    if (x->slot == SLOT_DOOMED) {
        *x->doomed_at = x->next_doomed;
        if (x->next_doomed)
            x->next_doomed->doomed_at = x->doomed_at;
        n->n_doomed--;
    }
    if (x->slot == SLOT_PARKED && x->backup) {
        x->backup->parked = NULL;
        x->backup = NULL;
    }
    x->slot = to;
    if (to == SLOT_DOOMED) {
        x->next_doomed = n->doomed;
        x->doomed_at = &n->doomed;
        if (n->doomed)
            n->doomed->doomed_at = &x->next_doomed;
        n->doomed = x;
        n->n_doomed++;
    }
}

void slot_backup(struct name *key, struct file *helper)
{
    assert(key->slot == SLOT_PARKED && !key->backup && !helper->parked);
    key->backup = helper;
    helper->parked = key;
}

/* ---- names ---- */

struct name *names_find(const struct names *n, const char *text)
{
    struct link *l = table_first(&n->by_text, hash_name(text, strlen(text)));
    while (l && strcmp(((struct name *)l)->text, text) != 0)
        l = table_next(l);
    return (struct name *)l;
}

struct name *name_from(const struct names *n, uint32_t ino)
{
    while (ino < n->inos.given && !n->of[ino])
        ino++;
    return ino < n->inos.given ? n->of[ino] : NULL;
}

void name_swap_inos(struct names *n, struct name *x, struct name *y)
{
    uint32_t ino = x->ino;
    x->ino = y->ino;
    y->ino = ino;
    n->of[x->ino] = x;
    n->of[y->ino] = y;
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

/* key NULL: a helper's name. */
static struct name *make(struct names *n, const char *text, const char *key, size_t len)
{
    size_t size = strlen(text) + 1;
    struct name *x = calloc(1, sizeof(*x) + size);
    if (!x || array_grow(&n->of, &n->cap_of, n->inos.given, sizeof(struct name *)) < 0 ||
        (key && set_key(x, key, len) < 0) ||
        table_add(&n->by_text, &x->link, hash_name(text, size - 1)) < 0) {
        if (x)
            name_free(x);
        return NULL;
    }
    x->mtime = when_date();
    (void)memcpy(x->text, text, size);
    x->ino = pool_take(&n->inos);
    n->of[x->ino] = x;
    return x;
}

/* key NULL: as in make(). A helper that has a file keeps its name. */
static struct name *get(struct names *n, const char *text, const char *key, size_t len)
{
    struct name *x = names_find(n, text);
    if (!x)
        return make(n, text, key, len);
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

void name_unset_key(struct name *x)
{
    free(x->key);
    x->key = NULL;
}

/* A key that was stored keeps its type and place. */
void name_reap(struct names *n, struct name *x)
{
    if (x->file || x->pins || x->error || x->slot != SLOT_ABSENT || x->rank || x->typed.set)
        return;
    struct file *spare = x->spare;
    n->of[x->ino] = NULL;
    if (x->ino >= n->first)
        pool_return(&n->inos, x->ino);
    table_remove(&n->by_text, &x->link);
    name_free(x);
    if (spare) {
        spare->pins--;
        file_reap(n, spare);
    }
}

void name_set_error(struct names *n, struct name *x, const char *why)
{
    n->n_errors -= x->error != NULL;
    free(x->error);
    x->error = why ? strdup(why) : NULL;
    n->n_errors += x->error != NULL;
}

struct file *name_leave(struct name *x)
{
    struct file *f = x->file;
    assert(!f || f->name == x);
    x->file = NULL;
    if (f)
        f->name = NULL;
    if (f && x->key) {
        f->last = x;
        x->pins++;
    }
    return f;
}

/* The caller that drops a reference to the file reaps the name itself. */
static void unpin_last(struct file *f)
{
    struct name *x = f->last;
    if (!x)
        return;
    if (x->spare == f) { /* it may have a name again: no more */
        x->spare = NULL;
        f->pins--;
    }
    x->pins--;
    f->last = NULL;
}

void name_take(struct names *n, struct name *x, struct file *f)
{
    assert(!f->name);
    unpin_last(f);
    struct file *old = name_leave(x);
    x->file = f;
    f->name = x;
    if (old && x->key)
        name_spare(n, x, old);
    if (old)
        file_reap(n, old);
    if (x->spare == f) {
        x->spare = NULL;
        f->pins--;
    }
}

struct file *name_move(struct names *n, struct name *from, struct name *to)
{
    struct file *f = name_leave(from);
    name_take(n, to, f);
    return f;
}

void name_spare(struct names *n, struct name *x, struct file *f)
{
    struct file *old = x->spare;
    if (old && (old->opens || old->lookups || old->number < n->first))
        return;
    x->spare = f;
    f->pins++;
    if (!old)
        return;
    old->pins--;
    file_reap(n, old);
}

int name_keep_spare(struct names *n, struct name *x)
{
    struct file *f = x->spare ? NULL : file_new(n, x->key ? FILE_KEY : FILE_HELPER);
    if (!x->spare && !f)
        return -ENOMEM;
    if (f)
        name_spare(n, x, f);
    return 0;
}

void name_show(struct names *n, struct name *x)
{
    if (x->file || name_keep_spare(n, x) < 0)
        return;
    x->spare->kind = x->key ? FILE_KEY : FILE_HELPER;
    name_take(n, x, x->spare);
}

/* ---- files ---- */

/* A number that was used before if there is one. */
struct file *file_new(struct names *n, enum file_kind kind)
{
    struct file *f = calloc(1, sizeof(*f));
    if (!f || array_grow(&n->at, &n->cap, n->numbers.given, sizeof(*n->at)) < 0) {
        free(f);
        return NULL;
    }
    n->at[n->numbers.given] = (struct number){0};
    f->kind = kind;
    f->number = pool_take(&n->numbers);
    n->at[f->number].file = f;
    return f;
}

/* The number of a key of the first snapshot is not used again: the kernel may know it from before. */
void file_reap(struct names *n, struct file *f)
{
    if (f->name || f->opens || f->pins || f->steps || f->lookups || f->number < n->first)
        return;
    file_free_content(n, f);
    unpin_last(f);
    n->at[f->number].file = NULL;
    n->at[f->number].generation++;
    pool_return(&n->numbers, f->number);
    file_free(f);
}

void file_free_content(struct names *n, struct file *f)
{
    n->helper_bytes -= f->content.len;
    buf_free(&f->content);
}

void file_is_key(struct names *n, struct file *f)
{
    if (f->kind == FILE_KEY && !f->opens && !f->steps)
        file_free_content(n, f);
}

struct file *names_file(const struct names *n, uint32_t number)
{
    return number < n->numbers.given ? n->at[number].file : NULL;
}

bool names_have_room(const struct names *n, uint64_t was, uint64_t len)
{
    uint64_t others = n->helper_bytes - was;
    return len <= TEXT_MAX && others <= TEXT_MAX - len;
}

/* ---- a file with a name ---- */

struct file *names_make(struct names *n, const char *text, enum file_kind kind)
{
    struct name *x = names_get(n, text, kind == FILE_KEY);
    struct file *f = x ? file_new(n, kind) : NULL;
    if (f)
        name_take(n, x, f);
    else if (x)
        name_reap(n, x);
    return f;
}

/* ---- begin and end ---- */

void names_close(struct names *n)
{
    for (struct name *x = name_from(n, 0), *next; x; x = next) {
        next = name_from(n, x->ino + 1);
        name_free(x);
    }
    for (uint32_t i = 0; n->at && i < n->numbers.given; i++)
        if (n->at[i].file)
            file_free(n->at[i].file);
    free(n->at);
    free(n->numbers.back);
    free(n->inos.back);
    free((void *)n->of);
    table_free(&n->by_text);
    *n = (struct names){0};
}

/* Name and file of a key of the first snapshot, with the next number of each. */
static int add_key(struct names *n, const char *key, size_t len)
{
    struct name *x = names_get_key(n, key, len);
    struct file *f = x ? file_new(n, FILE_KEY) : NULL;
    if (!f)
        return -ENOMEM;
    x->mtime = (struct timespec){0}; /* the model's */
    slot_event(n, x, SLOT_BACK);
    name_take(n, x, f);
    return 0;
}

int names_init(struct names *n, const struct gguf *first)
{
    int r = 0;
    *n = (struct names){.first = first->n_kv};
    for (uint32_t i = 0; i < first->n_kv && r == 0; i++)
        r = add_key(n, gguf_key(first, &first->kv[i]), first->kv[i].key_len);
    if (r < 0)
        names_close(n);
    return r;
}

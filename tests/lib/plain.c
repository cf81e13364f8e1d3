/* SPDX-License-Identifier: MIT */
/* A simple model of metadata/: see plain.h. */
#include "plain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const plain_names[NAMES] = {"r.a", "r.b",  "r.c", "r.d",  "r.e",
                                        "r.f", "r.a~", ".x",  "4913", "#r.b#"};
const char *const plain_types[PLAIN_TYPES] = {"u8", "u32", "i32", "u64", "i64", "f32", "string"};

void plain_init(struct plain *x)
{
    *x = (struct plain){0};
    for (int i = 0; i < FILES; i++)
        x->file[i].name = -1;
}

bool plain_is_key(int name)
{
    return name >= 0 && name < KEYS;
}

struct file *plain_show(struct plain *x, int name)
{
    for (int i = 0; i < FILES; i++) {
        struct file *f = &x->file[i];
        if (f->name >= 0 || f->writers)
            continue;
        *f = (struct file){.name = name, .backup = -1};
        x->at[name] = f;
        return f;
    }
    abort();
}

void plain_orphan(struct plain *x, int name)
{
    if (x->at[name])
        x->at[name]->name = -1;
    x->at[name] = NULL;
}

void plain_move(struct plain *x, int from, int to)
{
    plain_orphan(x, to);
    x->at[to] = x->at[from];
    x->at[to]->name = to;
    x->at[from] = NULL;
}

static void without_newline(const char *text, char dst[4])
{
    (void)snprintf(dst, 4, "%.*s", (int)strcspn(text, "\n"), text);
}

const char *plain_text(const struct plain *x, int name, char dst[8])
{
    const struct file *f = x->at[name];
    if (!plain_is_key(name) || f->dirty)
        return f->text;
    (void)snprintf(dst, 8, "%s\n", x->slot[name].text);
    return dst;
}

void plain_store(struct plain *x, int key, const char *text, const struct file *typed)
{
    struct slot *s = &x->slot[key];
    if (typed && typed->typed)
        s->type = typed->type;
    else if (!s->stored && !s->known)
        s->type = PLAIN_U32;
    without_newline(text, s->text);
    s->stored = s->known = true;
    s->parked = s->removed = s->anew = s->gone = false;
}

void plain_accept(struct plain *x, struct file *f)
{
    if (!plain_is_key(f->name) || !f->dirty)
        return;
    plain_store(x, f->name, f->text, f);
    f->dirty = f->typed = false;
    for (int i = 0; i < OPEN; i++)
        if (x->handle[i] == f)
            x->wrote[i] = false;
}

void plain_drop(struct plain *x, int key)
{
    struct slot *s = &x->slot[key];
    s->removed |= s->stored;
    s->gone |= s->stored;
    s->stored = s->parked = s->anew = false;
}

struct file *plain_create(struct plain *x, int name)
{
    struct slot *s = plain_is_key(name) ? &x->slot[name] : NULL;
    if (s && s->removed)
        s->stored = s->anew = true;
    if (s)
        s->parked = s->removed = false;
    return plain_show(x, name);
}

/* Give the file a draft when it is opened for writing. */
void plain_join(struct plain *x, struct file *f, bool truncate)
{
    char text[8];
    bool over = plain_is_key(f->name) && f->written && !f->dirty;
    if (truncate)
        f->text[0] = '\0';
    else if (plain_is_key(f->name) && (!f->writers || over))
        (void)strcpy(f->text, plain_text(x, f->name, text));
    if (!f->writers || over || truncate)
        f->written = f->dirty = false;
    f->writers++;
}

void plain_write(struct file *f, unsigned off, char digit)
{
    size_t n = strlen(f->text);
    f->text[off] = digit;
    if (off == n)
        f->text[off + 1] = '\0';
    f->written = true;
    f->dirty = plain_is_key(f->name);
}

void plain_leave(struct plain *x, struct file *f)
{
    if (--f->writers == 0)
        plain_accept(x, f);
}

bool plain_is_parked(const struct plain *x, const struct file *f)
{
    return f->backup >= 0 && x->slot[f->backup].parked;
}

bool plain_is_of_others(const struct plain *x, int h)
{
    const struct file *f = x->handle[h];
    return plain_is_key(f->name) && f->dirty && !x->wrote[h] && f->writers > 1;
}

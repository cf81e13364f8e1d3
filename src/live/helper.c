/* SPDX-License-Identifier: MIT */
/* Classifies names in metadata/ (helper.h). */
#include "live/helper.h"

#include <ctype.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/keys.h"
#include "gguf/value.h"

static bool all(const char *s, int (*is)(int))
{
    for (; *s; s++)
        if (!is((unsigned char)*s))
            return false;
    return true;
}

/* True for a suffix such as "bak", or for six letters or digits as from mktemp(3). */
static bool helper_suffix(const char *s)
{
    static const char *const known[] = {"bak", "orig", "tmp", "new", "old", "rej", "swp", "save"};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(s, known[i]) == 0)
            return true;
    return strlen(s) == 6 && all(s, isalnum);
}

static int is_tempfile(int c)
{
    return isalnum(c) || c == '_';
}

/* True for known names without a dot: vim's probe 4913, sed's sedXXXXXX, Python's tmpXXXXXXXX (X is
 * a letter, digit or underscore), and any mktemp(3) name. */
static bool known_dotless(const char *s)
{
    size_t n = strlen(s);
    if (all(s, isdigit))
        return true;
    if (n < 6 || !all(s, is_tempfile))
        return false;
    if (strncmp(s, "tmp", 3) == 0)
        return true;
    return all(s, isalnum) && (strncmp(s, "sed", 3) == 0 || n == 8 /* perl -i */);
}

static bool six(const char *s)
{
    size_t n = 0;
    while (n < 6 && isalnum((unsigned char)s[n]))
        n++;
    return n == 6;
}

/* True for helix's backup: a key's name, followed by six letters or digits and ".bck". */
static bool is_helix(const char *file, size_t len, key_known_fn *known, void *ctx)
{
    enum { TAIL = 6 + 4 };
    return len > TAIL && strcmp(file + len - 4, ".bck") == 0 && six(file + len - TAIL) &&
           known(ctx, file, len - TAIL);
}

enum name_class name_classify(const char *file, key_known_fn *known, void *ctx)
{
    char raw[TREE_NAME_MAX + 1];
    size_t len = strlen(file), n;
    const char *dot = strrchr(file, '.');
    if (file[0] == '.' || file[0] == '#' || file[len - 1] == '~')
        return NAME_HELPER;
    if (!dot)
        return known_dotless(file) ? NAME_HELPER : NAME_STRAY;
    if (helper_suffix(dot + 1) && known(ctx, file, (size_t)(dot - file)))
        return NAME_HELPER;
    if (is_helix(file, len, known, ctx))
        return NAME_HELPER;
    if (name_decode(file, raw, &n) < 0 || !key_valid(raw, n))
        return NAME_INVALID;
    return NAME_KEY;
}

bool name_typed(const char *file, char key[TREE_NAME_MAX + 1], struct typed *ret)
{
    const char *colon = strrchr(file, ':');
    if (!colon || colon == file || !type_by_name(colon + 1, strlen(colon + 1), ret))
        return false;
    *(char *)mempcpy(key, file, (size_t)(colon - file)) = '\0';
    return true;
}

/* ---- types ---- */

/* Models have few lists of inner types, so a process keeps the first ones that it meets until it
 * ends. */
#define LISTS_MOST 256

/* Return the text of a list, which equal lists share. Returns NULL if there are too many lists, or
 * without memory. */
static const char *keep_list(struct type_list list)
{
    static _Atomic(const char *) kept[LISTS_MOST];
    for (size_t i = 0; i < LISTS_MOST; i++) {
        const char *p = atomic_load(&kept[i]), *mine = p ? NULL : strndup(list.p, list.n);
        if (mine && !atomic_compare_exchange_strong(&kept[i], &p, mine))
            free((void *)mine); /* another thread was first, and p is its text */
        else if (!p)
            return mine;
        if (strlen(p) == list.n && memcmp(p, list.p, list.n) == 0)
            return p;
    }
    return NULL;
}

bool type_by_name(const char *name, size_t n, struct typed *ret)
{
    struct type_name t;
    if (!type_name_get(name, n, &t))
        return false;
    *ret = (struct typed){.set = true, .type = t.type, .elem = t.elem};
    if (t.inner.p)
        ret->inner = keep_list(t.inner);
    return !t.inner.p || ret->inner;
}

struct typed type_of_value(const struct gguf_value *v)
{
    CLEANUP(buf_free) struct buf name = BUF_INIT;
    struct typed t = {.set = true, .type = v->type, .elem = v->elem};
    if (v->type != GGUF_ARRAY || v->elem != GGUF_ARRAY)
        return t;
    type_name_put(v, &name);
    if (buf_error(&name) == 0)
        (void)type_by_name((const char *)name.data, name.len, &t);
    return t;
}

struct type_name type_to_parse(const struct typed *t)
{
    return (struct type_name){
        .type = t->type, .elem = t->elem, .inner = {t->inner, t->inner ? strlen(t->inner) : 0}};
}

void type_put(const struct typed *t, struct buf *out)
{
    char name[GGUF_TYPE_NAME_MAX];
    const struct gguf_value v = {.type = (uint8_t)t->type, .elem = (uint8_t)t->elem};
    if (t->inner)
        buf_printf(out, "array[%s]", t->inner);
    else
        buf_str(out, gguf_type_name(&v, name));
}

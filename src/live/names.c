/* SPDX-License-Identifier: MIT */
/* Classifies new names in metadata/, removes and renames files (names.h). */
#include "live/names.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "gguf/value.h"
#include "live/meta.h"
#include "live/overlay.h"
#include "live/value.h"

/* ---- what a name means ---- */

enum name_class {
    NAME_KEY,     /* a valid key */
    NAME_HELPER,  /* lives in memory and never becomes a key */
    NAME_INVALID, /* neither; refused with EINVAL */
};

/* True if a key has or had the first n bytes as its file name. */
static bool is_key(const struct live *l, const char *name, size_t n)
{
    char text[TREE_NAME_MAX + 1];
    *(char *)mempcpy(text, name, n) = '\0';
    const struct name *x = name_find(l, text);
    return x ? x->key != NULL : key_named(l, text) != UINT32_MAX;
}

#define ALNUM "[[:alnum:]]"
#define ALNUM_3 ALNUM ALNUM ALNUM
#define TEMP "[[:alnum:]_]"

/* Names of helpers, as fnmatch(3) knows them. */
static const struct {
    const char *pattern;
    unsigned suffix; /* length; what stands before it is the name of a key. 0: no matter */
    unsigned ways;   /* in which it is a helper; in others it is invalid */
} helpers[] = {
    {"[.#]*", 0, ~0U},
    {"*~", 0, ~0U},
    {"+([0-9])", 0, ~0U},                                          /* vim probes 4913 */
    {ALNUM_3 ALNUM_3 ALNUM ALNUM, 0, 1U << NAME_MKSTEMP},          /* perl -i */
    {"@(sed|tmp)" TEMP TEMP "+(" TEMP ")", 0, 1U << NAME_MKSTEMP}, /* sed -i, Python */
    {"*.@(tmp|new|swp)", 4, ~0U},
    {"*" ALNUM_3 ALNUM_3 ".bck", 10, ~0U}, /* helix */
    {"*___jb_@(tmp|old)___", 12, ~0U},     /* JetBrains */
    {"*.@(bak|old)", 4, 1U << NAME_ASIDE},
    {"*.@(orig|save)", 5, 1U << NAME_ASIDE},
};

static bool fits(const char *pattern, const char *name)
{
    return fnmatch(pattern, name, FNM_EXTMATCH) == 0;
}

/* Classify a name. What is or was a key is one in any case. */
static enum name_class class_of(const struct live *l, const char *name, enum name_way way)
{
    char key[TREE_NAME_MAX + 1];
    size_t len = strlen(name);
    if (is_key(l, name, len))
        return NAME_KEY;
    for (size_t i = 0; i < COUNT(helpers); i++)
        if (fits(helpers[i].pattern, name) &&
            (!helpers[i].suffix || is_key(l, name, len - helpers[i].suffix)))
            return helpers[i].ways & 1U << way ? NAME_HELPER : NAME_INVALID;
    return strchr(name, '.') && name_decode(name, key, &len) == 0 && key_valid(key, len)
               ? NAME_KEY
               : NAME_INVALID;
}

bool name_is_fleeting(const char *name)
{
    return fits(helpers[0].pattern, name) || fits(helpers[1].pattern, name);
}

/* ---- create ---- */

static int refuse_name(const struct live *l, const char *text)
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

int name_create(struct live *l, const char *text, enum name_way way, struct file **ret)
{
    const enum name_class class = class_of(l, text, way);
    if (class == NAME_INVALID)
        return refuse_name(l, text);
    if (class == NAME_KEY && key_is_own(text, strlen(text)))
        return -EPERM;
    struct name *x =
        class == NAME_KEY ? name_key(l, text) : name_make(l, text, NULL, 0, l->given++);
    if (!x)
        return -ENOMEM;
    *ret = file_make(l, x);
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

/* Remove a key a moment from now, unless it comes back. It may be about to be stored. */
static void remove_later(struct live *l, struct name *x)
{
    if (x->gone || !(value_is_stored(l, x) || x->pins || (x->file && x->file->pins)))
        return;
    x->gone = true;
    l->n_gone++;
    l->changes++;
    newest_touch(l->newest);
    queue_later(l, true);
}

/* True for keys that every model needs or that this program reserves for itself. */
static bool stays(const struct name *x)
{
    return strcmp(x->key, "general.architecture") == 0 || key_is_own(x->key, x->key_len);
}

/* A helper goes that had the only text of a hidden key: the key was meant. */
static void lost_backup(struct live *l, struct name *key)
{
    if (!key)
        return;
    name_spare(l, key);
    if (!stays(key))
        remove_later(l, key);
}

/* ---- unlink ---- */

int live_unlink(struct live *l, const char *text)
{
    struct err unready;
    int why;
    overlay_ready(l, true, &unready);
    LOCKED(&l->lock);
    struct file *f = l->stop ? NULL : file_look(l, text, &why);
    if (!f)
        return l->stop ? -EROFS : why;
    struct name *x = f->name, *backs = f->backs;
    const bool key = x->key;
    if (key && stays(x))
        return -EPERM;
    if (key && unready.code)
        return name_refused(l, x, &unready);
    if (key)
        remove_later(l, x);
    if (!x->gone) /* else it goes with the value: vim removes a key and renames its backup back */
        name_set_error(l, x, NULL);
    file_drop(l, f);
    lost_backup(l, backs);
    return 0;
}

/* ---- rename ---- */

/* A rename whose new name is that of a helper, or of no file that is stored yet: no edit. */
static void rename_plainly(struct live *l, struct file *f, struct name *to)
{
    struct name *from = f->name;
    if (to->file && to->file->backs)
        lost_backup(l, to->file->backs);
    name_set_error(l, to, from->error);
    name_set_error(l, from, NULL);
    to->mtime = from->mtime;
    if (!to->key) /* cp(1) takes two files with one number for the same file */
        to->ino = from->key ? l->given++ : from->ino;
    file_move(l, f, to);
}

static int rename_to_helper(struct live *l, struct file *f, const char *text)
{
    struct name *to = name_find(l, text);
    if (!to)
        to = name_make(l, text, NULL, 0, f->number);
    if (!to)
        return -ENOMEM;
    rename_plainly(l, f, to);
    return 0;
}

/* The backup of vim: the helper gets the key's text, which was loaded, and the key is hidden until
 * it is created again or the helper is removed too. */
static int key_to_helper(struct live *l, struct file *f, const char *text)
{
    CLEANUP(shown_free) struct shown s = value_stored(l, f->name);
    struct gguf_value v;
    struct name *x = f->name;
    x->pins++;
    const int r = rename_to_helper(l, f, text);
    x->pins--;
    if (r < 0)
        return r;
    if (!f->typed.set && shown_value(&s, &v)) /* else the text that comes was given a type */
        f->typed =
            (struct typed){v.type != GGUF_ARRAY || v.elem != GGUF_ARRAY, v.type, v.elem, true};
    if (f->state != DRAFT_EMPTIED)
        draft_restart(l, f);
    if (s.snap || f->pins || x->pins) { /* it may be about to be stored */
        x->backup = f;
        f->backs = x;
    }
    name_reap(l, x);
    return 0;
}

/* Make the file that was renamed the file of a key. */
static void become_key(struct live *l, struct file *f, struct name *to)
{
    struct name *backs = f->backs == to ? NULL : f->backs;
    if (f->backs)
        f->backs->backup = NULL;
    f->backs = NULL;
    name_set_error(l, f->name, NULL);
    name_spare(l, to);
    if (!file_key(f) && (f->typed.inherited || f->state != DRAFT_EMPTIED))
        f->typed = (struct typed){0};
    file_move(l, f, to);
    lost_backup(l, backs);
}

/* A helper over a key. */
static int accept_helper(struct live *l, struct request *q, struct err *e)
{
    const struct typed *t = &q->file->typed;
    name_keep(l, q->to); /* as a create does */
    q->typed = t->inherited && value_is_stored(l, q->to) ? (struct typed){0} : *t;
    return value_accept(l, q, q->to, e);
}

/* A key over a key: the target keeps its place and type, and gets the other one's value. */
static int accept_key(struct live *l, struct request *q, struct err *e)
{
    struct edit_change *c = &l->pending;
    const struct name *from = q->from, *to = q->to;
    const struct file *f = q->file;
    const bool stored = value_is_stored(l, from);
    if (!stored && (q->number || !(f->writers || f->made || f->pins > 1)))
        return err_set(e, -ENOENT, "the key is gone");
    name_keep(l, q->to);
    if (!stored) /* its text has not come yet */
        return 0;
    q->number = value_is_stored(l, to); /* then the target stays the key that it is */
    if (!q->number) {
        const int r = edit_rename(c, from->key, from->key_len, to->key, to->key_len, e);
        return r < 0 ? r : 1;
    }
    if (f->state == DRAFT_CLEAN) /* as it was written */
        buf_add(&q->text, f->text.data, f->text.len);
    else
        (void)value_text(l, from, &q->text);
    int r = buf_error(&q->text) ? err_set(e, -ENOMEM, "no memory for the edit")
                                : value_accept(l, q, to, e);
    if (r >= 0)
        r = edit_remove(c, from->key, from->key_len, e);
    return r < 0 ? r : 1;
}

/* If a signal ended the wait, the value has moved, and both names stay as they are: a program that
 * tries again finds them, and others may have begun to write, remove or hide either. */
static int key_renamed(struct live *l, struct request *q, int r, const struct err *e)
{
    struct file *f = q->file;
    struct name *from = q->from, *to = q->to;
    const bool key = from->key;
    if (r < 0 && r != -ENOENT && !q->done && q->wait) /* sed -i.bak has moved the key aside */
        name_spare(l, to);
    if (r < 0 && !q->done)
        return r == -ENOENT ? r
                            : name_refused(l, from->file && !value_is_stored(l, to) ? from : to, e);
    if (q->changed) {
        to->mtime = from->mtime;
        name_set_error(l, to, NULL);
    }
    if (!q->wait && to->file)
        draft_accepted(to->file, UINT64_MAX, NULL);
    if (!q->wait)
        return r;
    if (key && !q->changed) {
        name_spare(l, to);
        f->typed.set &= !value_is_stored(l, to); /* the target keeps its type */
        rename_plainly(l, f, to);
        return r;
    }
    if (!key)
        draft_accepted(f, q->number, &q->typed);
    if (key && !q->number) { /* a new name of the same key */
        to->ino = from->ino;
        from->ino = l->given++;
    }
    from->mtime = (struct timespec){0};
    become_key(l, f, to);
    if (f->state != DRAFT_NONE && !f->writers)
        (void)draft_judge_rest(l, f, NULL);
    return r;
}

static int rename_over_key(struct live *l, struct file *f, const char *text, struct live_wait *w)
{
    const char *fixed = "general.alignment";
    const bool key = f->name->key;
    const struct err own = {.code = -EPERM, .msg = "the new name is one of the program's own keys"};
    if (key && (strcmp(f->name->text, fixed) == 0 || strcmp(text, fixed) == 0))
        return -EINVAL;
    if (key && stays(f->name))
        return -EPERM;
    if (key_is_own(text, strlen(text)))
        return name_refused(l, f->name, &own);
    struct name *to = name_key(l, text);
    if (!to)
        return -ENOMEM;
    if (!key && f->state == DRAFT_EMPTIED && f->dirty && f->text.len == 0) {
        become_key(l, f, to); /* a program that buffers what it writes renames first */
        return 0;
    }
    struct request *q = request_new(l, f);
    if (!q) {
        name_reap(l, to);
        return -ENOMEM;
    }
    q->to = to;
    to->pins++;
    q->from = f->name;
    q->from->pins++;
    q->number = key ? value_is_stored(l, q->from) : f->version;
    if (!key)
        buf_add(&q->text, f->text.data, f->text.len);
    q->apply = key ? accept_key : accept_helper;
    q->end = key_renamed;
    return queue_add(l, q, w);
}

/* Look at both names. Returns 0, 1 if there is nothing to do, or -errno. */
static int look_at_both(struct live *l, const char *old, const char *text, unsigned flags,
                        struct file **ret, enum name_class *class)
{
    int why;
    struct file *f = l->stop ? NULL : file_look(l, old, &why);
    if (!f)
        return l->stop ? -EROFS : why;
    if (flags & ~(unsigned)RENAME_NOREPLACE)
        return -EINVAL;
    const struct name *to = name_find(l, text); /* pinned: it is about to be there */
    if (flags & RENAME_NOREPLACE && ((to && to->pins) || file_look(l, text, &why)))
        return -EEXIST;
    *class = to && to->file && !to->key
                 ? NAME_HELPER
                 : class_of(l, text, file_key(f) ? NAME_ASIDE : NAME_CREATED);
    *ret = f;
    return strcmp(f->name->text, text) == 0;
}

int live_rename(struct live *l, const char *old, const char *text, unsigned flags,
                struct live_wait *w)
{
    struct file *f = NULL;
    enum name_class class;
    int r;
    LOCKED(&l->lock);
    const struct file *typed = strchr(text, ':') ? file_look(l, text, &r) : NULL;
    if (typed) /* KEY:TYPE */
        text = typed->name->text;
    while ((r = look_at_both(l, old, text, flags, &f, &class)) == 0 && class == NAME_HELPER &&
           file_key(f)) {
        r = draft_load(l, f, value_is_stored(l, f->name) ? DRAFT_ANEW : 0);
        if (r <= 0)
            break;
    }
    if (r != 0)
        return r < 0 ? r : 0;
    if (class == NAME_INVALID)
        return refuse_name(l, text);
    if (class == NAME_KEY)
        return rename_over_key(l, f, text, w);
    return file_key(f) ? key_to_helper(l, f, text) : rename_to_helper(l, f, text);
}

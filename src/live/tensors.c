/* SPDX-License-Identifier: MIT */
/* Tensors renamed and removed: see tensors.h. */
#include "live/tensors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "base/when.h"
#include "base/lock.h"
#include "live/makings.h"
#include "live/tensor_batch.h"

/* ---- looked at ---- */

int live_tensor_of_version(struct live *l, uint32_t version, uint32_t *number)
{
    lock_take(&l->lock);
    const struct tensor_id *id = &l->given[version % LIVE_KNOWN];
    bool first = version < l->first_numbers, known = id->version == version && id->number;
    *number = known ? id->number - 1 : version;
    lock_drop(&l->lock);
    return known || first ? 0 : -ENOENT;
}

static bool is_doomed(const struct live *l, uint32_t number)
{
    const struct folder *f = folders_find(&l->folders, number);
    return f && f->doomed;
}

/* A tensor that can be seen. */
static int find_shown(struct live *l, const char *file, struct edit_tensor *ret)
{
    const struct making *m = making_named(l, file);
    if (m) {
        *ret = (struct edit_tensor){
            .id = {m->number, m->number}, .old = EDIT_NONE, .name = m->name, .name_len = m->len};
        return 0;
    }
    int r = tensor_find(l, file, ret);
    return r == 0 && is_doomed(l, ret->id.number) ? -ENOENT : r;
}

int live_tensor_find(struct live *l, const char *file, uint32_t *number)
{
    struct edit_tensor t;
    int r;
    lock_take(&l->lock);
    r = find_shown(l, file, &t);
    lock_drop(&l->lock);
    if (r == 0)
        *number = t.id.number;
    return r;
}

int live_tensor_folder(struct live *l, uint32_t number, bool fresh, struct live_folder *ret)
{
    struct err e = {0};
    int r = 0;
    *ret = (struct live_folder){0};
    if (!atomic_load_explicit(&l->touched, memory_order_acquire))
        return 0;
    lock_take(&l->lock);
    struct folder *f = folders_find(&l->folders, number);
    if (f && fresh && atomic_load(&l->stale))
        r = batch_freshen(l, &e);
    if (f)
        *ret = (struct live_folder){f->generation, folder_hidden(f), f->doomed || f->removed,
                                    f->mtime};
    lock_drop(&l->lock);
    return r;
}

int live_tensor_error(struct live *l, uint32_t number, struct buf *out)
{
    lock_take(&l->lock);
    const struct folder *f = folders_find(&l->folders, number);
    const struct making *m = making_of(l, number);
    if (m)
        buf_str(out, m->why.code ? m->why.msg : "a new tensor: it is not whole yet");
    else if (f && f->error)
        buf_str(out, f->error);
    lock_drop(&l->lock);
    return buf_error(out);
}

void live_tensor_forgive(struct live *l, uint32_t number)
{
    lock_take(&l->lock);
    struct folder *f = folders_find(&l->folders, number);
    if (f)
        folder_set_error(&l->folders, f, NULL);
    lock_drop(&l->lock);
}

/* ---- edits ---- */

int tensor_accepted(struct live *l, struct folder *f, struct live_wait *w)
{
    assert(lock_held(&l->lock));
    batch_note(l, NULL, NULL);
    promise_make(&f->promise, l->edits);
    f->mtime = when_date();
    folder_set_error(&l->folders, f, NULL);
    return writer_accepted(l, w);
}

static int room(struct live *l, uint32_t number, struct folder **ret)
{
    *ret = tensor_folder(l, number);
    return *ret ? batch_room(l) : -ENOMEM;
}

/* What was removed a moment ago under the new name goes at once. */
static int clear_name(struct live *l, const struct edit_tensor *t, struct err *e)
{
    struct folder *f = folders_find(&l->folders, t->id.number);
    int r = tensor_drop(l, t->name, t->name_len, e);
    if (r < 0)
        return r;
    if (f) {
        folders_untie(&l->folders, f);
        f->removed = true;
    }
    return 0;
}

#define NOREPLACE (1u << 0) /* RENAME_NOREPLACE of Linux */

/* Whether a name can be given: t has it, in `text`. *cleared: it is that of a tensor that is doomed. */
static int check_new(struct live *l, const char *to, unsigned flags, struct edit_tensor *t,
                     char text[TREE_NAME_MAX + 1], bool *cleared)
{
    int r = find_shown(l, to, t);
    if (r == 0)
        return flags & NOREPLACE ? -EEXIST : -ENOTEMPTY;
    if (r != -ENOENT)
        return r;
    *cleared = tensor_find(l, to, t) == 0;
    if (*cleared)
        return 0;
    r = name_decode(to, text, &t->name_len);
    t->name = text;
    return r == -ENOENT ? -EINVAL : r;
}

static int rename_making(struct live *l, struct making *m, const char *to,
                         const struct edit_tensor *now)
{
    int r = making_rename(l, m, to, now->name, now->name_len);
    if (r == 0 && m->why.code) /* its name may have been why */
        making_touch(l, m);
    return r;
}

static int rename_locked(struct live *l, const char *from, const char *to, unsigned flags,
                         struct live_wait *w)
{
    struct edit_change *c = &l->next.change;
    struct edit_tensor t, now;
    char text[TREE_NAME_MAX + 1];
    struct folder *f = NULL;
    struct err e = {0};
    bool cleared = false;
    if (flags & ~NOREPLACE)
        return -EINVAL;
    int r = find_shown(l, from, &t);
    if (r < 0 || (strcmp(from, to) == 0 && !(flags & NOREPLACE)))
        return r;
    r = check_new(l, to, flags, &now, text, &cleared);
    struct making *m = making_of(l, t.id.number);
    if (r == 0 && m)
        return rename_making(l, m, to, &now);
    if (r == 0)
        r = room(l, t.id.number, &f);
    if (r < 0)
        return r;
    size_t mark = edit_mark(c);
    if (cleared)
        r = clear_name(l, &now, &e);
    if (r == 0) {
        (void)places_take(&l->places, t.name, t.name_len, EDIT_LAST);
        r = edit_tensor_rename(c, t.name, t.name_len, now.name, now.name_len, &e);
    }
    if (r == 0)
        r = batch_check(l, &e);
    if (r == 0)
        return tensor_accepted(l, f, w);
    edit_undo(c, mark);
    tensors_follow(l);
    return tensor_refused(l, f, &e);
}

int live_tensor_rename(struct live *l, const char *from, const char *to, unsigned flags,
                       struct live_wait *w)
{
    struct err unready; /* the write says so */
    writer_ready(l, &unready);
    LOCKED(&l->lock);
    return rename_locked(l, from, to, flags, w);
}

int live_tensor_fsync(struct live *l, uint32_t number, struct live_wait *w)
{
    LOCKED(&l->lock);
    const struct folder *f = folders_find(&l->folders, number);
    if (!f)
        return 0;
    return writer_sync(l, &f->promise, f->promise.edit, w);
}

/* ---- removed ---- */

/* Whether it can be removed is known at once. */
static int try_remove(struct live *l, const struct edit_tensor *t, struct err *e)
{
    struct edit_change *c = &l->next.change;
    size_t mark = edit_mark(c);
    int r = edit_tensor_remove(c, t->name, t->name_len, e);
    if (r < 0)
        return r;
    r = batch_check(l, e);
    edit_undo(c, mark);
    return r;
}

static int remove_locked(struct live *l, const char *file)
{
    struct edit_tensor t;
    struct folder *f = NULL;
    struct err e = {0};
    int r = find_shown(l, file, &t);
    if (r == 0)
        r = room(l, t.id.number, &f);
    if (r < 0)
        return r;
    struct making *m = making_of(l, t.id.number);
    if (m)
        return making_drop(l, m);
    r = try_remove(l, &t, &e);
    if (r < 0)
        return tensor_refused(l, f, &e);
    folder_doom(&l->folders, f);
    atomic_store(&l->names.other_doomed, true);
    folder_set_error(&l->folders, f, NULL);
    newest_touch(l->newest);
    crew_call_at(l->crew, &l->job, &l->folders.due);
    return 0;
}

int live_tensor_remove(struct live *l, const char *file)
{
    struct err unready; /* the write says so */
    writer_ready(l, &unready);
    LOCKED(&l->lock);
    return remove_locked(l, file);
}

int live_view_unlink(struct live *l, uint32_t number, uint32_t row)
{
    lock_take(&l->lock);
    struct folder *f = tensor_folder(l, number);
    int r = !f ? -ENOMEM : f->doomed || folder_hidden(f) >> row & 1 ? -ENOENT : 0;
    if (r == 0)
        folder_hide(f, row);
    lock_drop(&l->lock);
    return r;
}

void live_view_show(struct live *l, uint32_t number, uint32_t row)
{
    lock_take(&l->lock);
    struct folder *f = folders_find(&l->folders, number);
    if (f)
        folder_unhide(f, row);
    lock_drop(&l->lock);
}

/* It stays, and shows why. */
static void keep(struct live *l, struct folder *f, const struct err *e)
{
    folder_back(f);
    atomic_store(&l->names.other_doomed, true);
    (void)tensor_refused(l, f, e);
}

static int remove_one(struct live *l, struct folder *f, struct err *e)
{
    struct edit_tensor t;
    bool there = edit_tensor_numbered(&l->next.change, f->number, &t);
    int r = there ? tensor_drop(l, t.name, t.name_len, e) : 0;
    f->removed = r == 0;
    return r;
}

bool tensors_left(const struct live *l)
{
    struct edit_tensor *all = NULL;
    size_t n = 1; /* no memory: most probably */
    if (edit_change_tensors(&l->next.change, &all, &n) == 0)
        free(all);
    return n > 0;
}

int tensors_remove_due(struct live *l)
{
    struct edit_change *c = &l->next.change;
    struct err e = {0};
    int r;
    assert(lock_held(&l->lock));
    if (!l->folders.doomed || !(l->stop || folders_due(&l->folders)))
        return 0;
    size_t mark = edit_mark(c);
    r = batch_room(l);
    struct folder *all = folders_take(&l->folders);
    for (struct folder *f = all; f && r == 0; f = f->next_doomed) {
        r = remove_one(l, f, &e);
    }
    if (r == 0 && !tensors_left(l))
        r = err_set(&e, -EPERM, "nothing was removed: the model would have no tensor left");
    if (r == 0)
        r = batch_check(l, &e);
    if (r == 0) {
        batch_note(l, NULL, NULL);
        for (struct folder *f = all; f; f = f->next_doomed)
            promise_make(&f->promise, l->edits);
        return 0;
    }
    if (!e.code)
        (void)err_set(&e, r, "nothing was removed: %s", strerror(-r));
    edit_undo(c, mark);
    for (struct folder *f = all; f; f = f->next_doomed)
        keep(l, f, &e);
    return r;
}

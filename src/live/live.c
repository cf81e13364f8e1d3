/* SPDX-License-Identifier: MIT */
/* Editing begun and ended: see live.h. */
#include "live/live.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "live/internal.h"

void live_log(const struct live *l, int priority, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    logger_vlog(&l->opt.log, priority, fmt, ap);
    va_end(ap);
}

bool has_odd_names(const struct gguf *g)
{
    for (uint32_t i = 0; i < g->n_kv; i++)
        if (memchr(gguf_key(g, &g->kv[i]), 0, g->kv[i].key_len))
            return true;
    return false;
}

int live_open(struct newest *n, struct edit_file *f, const struct live_options *o,
              struct live **ret)
{
    struct live *l = calloc(1, sizeof(*l));
    if (!l)
        return -ENOMEM;
    const struct gguf *own = gen_own(n->view.gen);
    l->opt = *o;
    l->newest = n;
    l->file = f;
    l->odd_names = has_odd_names(own);
    (void)pthread_mutex_init(&l->lock, NULL);
    l->writer.disk = gen_ref(n->view.gen);
    l->ranks = own->n_kv;
    pending_init(l);
    if (keys_init(&l->keys, n->view.gen->gguf) < 0) {
        live_close(l);
        return -ENOMEM;
    }
    *ret = l;
    return 0;
}

int live_start(struct live *l, struct err *e)
{
    return writer_start(l, e);
}

int live_finish(struct live *l)
{
    return writer_stop(l);
}

void live_abandon(struct live *l)
{
    (void)pthread_mutex_lock(&l->lock);
    l->ending = true;
    (void)pthread_mutex_unlock(&l->lock);
}

/* Why a file is not in the model; NULL if it is, or need not be. */
static const char *why_unsaved(struct live *l, const struct kfile *f)
{
    if (f->error)
        return f->error;
    bool stray = f->state == KFILE_HELPER && classify(l, f->file) == NAME_STRAY;
    return stray ? STRAY : NULL;
}

void live_unsaved(struct live *l, struct buf *out)
{
    (void)pthread_mutex_lock(&l->lock);
    for (uint32_t i = 0; i < l->keys.n; i++) {
        const struct kfile *f = l->keys.file[i];
        const char *why = f ? why_unsaved(l, f) : NULL;
        if (why)
            buf_printf(out, "%s: %s\n", f->file, why);
    }
    (void)pthread_mutex_unlock(&l->lock);
}

void live_close(struct live *l)
{
    if (!l)
        return;
    pending_free(&l->writer.next);
    if (l->keys.file)
        keys_free(&l->keys);
    gen_unref(l->writer.disk);
    (void)pthread_mutex_destroy(&l->lock);
    free(l);
}

bool live_stale(const struct live *l)
{
    return atomic_load(&l->stale);
}

/* Keys that are edited and not yet written so, and files whose last write was refused. */
static struct live_counts counts(const struct live *l)
{
    struct live_counts c = {0};
    const struct writer *w = &l->writer;
    for (uint32_t i = 0; i < l->keys.n; i++) {
        const struct kfile *f = l->keys.file[i];
        c.refused += f && f->error && f->state != KFILE_DEAD;
        c.pending += f && f->state == KFILE_REMOVED;
    }
    c.pending += edit_change_count(&w->next.change) + (w->flight ? w->flight_edits : 0);
    return c;
}

struct live_counts live_count(struct live *l)
{
    (void)pthread_mutex_lock(&l->lock);
    struct live_counts c = counts(l);
    struct edit_file file;
    bool idle = writer_file(l, &file);
    (void)pthread_mutex_unlock(&l->lock);
    if (!idle || edit_file_fresh(&file, NULL) != -ESTALE)
        return c;
    /* An edit of our own may have replaced the file meanwhile. */
    (void)pthread_mutex_lock(&l->lock);
    c.changed = !l->writer.flight && edit_id_equal(&file.id, &l->file->id);
    (void)pthread_mutex_unlock(&l->lock);
    return c;
}

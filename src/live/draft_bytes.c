/* SPDX-License-Identifier: MIT */
/* Bytes of drafts and spools: see draft_bytes.h. */
#include "live/draft_bytes.h"

#include <errno.h>
#include <string.h>

#include "base/write_out.h"

/* Bytes that were written in order and are sent to the disk at once. */
#define RUN_LEAST ((uint64_t)4 << 20)

static int make_file(const struct edit_file *f, const struct edit_draft *old, uint64_t shift,
                     struct edit_draft **ret, struct err *e)
{
    int fd = edit_draft_open(f, e);
    if (fd < 0)
        return fd;
    int r = old ? sys_write_all(f->sys, fd, old->bytes, old->room, shift) : 0;
    if (r < 0)
        (void)err_set(e, r, "cannot write a draft beside the model: %s", strerror(-r));
    else
        r = edit_draft_file(fd, ret, e);
    if (r < 0)
        sys_close(f->sys, &fd);
    return r;
}

int draft_bytes_room(const struct edit_file *f, struct edit_draft *old, uint64_t n, uint64_t shift,
                     struct edit_draft **ret, struct err *e)
{
    *ret = old;
    if (old && (!draft_bytes_in_memory(old) || n <= old->room))
        return 0;
    int r = n <= DRAFT_BYTES_FEW ? edit_draft_memory((size_t)n, ret) : -EFBIG;
    if (r == -EFBIG)
        return make_file(f, old, shift, ret, e);
    if (r < 0)
        return err_set(e, r, "no memory for a draft");
    if (old)
        memcpy((*ret)->bytes, old->bytes, old->room);
    return 0;
}

int draft_bytes_write(const struct edit_file *f, struct edit_draft *d, const void *bytes, size_t n,
                      uint64_t off)
{
    if (!draft_bytes_in_memory(d))
        return sys_write_all(f->sys, d->src.fd, bytes, n, off);
    memcpy(d->bytes + off, bytes, n);
    return 0;
}

int draft_bytes_cut(const struct edit_file *f, struct edit_draft *d, uint64_t off)
{
    if (!draft_bytes_in_memory(d))
        return f->sys->ftruncate(f->sys, d->src.fd, off);
    if (off < d->room)
        memset(d->bytes + off, 0, (size_t)(d->room - off));
    return 0;
}

static void release_file(void *file)
{
    edit_draft_unref(file);
}

void draft_bytes_sent(const struct edit_file *f, struct edit_draft *d, struct draft_run *run,
                      uint64_t off, uint64_t end)
{
    if (off != run->end)
        run->begin = off;
    run->end = end;
    if (end - run->begin < RUN_LEAST || draft_bytes_in_memory(d))
        return;
    write_out(f->sys, d->src.fd, run->begin, end - run->begin, edit_draft_ref(d), release_file);
    run->begin = end;
}

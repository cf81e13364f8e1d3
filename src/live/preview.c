/* SPDX-License-Identifier: MIT */
/* Tensors that are changed and not on the disk: see preview.h. */
#include "live/preview.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/count.h"
#include "edit/temp.h"
#include "live/tensor.h"

/* Changed bytes of a tensor up to this are kept in memory, as the pages that have them. */
#define IN_MEMORY ((uint64_t)16 << 20)
/* And so many ranges of drafts are mapped: a process has some 65,000 mappings. */
#define MOST_RUNS 256
/* Bytes that are copied at a time. */
#define COPY_ROOM ((size_t)1 << 20)

void preview_forget_bytes(struct preview *p)
{
    for (uint32_t i = 0; i < p->n && p->of; i++) {
        mapped_unref(p->of[i].m);
        p->of[i].m = NULL;
    }
}

void preview_free(struct preview *p)
{
    preview_forget_bytes(p);
    for (uint32_t i = 0; i < p->n && p->of; i++)
        edit_content_unref(p->of[i].content);
    free(p->of);
    ids_unref(p->ids);
    *p = (struct preview){0};
}

/* ---- bytes that are not on the disk ---- */

/* A tensor's bytes in the base. */
struct below {
    struct mapped *m; /* NULL: it is new */
    uint64_t off;
};

/* Ranges of drafts that continue each other. */
struct run {
    uint64_t at, len, src;
    struct edit_draft *draft;
};

/* The run of pieces from *i on, which is that behind them then. */
static struct run run_at(const struct edit_content *k, size_t *i)
{
    const struct edit_piece *p = &k->piece[*i];
    struct run r = {p->at, p->len, p->src, p->draft};
    while (++*i < k->n) {
        p = &k->piece[*i];
        if (p->draft != r.draft || p->at != r.at + r.len || p->src != r.src + r.len)
            break;
        r.len += p->len;
    }
    return r;
}

/* The whole pages of a run that can be mapped, `in` bytes behind the begin of a page: bytes [*lo, *hi)
 * of the run; none: they are equal. */
static void whole_pages(const struct run *r, uint64_t in, uint64_t *lo, uint64_t *hi)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), first = (in + r->at) & (page - 1);
    *lo = *hi = 0;
    if (r->draft->src.fd < 0 || first != (r->src & (page - 1)))
        return;
    uint64_t edge = first ? page - first : 0;
    if (edge >= r->len)
        return;
    *lo = edge;
    *hi = edge + ((r->len - edge) & ~(page - 1));
}

/* False: too much would have to be copied to memory, or too many ranges be mapped. */
static bool can_map(const struct edit_content *k, uint64_t in)
{
    uint64_t copied = 0, lo, hi;
    unsigned runs = 0;
    for (size_t i = 0; i < k->n; runs++) {
        struct run r = run_at(k, &i);
        whole_pages(&r, in, &lo, &hi);
        copied += r.len - (hi - lo);
    }
    return copied <= IN_MEMORY && runs <= MOST_RUNS;
}

static int read_draft(const struct edit_draft *d, uint64_t from, void *dst, size_t n)
{
    const struct source *s = &d->src;
    if (s->fd < 0) {
        if (n > 0)
            memcpy(dst, (const uint8_t *)s->mem + from, n);
        return 0;
    }
    return sys_read_all(&sys_libc, s->fd, dst, n, from);
}

/* All bytes are one range of a draft's file. */
static int map_draft(const struct edit_content *k, struct mapped **ret, uint64_t *off,
                     struct err *e)
{
    const struct edit_piece *p = &k->piece[0];
    int fd = fcntl(p->draft->src.fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return err_set(e, -errno, "cannot duplicate: %s", strerror(errno));
    int r = mapped_open(fd, p->src + p->len, ret, e);
    if (r < 0)
        (void)close(fd);
    *off = p->src;
    return r;
}

/* Its whole pages are mapped, and the rest of it copied to those that are there. */
static int map_run(const struct run *r, uint64_t in, uint8_t *pages)
{
    uint64_t lo, hi;
    uint8_t *to = pages + in + r->at;
    whole_pages(r, in, &lo, &hi);
    int err = read_draft(r->draft, r->src, to, (size_t)lo);
    if (err == 0 && hi > lo &&
        mmap(to + lo, (size_t)(hi - lo), PROT_READ, MAP_PRIVATE | MAP_FIXED, r->draft->src.fd,
             (off_t)(r->src + lo)) == MAP_FAILED)
        err = -errno;
    return err < 0 ? err : read_draft(r->draft, r->src + hi, to + hi, (size_t)(r->len - hi));
}

/* The pages of the base, of which those that are changed are copies; or new ones. */
static int map_pages(const struct edit_content *k, const struct below *b, struct mapped **ret,
                     uint64_t *off, struct err *e)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), in = b->m ? b->off & (page - 1) : 0;
    size_t size = (size_t)(in + k->nbytes);
    int how = b->m ? MAP_PRIVATE : MAP_PRIVATE | MAP_ANONYMOUS;
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, how, b->m ? b->m->fd : -1,
                    b->m ? (off_t)(b->off - in) : 0);
    if (at == MAP_FAILED)
        return err_set(e, -errno, "cannot map: %s", strerror(errno));
    int r = 0,
        fd = b->m ? fcntl(b->m->fd, F_DUPFD_CLOEXEC, 0) : open("/dev/null", O_RDONLY | O_CLOEXEC);
    for (size_t i = 0; i < k->n && r == 0;) {
        struct run run = run_at(k, &i);
        r = map_run(&run, in, at);
    }
    if (r == 0 && fd < 0)
        r = -errno;
    *ret = r == 0 ? mapped_of_pages(fd, b->m ? b->off - in : 0, at, size) : NULL;
    *off = in;
    if (*ret) {
        (void)mprotect(at, size, PROT_READ);
        return 0;
    }
    (void)munmap(at, size);
    if (fd >= 0)
        (void)close(fd);
    return err_set(e, r < 0 ? r : -ENOMEM, "cannot keep changed bytes: %s",
                   strerror(r < 0 ? -r : ENOMEM));
}

static int copy_below(const struct below *b, uint64_t n, int fd, uint8_t *room)
{
    int r = 0;
    for (uint64_t at = 0; at < n && r == 0; at += COPY_ROOM) {
        size_t k = (size_t)min_u64(COPY_ROOM, n - at);
        r = mapped_copy(b->m, b->off + at, room, k);
        if (r == 0)
            r = sys_write_all(&sys_libc, fd, room, k, at);
    }
    return r;
}

static int copy_pieces(const struct edit_content *k, int fd, uint8_t *room)
{
    int r = 0;
    for (size_t i = 0; i < k->n && r == 0; i++) {
        const struct edit_piece *p = &k->piece[i];
        for (uint64_t at = 0; at < p->len && r == 0; at += COPY_ROOM) {
            size_t n = (size_t)min_u64(COPY_ROOM, p->len - at);
            r = read_draft(p->draft, p->src + at, room, n);
            if (r == 0)
                r = sys_write_all(&sys_libc, fd, room, n, p->at + at);
        }
    }
    return r;
}

/* The whole tensor in a file without a name. */
static int map_copy(struct live *l, const struct edit_content *k, const struct below *b,
                    struct mapped **ret, struct err *e)
{
    int fd = temp_unnamed(l->file, e);
    if (fd < 0)
        return fd;
    uint8_t *room = malloc(COPY_ROOM);
    int r = room ? 0 : -ENOMEM;
    if (r == 0 && b->m)
        r = copy_below(b, k->nbytes, fd, room);
    if (r == 0)
        r = copy_pieces(k, fd, room);
    free(room);
    if (r < 0)
        (void)err_set(e, r, "cannot keep changed bytes: %s", strerror(-r));
    else
        r = mapped_open(fd, k->nbytes, ret, e);
    if (r < 0)
        (void)close(fd);
    return r;
}

static int map_content(struct live *l, const struct edit_content *k, const struct below *below,
                       struct preview_tensor *t, struct err *e)
{
    struct below b = edit_content_covers(k) ? (struct below){0} : *below;
    if (!b.m && k->n == 1 && k->piece[0].draft->src.fd >= 0)
        return map_draft(k, &t->m, &t->off, e);
    if (k->n == 0) { /* another shape for the bytes that there are */
        t->m = mapped_ref(b.m);
        t->off = b.off;
        t->of_model = true;
        return 0;
    }
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), in = b.m ? b.off & (page - 1) : 0;
    bool plain = !b.m || !atomic_load(&b.m->frozen);
    if (!plain || !can_map(k, in))
        return map_copy(l, k, &b, &t->m, e);
    t->of_model = b.m;
    return map_pages(k, &b, &t->m, &t->off, e);
}

/* ---- the table ---- */

/* What the snapshot before had of the tensor with this content. *at: where to look first, and then
 * behind it, since both have the same order. */
static struct preview_tensor *known(const struct preview *p, const struct edit_content *k,
                                    uint32_t *at)
{
    for (uint32_t n = 0; n < p->n && p->of; n++) {
        *at = *at + 1 < p->n ? *at + 1 : 0;
        if (p->of[*at].content == k)
            return &p->of[*at];
    }
    return NULL;
}

static int give(struct live *l, struct tensor_id *id, bool new)
{
    uint32_t number = atomic_fetch_add(&l->newest->numbers, 1);
    if (number == IDS_NONE) {
        atomic_fetch_sub(&l->newest->numbers, 1);
        return -EOVERFLOW;
    }
    *id = (struct tensor_id){new ? number : id->number, number};
    l->given[number % LIVE_KNOWN] = (struct tensor_id){id->number + 1, number};
    return 0;
}

/* A tensor with a content of the change, which may have been known. */
static int make_changed(struct live *l, struct preview_tensor *t, struct edit_content *k,
                        uint32_t *at, struct err *e)
{
    const struct store *store = base_store(l);
    struct preview_tensor *was = known(&l->next.preview, k, at);
    struct below b = {0};
    bool new = t->old == EDIT_NONE;
    if (!new)
        b = (struct below){store->file[store->place[t->old].file], store->place[t->old].off};
    t->content = edit_content_ref(k);
    int r = 0;
    uint32_t made = new && !was ? tensor_made(l, k) : IDS_NONE;
    if (was)
        t->id = was->id;
    else if (made != IDS_NONE)
        t->id = (struct tensor_id){made, made};
    else
        r = give(l, &t->id, new);
    if (r < 0)
        return err_set(e, r, "too many edits; mount it again");
    if (was && was->m) {
        t->m = mapped_ref(was->m);
        t->off = was->off;
        t->of_model = was->of_model;
        return 0;
    }
    return map_content(l, k, &b, t, e);
}

static int fill(struct live *l, const struct edit_plan *p, struct preview *ret, struct err *e)
{
    const struct snapshot *base = base_snapshot(l);
    uint32_t own = snapshot_own(base)->n_tensors, others = base->gguf->n_tensors - own;
    uint32_t last = UINT32_MAX - 1;
    size_t content = 0;
    int r = 0;
    for (uint32_t i = 0; i < ret->n && r == 0; i++) {
        struct preview_tensor *t = &ret->of[i];
        bool ours = i < ret->n - others;
        t->old = ours ? p->tensor[i].old : own + (i - (ret->n - others));
        if (t->old != EDIT_NONE)
            t->id = ids_of(base->ids, t->old);
        if (ours && p->tensor[i].changed)
            r = make_changed(l, t, p->content[content++], &last, e);
    }
    return r;
}

static bool is_table(const struct ids *s, const struct preview *p)
{
    uint32_t i = 0;
    if (s && s->n != p->n)
        return false;
    while (i < p->n && ids_of(s, i).number == p->of[i].id.number &&
           ids_of(s, i).version == p->of[i].id.version)
        i++;
    return i == p->n;
}

/* The table that there is, if it is the same one; else a new one. */
static int make_ids(struct live *l, struct preview *p)
{
    const struct snapshot *base = base_snapshot(l);
    struct ids *last = l->next.preview.ids;
    if (p->n == base->gguf->n_tensors && is_table(base->ids, p)) {
        p->ids = ids_ref(base->ids);
        return 0;
    }
    if (last && is_table(last, p)) {
        p->ids = ids_ref(last);
        return 0;
    }
    struct tensor_id *of = malloc(((size_t)p->n + 1) * sizeof(*of));
    if (!of)
        return -ENOMEM;
    for (uint32_t i = 0; i < p->n; i++)
        of[i] = p->of[i].id;
    int r = ids_make(of, p->n, &p->ids);
    free(of);
    return r;
}

/* ---- the store ---- */

static int make_store(const struct store *base, const struct preview *p, struct store **ret)
{
    size_t files = base->files;
    struct mapped **file = malloc((files + p->n + 1) * sizeof(struct mapped *));
    struct place_in_store *place = malloc(((size_t)p->n + 1) * sizeof(*place));
    int r = file && place ? 0 : -ENOMEM;
    if (r == 0)
        memcpy((void *)file, (const void *)base->file, files * sizeof(struct mapped *));
    for (uint32_t i = 0; i < p->n && r == 0; i++) {
        const struct preview_tensor *t = &p->of[i];
        if (!t->m) {
            place[i] = base->place[t->old];
            continue;
        }
        place[i] = (struct place_in_store){t->off, (uint32_t)files, 0};
        file[files++] = t->m;
    }
    if (r == 0)
        r = store_of(file, files, place, p->n, ret);
    free((void *)file);
    free(place);
    return r;
}

static int make_all(struct live *l, struct edit_plan *p, struct preview *v, struct store **ret,
                    struct err *e)
{
    v->of = calloc((size_t)v->n + 1, sizeof(*v->of));
    if (!v->of)
        return err_set(e, -ENOMEM, "no memory");
    int r = fill(l, p, v, e);
    if (r < 0)
        return r;
    r = make_ids(l, v);
    if (r == 0)
        r = make_store(base_store(l), v, ret);
    return r < 0 ? err_set(e, r, "no memory") : 0;
}

int preview_make(struct live *l, struct edit_plan *p, struct snapshot *snap, struct store **ret,
                 struct err *e)
{
    const struct snapshot *base = base_snapshot(l);
    assert(lock_held(&l->lock));
    struct preview v = {.n = snap->gguf->n_tensors};
    uint32_t n = snapshot_own(base)->n_tensors;
    ids_unref(snap->ids);
    snap->ids = NULL;
    if (!p->tensor) {
        snap->ids = ids_ref(base->ids);
        *ret = store_ref(base_store(l));
        if (!base->tensor_rank)
            return 0;
        snap->tensor_rank = malloc(((size_t)n + 1) * sizeof(*snap->tensor_rank));
        if (!snap->tensor_rank) {
            store_unref(*ret);
            return err_set(e, -ENOMEM, "no memory");
        }
        memcpy(snap->tensor_rank, base->tensor_rank, n * sizeof(*snap->tensor_rank));
        return 0;
    }
    int r = make_all(l, p, &v, ret, e);
    if (r < 0) {
        preview_free(&v);
        return r;
    }
    snap->ids = ids_ref(v.ids);
    snap->tensor_rank = p->tensor_rank;
    p->tensor_rank = NULL;
    preview_free(&l->next.preview);
    l->next.preview = v;
    return 0;
}

int preview_store(struct live *l, struct store **ret)
{
    const struct preview *p = &l->next.preview;
    assert(lock_held(&l->lock));
    if (p->of && l->newest->view.snap->ids == p->ids && p->ids != base_snapshot(l)->ids)
        return make_store(base_store(l), p, ret);
    *ret = store_ref(base_store(l));
    return 0;
}

/* ---- what is overwritten ---- */

static bool has_file(const struct store *s, const struct mapped *m)
{
    return s && s->file[0] == m;
}

/* Others than `live`, and requests for what is newest, read from the store of what is on the disk. */
static bool is_read(const struct live *l)
{
    const struct store *of[] = {l->store, l->flying_store, l->newest->view.store};
    const struct image *file = l->newest->file;
    struct mapped *m = l->store->file[0];
    unsigned stores = 0, maps = file ? 1 : 0;
    for (size_t i = 0; i < COUNT(of); i++) {
        bool again = false;
        for (size_t k = 0; k < i; k++)
            again |= of[k] == of[i];
        stores += of[i] == l->store;
        maps += !again && has_file(of[i], m);
    }
    return atomic_load(&l->store->refs) > stores || atomic_load(&m->refs) > maps ||
           (file && atomic_load(&file->refs) > 1);
}

/* Of the mappings of the file that were kept those that are still in use. */
static void reap_old(struct live *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n_old; i++) {
        if (atomic_load(&l->old[i]->refs) > 1)
            l->old[n++] = l->old[i];
        else
            mapped_unref(l->old[i]);
    }
    l->n_old = n;
}

static int freeze(struct mapped *m, const struct edit_plan *p, int fd, uint64_t *at)
{
    uint64_t n;
    int r = 0;
    for (size_t i = 0; i < p->image->n && r == 0; i++) {
        const struct segment *s = &p->image->seg[i];
        bool stays = s->from == IMAGE_FILE && s->no == EDIT_OLD_FILE && s->src == s->at;
        if (stays || s->at >= p->old_size)
            continue;
        r = mapped_freeze(m, s->at, min_u64(s->len, p->old_size - s->at), fd, *at, &n);
        *at += n;
    }
    return r;
}

int preview_keep_old(struct live *l, struct edit_plan *p, struct err *e)
{
    enum edit_strategy how = EDIT_AUTO;
    uint64_t at = 0;
    lock_take(&l->lock);
    reap_old(l);
    bool read = is_read(l);
    lock_drop(&l->lock);
    if (!p->patch || !p->changed || !(read || l->n_old) ||
        edit_prepare(l->file, p, &l->opt.edit, &how, e) < 0 || how != EDIT_INPLACE)
        return 0;
    int fd = temp_unnamed(l->file, e);
    if (fd < 0)
        return fd;
    int r = read ? freeze(l->store->file[0], p, fd, &at) : 0;
    for (size_t i = 0; i < l->n_old && r == 0; i++)
        r = freeze(l->old[i], p, fd, &at);
    (void)close(fd);
    return r < 0 ? err_set(e, r, "cannot keep the bytes of open files: %s", strerror(-r)) : 0;
}

static void keep_map(struct live *l, struct mapped *m)
{
    if (array_grow(&l->old, &l->cap_old, l->n_old + 1, sizeof(struct mapped *)) == 0)
        l->old[l->n_old++] = mapped_ref(m);
}

void preview_landed(struct live *l, const struct batch *b, bool replaced)
{
    assert(lock_held(&l->lock));
    for (size_t i = 0; i < l->n_old && replaced; i++)
        mapped_unref(l->old[i]);
    if (replaced)
        l->n_old = 0;
    if (replaced || !b->plan.patch)
        return;
    keep_map(l, l->store->file[0]);
    for (uint32_t i = 0; i < b->preview.n && b->preview.of; i++)
        if (b->preview.of[i].m && b->preview.of[i].of_model)
            keep_map(l, b->preview.of[i].m);
}

void preview_free_old(struct live *l)
{
    for (size_t i = 0; i < l->n_old; i++)
        mapped_unref(l->old[i]);
    free((void *)l->old);
    l->old = NULL;
    l->n_old = l->cap_old = 0;
}

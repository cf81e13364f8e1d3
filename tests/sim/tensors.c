/* SPDX-License-Identifier: MIT */
/* Tensors: see tensors.h. */
#include "tensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "build_gguf.h"
#include "hooks.h"
#include "kernel.h"
#include "tree_image.h"

#define FOLDER ino_row(1)

enum { ELEMENTS = 64, HALF = ELEMENTS / 2, BYTES_MOST = 4 * ELEMENTS, NEVER = -1 };
/* Tokens besides those of stories. */
enum { NONE, ZEROS, ANYTHING, SAME = 255 };

/* ---- values ---- */

static const struct {
    const char *name;
    uint32_t id;
    size_t half; /* bytes of 32 elements */
} types[FORMS] = {{"F32", 0, 4 * HALF}, {"F16", 1, 2 * HALF}, {"Q8_0", 8, 2 + HALF}};
static const struct {
    const char *text, *numpy;
    uint32_t n;
    uint64_t dims[3];
} shapes[FORMS] = {{"64", "(64,)", 1, {64}},
                   {"2 32", "(2, 32)", 2, {32, 2}},
                   {"2 1 32", "(2, 1, 32)", 3, {32, 1, 2}}};

/* Returns the bytes of a small whole number as a float of 8 * n bits. */
static void put_float(unsigned v, size_t n, uint8_t *dst)
{
    unsigned e = 0;
    while (v >> (e + 1))
        e++;
    const unsigned fraction = n == 4 ? 23 : 10, bias = n == 4 ? 127 : 15;
    const uint32_t bits =
        v ? (e + bias) << fraction | ((v << fraction >> e) & ((1u << fraction) - 1)) : 0;
    for (size_t i = 0; i < n; i++)
        dst[i] = (uint8_t)(bits >> 8 * i);
}

/* Puts 127 and 31 times the token, so that the scale of Q8_0 is 1. Returns the number of bytes. */
static size_t put_half(unsigned form, unsigned token, uint8_t *dst)
{
    const unsigned scale = token == ZEROS ? 0 : 1;
    if (types[form].id == 8)
        put_float(scale, 2, dst);
    for (unsigned i = 0; i < HALF; i++) {
        const unsigned v = scale * (i ? token : 127);
        if (types[form].id == 8)
            dst[2 + i] = (uint8_t)v;
        else
            put_float(v, types[form].half / HALF, dst + i * types[form].half / HALF);
    }
    return types[form].half;
}

static unsigned token_of(unsigned form, const uint8_t *bytes)
{
    uint8_t is[BYTES_MOST];
    for (unsigned token = ZEROS; token < TOKENS; token++)
        if (token != ANYTHING && memcmp(bytes, is, put_half(form, token, is)) == 0)
            return token;
    return ANYTHING;
}

static unsigned form_of(uint32_t id)
{
    unsigned form = 0;
    while (form < FORMS && types[form].id != id)
        form++;
    return form;
}

static unsigned form_of_size(size_t n)
{
    unsigned form = 0;
    while (form < FORMS && 2 * types[form].half != n)
        form++;
    return form;
}

/* ---- the oracle ---- */

uint32_t tensors_now(struct world *w)
{
    return ++w->tensors.now;
}

/* Returns whether the tensor is certainly there, and has been since. */
static bool is_settled(const struct world *w, int t, uint32_t since)
{
    const struct tensor_oracle *o = &w->tensors;
    uint32_t added = 0, gone = 0;
    for (unsigned i = 0; i < o->n[t]; i++) {
        const struct tensor_edit *e = &o->edit[t][i];
        if (e->part[OF_TYPE] == NONE && e->refused == (uint32_t)NEVER && e->accepted > gone)
            gone = e->accepted;
        if (e->adds && e->accepted != (uint32_t)NEVER && e->begin > added)
            added = e->begin;
    }
    return added > gone && gone < since;
}

/* Returns whether the tensor was removed or renamed, or may have been. */
static bool is_removed(const struct world *w, int t)
{
    unsigned i = 1; /* after the first state */
    while (i < w->tensors.n[t] && w->tensors.edit[t][i].part[OF_TYPE] != NONE)
        i++;
    return i < w->tensors.n[t];
}

/* Begins an edit, which changes no part yet. */
static struct tensor_edit *begin_edit(struct world *w, int t, unsigned handle)
{
    struct tensor_oracle *o = &w->tensors;
    if (o->n[t] == TENSOR_EDITS)
        sched_fail("too many edits of a tensor");
    struct tensor_edit *e = &o->edit[t][o->n[t]++];
    *e = (struct tensor_edit){.handle = (uint8_t)handle, .begin = tensors_now(w)};
    memset(e->part, SAME, sizeof(e->part));
    e->end = e->accepted = e->durable = e->refused = (uint32_t)NEVER;
    /* a new tensor may be judged as a whole at any moment */
    const bool waits = is_settled(w, t, e->begin) && !o->flushes[t];
    e->judged = waits ? (uint32_t)NEVER : e->begin;
    return e;
}

static bool brings(const struct tensor_edit *e, int part, unsigned v, bool exists)
{
    const unsigned is = e->part[part];
    return is != SAME && (exists ? is != NONE : is == v || (is == ANYTHING && v != NONE));
}

enum where { OPENED, MODEL, FILE_ITSELF };

/* Returns whether a look may see this value; or, if `exists`, any but NONE. */
static bool may_see(const struct world *w, int t, int part, unsigned v, bool exists, enum where at,
                    uint32_t since, uint32_t upto)
{
    const struct tensor_oracle *o = &w->tensors;
    for (unsigned i = 0; i < o->n[t]; i++) {
        const struct tensor_edit *e = &o->edit[t][i];
        if (!brings(e, part, v, exists) ||
            (at == OPENED ? e->begin > upto || e->refused < since
                          : e->refused != (uint32_t)NEVER || e->judged > upto))
            continue;
        bool replaced = false;
        for (unsigned j = 0; j < o->n[t]; j++) {
            const struct tensor_edit *f = &o->edit[t][j];
            replaced |= f->part[part] != SAME && f->begin > e->end &&
                        (at == FILE_ITSELF ? f->durable : f->accepted) < since;
        }
        if (!replaced)
            return true;
    }
    return false;
}

static void must_see(const struct world *w, int t, int part, unsigned v, enum where at,
                     uint32_t since, uint32_t upto)
{
    static const char *const parts[] = {"type", "shape", "first half", "second half"};
    static const char *const places[] = {"a view", "model.gguf", "the file"};
    if (w->oracle.off || may_see(w, t, part, v, false, at, since, upto))
        return;
    for (unsigned i = 0; i < w->tensors.n[t]; i++) {
        const struct tensor_edit *e = &w->tensors.edit[t][i];
        sched_note(
            "edit %3u %3u %3u %3u, %5u to %5u, judged %5u, accepted %5d, durable %5d, refused %5d",
            e->part[0], e->part[1], e->part[2], e->part[3], e->begin, e->end, e->judged,
            (int)e->accepted, (int)e->durable, (int)e->refused);
    }
    sched_fail("%s: the %s of %s is %u", places[at], parts[part], names[KEYS + t], v);
}

/* Several programs may be changing the tensor. */
static void share(struct world *w, int t)
{
    if (w->tensors.shared[t] != (uint32_t)NEVER)
        w->tensors.shared[t] = tensors_now(w);
    for (unsigned i = 0; i < w->tensors.n[t]; i++) /* it may be given a type after all */
        if (w->tensors.edit[t][i].adds && w->tensors.edit[t][i].judged == (uint32_t)NEVER)
            w->tensors.edit[t][i].judged = tensors_now(w);
}

static void writer(struct world *w, int t, int more)
{
    unsigned *n = &w->tensors.writers[t];
    if (*n > (more > 0 ? 0 : 1))
        share(w, t);
    *n += (unsigned)more;
}

/* Returns whether a refused edit may be made all the same: see oracle.h. */
static bool is_faulty(const struct world *w)
{
    return w->oracle.fails && (w->oracle.finishes || w->oracle.astray);
}

void tensors_synced(struct world *w, uint32_t since, bool dir)
{
    struct tensor_oracle *o = &w->tensors;
    for (int t = 0; t < TENSORS; t++)
        for (unsigned i = 0; i < o->n[t]; i++) {
            struct tensor_edit *e = &o->edit[t][i];
            if (dir && e->whole && e->end < since && o->shared[t] < e->begin &&
                e->accepted == (uint32_t)NEVER)
                e->accepted = e->durable = tensors_now(w);
            if (e->accepted < since && e->durable == (uint32_t)NEVER && !e->kept)
                e->durable = tensors_now(w);
        }
}

void tensors_spared(struct world *w)
{
    struct tensor_oracle *o = &w->tensors;
    o->spared = tensors_now(w);
    for (int t = 0; t < TENSORS; t++) {
        share(w, t);
        for (unsigned i = 0; i < o->n[t]; i++)
            if (o->edit[t][i].part[OF_TYPE] == NONE && o->edit[t][i].durable == (uint32_t)NEVER)
                o->edit[t][i].accepted = (uint32_t)NEVER;
    }
}

void tensors_begin(struct world *w, struct build *b)
{
    struct tensor_oracle *o = &w->tensors;
    memset(o, 0, sizeof(*o));
    for (int t = 0; t < TENSORS; t++) {
        uint8_t bytes[BYTES_MOST];
        struct tensor_edit *e = begin_edit(w, t, HANDLES);
        const unsigned token = (unsigned)(TOKEN_FIRST + KEYS_THERE + t);
        e->adds = w->story.tensors && t < TENSORS_THERE;
        memset(e->part, NONE, sizeof(e->part));
        if (e->adds)
            memcpy(e->part, (uint8_t[]){1, 1, (uint8_t)token, (uint8_t)token}, PARTS);
        e->end = e->judged = e->durable = e->begin;
        e->accepted = e->begin - !e->adds; /* else it was removed before it was there */
        if (!e->adds)
            continue;
        const size_t n = put_half(0, token, bytes);
        (void)put_half(0, token, bytes + n);
        build_tensor(b, names[KEYS + t], types[0].id, shapes[0].dims, 1, bytes, 2 * n);
    }
}

static unsigned shape_of(const struct gguf *g, const struct gguf_tensor *t)
{
    unsigned shape = 0;
    for (; shape < FORMS; shape++) {
        bool same = t->n_dims == shapes[shape].n;
        for (uint32_t i = 0; i < t->n_dims && same; i++)
            same = gguf_dim(g, t, i) == shapes[shape].dims[i];
        if (same)
            break;
    }
    return shape;
}

void tensors_look(struct world *w, const struct gguf *g, const uint8_t *bytes, bool disk,
                  uint32_t since)
{
    const uint32_t now = tensors_now(w);
    for (int t = 0; t < TENSORS && w->story.tensors; t++) {
        const char *name = names[KEYS + t];
        const uint32_t at = gguf_find_tensor(g, name, strlen(name));
        const struct gguf_tensor *is = at == UINT32_MAX ? NULL : &g->tensor[at];
        unsigned part[PARTS] = {NONE, NONE, NONE, NONE};
        const unsigned form = is ? form_of(is->type_id) : 0, shape = is ? shape_of(g, is) : 0;
        if (form == FORMS || shape == FORMS)
            sched_fail("%s has a form that nobody gave it", name);
        if (is) {
            part[OF_TYPE] = 1 + form;
            part[OF_SHAPE] = 1 + shape;
            part[OF_LOW] = token_of(form, bytes + is->off);
            part[OF_HIGH] = token_of(form, bytes + is->off + types[form].half);
        }
        for (int i = 0; i < PARTS; i++)
            must_see(w, t, i, part[i], disk ? FILE_ITSELF : MODEL, disk ? now : since, now);
    }
}

/* ---- calls ---- */

static int of_name(unsigned name)
{
    return (int)name - KEYS;
}

/* Fails if an error has no reason. lonely: no other program may have changed the tensor. */
static void check_error(const struct program *p, const char *what, int t, int r, bool lonely)
{
    static const int reasons[] = {-EBUSY, -EINVAL, -EFBIG, -ENOENT, -ESTALE, -EEXIST, -EPERM};
    struct world *w = p->k->w;
    if (r == -EINTR) /* the edit may go on, for as long as it takes */
        w->tensors.shared[t] = (uint32_t)NEVER;
    bool known = r >= 0 || w->oracle.off || *w->oracle.faults || r == -EINTR || p->k->rough;
    known |= r == -EOPNOTSUPP && w->story.strategy == EDIT_INPLACE; /* not every edit can be */
    for (size_t i = 0; i < sizeof(reasons) / sizeof(*reasons); i++)
        known |= !lonely && r == reasons[i];
    if (!known)
        sched_fail("%s of %s is answered with %s", what, names[KEYS + t], strerror(-r));
}

/* Returns whether the tensor is there, and nobody else may have changed it since the handle was
 * opened. */
static bool is_lonely(const struct kernel *k, int t, const struct handle *h)
{
    return k->w->tensors.shared[t] < h->opened && is_settled(k->w, t, h->opened);
}

static int look_up(struct program *p, unsigned name, const char *view, struct tree_entry *ret)
{
    struct kernel *k = p->k;
    struct tree_entry dir;
    int r = KERNEL_CALL(p, tree_lookup(k->t, FOLDER, names[name], view ? &dir : ret));
    if (r < 0 || !view)
        return r;
    r = KERNEL_CALL(p, tree_lookup(k->t, dir.node, view, ret));
    tree_forget(k->t, dir.node, 1);
    return r;
}

/* Opens a view, which is created in the folder `dir` if that is not 0 and has none. */
static int open_view(struct program *p, struct handle *h, unsigned name, uint64_t dir,
                     const char *view, int flags)
{
    struct kernel *k = p->k;
    struct tree_entry e;
    int r;
    h->tensor = (int8_t)of_name(name);
    h->kind = strcmp(view, "raw") == 0 ? RAW : strncmp(view, "f32", 3) == 0 ? VALUES : LINE;
    h->opened = tensors_now(k->w);
    if (h->writes)
        writer(k->w, h->tensor, 1);
    if (!dir && !is_settled(k->w, h->tensor, h->opened)) /* somebody may be adding it */
        share(k->w, h->tensor);
    lock_take(&k->tensors);
    r = dir ? KERNEL_CALL(p, tree_lookup(k->t, dir, view, &e)) : look_up(p, name, view, &e);
    if (r == -ENOENT && dir)
        r = KERNEL_CALL(p, tree_create(k->t, dir, view, flags | O_CREAT, &e, &h->f));
    if (r == 0) {
        h->o = kernel_object(k, e.node);
        h->o->handles++;
        h->form = (uint8_t)form_of_size((size_t)e.attr.st_size);
        h->half = h->kind == RAW && !may_see(k->w, h->tensor, OF_TYPE, 1u + h->form, false, OPENED,
                                             h->opened, tensors_now(k->w));
    }
    lock_drop(&k->tensors);
    if (r < 0 || h->f)
        return r;
    struct tensor_edit *cut = NULL;
    lock_take(&h->o->lock);
    const bool new_type = strcmp(view, "type") == 0 && !is_settled(k->w, h->tensor, h->opened);
    if (flags & O_TRUNC && !dir && (h->kind != LINE || new_type)) {
        cut = begin_edit(k->w, h->tensor, HANDLES); /* by itself it is no edit of the file */
        if (new_type) /* a tensor that is judged without a type gets that of its values, F32 */
            cut->part[OF_TYPE] = 1;
        else
            cut->part[OF_LOW] = cut->part[OF_HIGH] = ZEROS;
        h->is_short |= !new_type;
    }
    r = KERNEL_CALL(p, tree_open_file(k->t, h->o->node, flags, &h->f));
    if (cut)
        cut->end = tensors_now(k->w);
    if (cut && r < 0)
        cut->refused = cut->end;
    lock_drop(&h->o->lock);
    return r;
}

/* Opens a view in a slot. since: when the program made its directory, which others may have replaced
 * meanwhile, or NEVER. Returns the handle, or NULL. */
static struct handle *open_slot(struct program *p, unsigned slot, unsigned name, uint64_t dir,
                                uint32_t since, const char *view, int flags)
{
    struct handle *h = p->slot[slot] ? NULL : kernel_handle(p->k, (flags & O_ACCMODE) != O_RDONLY);
    if (!h)
        return NULL;
    h->owners = 1;
    const int r = open_view(p, h, name, dir, view, flags);
    check_error(p, "open", h->tensor, r,
                is_lonely(p->k, h->tensor, h) && p->k->w->tensors.shared[h->tensor] <= since);
    if (r == 0)
        return p->slot[slot] = h;
    kernel_unopened(p->k, h);
    return NULL;
}

void tensors_released(struct kernel *k, struct handle *h)
{
    struct tensor_oracle *o = &k->w->tensors;
    for (unsigned i = 0; i < o->n[h->tensor]; i++)
        if (o->edit[h->tensor][i].handle == h->number)
            o->edit[h->tensor][i].handle = HANDLES;
    if (h->writes)
        writer(k->w, h->tensor, -1);
}

/* Writes a token to both halves, or to the first. */
static int write_token(struct program *p, struct handle *h, unsigned token, bool half)
{
    uint8_t bytes[BYTES_MOST];
    struct kernel *k = p->k;
    const unsigned form = h->kind == RAW ? h->form : 0;
    if (form >= FORMS)
        return -EINVAL; /* the view was truncated, or is new: who writes it does not know its type */
    size_t n = put_half(form, token, bytes);
    if (!half)
        n += put_half(form, token, bytes + n);
    lock_take(&h->o->lock);
    struct tensor_edit *e = begin_edit(k->w, h->tensor, h->number);
    e->part[OF_LOW] = (uint8_t)token;
    if (!half)
        e->part[OF_HIGH] = (uint8_t)token;
    /* half an F32, written by another program or beside its type, has the size of an F16 */
    if (h->half ||
        (h->kind == RAW && (form || half) && k->w->tensors.shared[h->tensor] > h->opened))
        e->part[OF_LOW] = e->part[OF_HIGH] = ANYTHING;
    const int r = KERNEL_CALL(p, tree_write(h->f, 0, bytes, n, &p->wait));
    e->end = tensors_now(k->w);
    if (r < 0)
        e->refused = e->end;
    h->failed |= r < 0;
    h->is_short &= half || r < 0;
    lock_drop(&h->o->lock);
    check_error(p, "write", h->tensor, r, is_lonely(k, h->tensor, h));
    return r;
}

/* Writes a line to `type` or `shape`, which is judged at once. */
static void write_line(struct program *p, struct handle *h, int part, unsigned form)
{
    char line[16];
    struct kernel *k = p->k;
    const int n = snprintf(line, sizeof(line), "%s\n",
                           part == OF_TYPE ? types[form].name : shapes[form].text);
    lock_take(&h->o->lock);
    struct tensor_edit *e = begin_edit(k->w, h->tensor, h->number);
    e->part[part] = (uint8_t)(1 + form);
    e->judged = e->begin;
    const int r = KERNEL_CALL(p, tree_write(h->f, 0, line, (size_t)n, &p->wait));
    e->end = tensors_now(k->w);
    h->failed |= r < 0;
    h->ended = r == -EINTR;
    if (r == -EINTR || (r < 0 && is_faulty(k->w))) /* the close says nothing about it */
        e->handle = HANDLES;
    else if (r < 0)
        e->refused = e->end;
    lock_drop(&h->o->lock);
    /* bytes that were meant for another type need not be values of this one (contract 12) */
    bool odd = false;
    for (int i = OF_LOW; i <= OF_HIGH && (r == -ERANGE || r == -EDOM) && part == OF_TYPE; i++)
        odd |= may_see(k->w, h->tensor, i, ANYTHING, false, MODEL, h->opened, e->end);
    h->repeats = odd ? r : 0;
    check_error(p, "a new form", h->tensor, odd ? 0 : r, is_lonely(k, h->tensor, h));
}

/* The bytes of `raw` may have been meant for another type. */
static void doubt_bytes(struct world *w, int t, struct tensor_edit *e, uint32_t since)
{
    for (unsigned i = 0; i < w->tensors.n[t]; i++) {
        const struct tensor_edit *f = &w->tensors.edit[t][i];
        if (f->part[OF_TYPE] == SAME || f->end < since)
            continue;
        for (int part = OF_LOW; part <= OF_HIGH; part++)
            e->part[part] = ANYTHING;
    }
}

/* Returns whether a file of the tensor was truncated since: a mere truncation is no edit, and
 * neither is then what was written before it. */
static bool was_cut(const struct world *w, int t, uint32_t since)
{
    bool cut = false;
    for (unsigned i = 0; i < w->tensors.n[t]; i++)
        cut |= w->tensors.edit[t][i].part[OF_LOW] == ZEROS && w->tensors.edit[t][i].end >= since;
    return cut;
}

static int flush(struct program *p, struct handle *h, bool sync)
{
    struct kernel *k = p->k;
    struct tensor_oracle *o = &k->w->tensors;
    const int t = h->tensor;
    kernel_begin(p);
    const uint32_t begin = tensors_now(k->w);
    for (unsigned i = 0; i < o->n[t]; i++) {
        struct tensor_edit *e = &o->edit[t][i];
        if (e->handle == HANDLES)
            continue;
        e->judged = e->judged < begin ? e->judged : begin;
        if (h->kind == RAW && e->handle == h->number)
            doubt_bytes(k->w, t, e, h->opened);
    }
    o->flushes[t]++;
    int r = sync ? tree_fsync(h->f, &p->wait) : tree_flush(h->f, &p->wait);
    if (r == LIVE_PARKED && h->ended && o->writers[t] == 1)
        sched_fail("the close behind a line that a signal has ended waits");
    r = kernel_end(p, r);
    o->flushes[t]--;
    const bool there = is_settled(k->w, t, h->opened), lonely = is_lonely(k, t, h);
    /* a close that brings nothing says nothing of another file in the model's place */
    const bool durable = sync || (k->w->story.commit != LIVE_COMMIT_SYNC && !k->w->oracle.astray);
    for (unsigned i = 0; i < o->n[t]; i++) {
        struct tensor_edit *e = &o->edit[t][i];
        if (e->handle != h->number || e->end > begin || e->refused != (uint32_t)NEVER)
            continue;
        if (r < 0 && (e->accepted != (uint32_t)NEVER || *k->w->oracle.faults))
            continue; /* what could not be written may be by the next flush */
        if (r < 0) {
            e->handle = HANDLES; /* a later answer says nothing about it */
            e->refused = lonely && r != -EINTR ? tensors_now(k->w) : e->refused;
        } else if (there && !was_cut(k->w, t, e->begin)) {
            e->accepted = e->accepted < begin ? e->accepted : tensors_now(k->w);
            e->durable = durable && e->durable == (uint32_t)NEVER ? tensors_now(k->w) : e->durable;
        }
    }
    check_error(p, sync ? "fsync" : "close", t, r == h->repeats ? 0 : r,
                lonely && !h->is_short && !h->half && !h->failed);
    h->failed |= r < 0;
    if (r == 0 && sync)
        tensors_synced(k->w, begin, false);
    if (r == 0 && durable)
        kernel_look_disk(k, sync ? "after fsync of a tensor" : "after close of a tensor");
    return r;
}

static int close_handle(struct program *p, unsigned slot)
{
    struct handle *h = p->slot[slot];
    const int r = flush(p, h, false);
    if (--h->owners == 0) {
        p->slot[slot] = NULL;
        kernel_later(p->k, h, 0, 0);
    }
    return r;
}

/* ---- steps ---- */

enum { OWN_SLOT = SLOTS - 1 }; /* of steps that open and close a file */

static void set_form(struct program *p, const struct step *s)
{
    const int part = s->word == W_TYPE ? OF_TYPE : OF_SHAPE;
    struct handle *h = open_slot(p, OWN_SLOT, s->name, 0, (uint32_t)NEVER,
                                 part == OF_TYPE ? "type" : "shape", O_WRONLY | O_TRUNC);
    if (!h)
        return;
    write_line(p, h, part, s->n % FORMS);
    (void)close_handle(p, OWN_SLOT);
}

/* Makes a new tensor, as cp -r does: its files in an order, and in a form, given by n2. */
static void add_tensor(struct program *p, const struct step *s)
{
    static const uint8_t orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                         {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    struct kernel *k = p->k;
    struct tree_entry dir;
    const unsigned form = s->n2 / 6 % FORMS, shape = s->n2 % FORMS, values = s->n2 / 18 >= 2;
    const bool refused = s->n2 == 54 || s->n2 == 55; /* its type, which comes first, is */
    const int t = of_name(s->name);
    share(k->w, t);
    struct tensor_edit *e = begin_edit(k->w, t, HANDLES);
    memcpy(e->part,
           (uint8_t[]){(uint8_t)(1 + form), (uint8_t)(1 + shape), (uint8_t)s->n, (uint8_t)s->n},
           PARTS);
    if (values && orders[s->n2 % 6][0] != 0) /* who syncs before the type comes adds an F32 */
        e->part[OF_TYPE] = ANYTHING;
    e->adds = true;
    e->judged = refused ? (uint32_t)NEVER : e->begin;
    lock_take(&k->tensors);
    for (unsigned i = 0; i < k->w->tensors.n[t]; i++)
        if (k->w->tensors.edit[t][i].durable == (uint32_t)NEVER)
            k->w->tensors.edit[t][i].kept = k->w->tensors.edit[t][i].part[OF_TYPE] == NONE;
    const int r = KERNEL_CALL(p, tree_mkdir(k->t, FOLDER, names[s->name], &dir));
    lock_drop(&k->tensors);
    check_error(p, "mkdir", t, r, false);
    if (r < 0) {
        e->refused = tensors_now(k->w);
        return;
    }
    bool whole = true;
    for (unsigned i = 0; i < 3 && whole; i++) {
        static const char *const views[] = {"type", "shape", "raw", "f32"};
        uint8_t bytes[BYTES_MOST];
        const unsigned at = orders[s->n2 % 6][i], what = at == 2 && values ? 3 : at;
        struct handle *h =
            open_slot(p, OWN_SLOT, s->name, dir.node, e->begin, views[what], O_RDWR | O_TRUNC);
        size_t n;
        if (what < 2) {
            n = (size_t)snprintf((char *)bytes, sizeof(bytes), "%s\n",
                                 what ? shapes[shape].text : types[form].name);
        } else {
            n = put_half(values ? 0 : form, s->n, bytes);
            n += put_half(values ? 0 : form, s->n, bytes + n);
        }
        whole = h;
        if (!h)
            continue;
        lock_take(&h->o->lock);
        const uint64_t at_byte = refused && what == 0 ? 4096 : 0; /* where no text can end */
        whole = KERNEL_CALL(p, tree_write(h->f, at_byte, bytes, n, &p->wait)) == 0;
        lock_drop(&h->o->lock);
        whole &= close_handle(p, OWN_SLOT) == 0;
        whole |= refused && what == 0;
    }
    e->whole = whole && !refused;
    e->end = tensors_now(k->w);
    tree_forget(k->t, dir.node, 1);
}

static void remove_tensor(struct program *p, const struct step *s)
{
    static const char *const views[] = {"type", "shape", "raw", "f32", "f32.npy", "offset"};
    struct kernel *k = p->k;
    struct tree_entry dir;
    const int t = of_name(s->name);
    if (k->w->story.strategy == EDIT_INPLACE) /* no tensor can be removed */
        return;
    share(k->w, t);
    lock_take(&k->tensors);
    int r = look_up(p, s->name, NULL, &dir);
    if (s->word == W_RMR && r == 0) /* a new tensor without its type has that of its values */
        begin_edit(k->w, t, HANDLES)->part[OF_TYPE] = ANYTHING;
    for (size_t i = 0; s->word == W_RMR && i < sizeof(views) / sizeof(*views) && r == 0; i++) {
        check_error(p, "unlink", t, KERNEL_CALL(p, tree_unlink(k->t, dir.node, views[i])), false);
    }
    if (r == 0) {
        struct tensor_edit *e = begin_edit(k->w, t, HANDLES);
        memset(e->part, NONE, sizeof(e->part));
        e->judged = e->begin;
        r = KERNEL_CALL(p, tree_rmdir(k->t, FOLDER, names[s->name]));
        e->end = tensors_now(k->w);
        if (r < 0 || k->w->tensors.spared < e->begin)
            *(r == 0 ? &e->accepted : &e->refused) = e->end;
        check_error(p, "rmdir", t, r, false);
        tree_forget(k->t, dir.node, 1);
    }
    lock_drop(&k->tensors);
    share(k->w, t);
}

/* numpy.save(): a header, of version 1 or 2, and then the values, in C or Fortran order. */
static void save_npy(struct program *p, const struct step *s)
{
    uint8_t bytes[128 + BYTES_MOST];
    struct kernel *k = p->k;
    const unsigned shape = s->n2 % FORMS, order = s->n2 / FORMS % 2,
                   head = s->n2 / FORMS < 2 ? 10 : 12;
    struct handle *h =
        open_slot(p, OWN_SLOT, s->name, 0, (uint32_t)NEVER, "f32.npy", O_WRONLY | O_TRUNC);
    if (!h)
        return;
    memset(bytes, ' ', 128);
    memcpy(bytes, head == 10 ? "\x93NUMPY\1\0v\0" : "\x93NUMPY\2\0t\0\0", head);
    const int n = snprintf((char *)bytes + head, 128 - head,
                           "{'descr': '<f4', 'fortran_order': %s, 'shape': %s, }",
                           order ? "True" : "False", shapes[shape].numpy);
    bytes[head + (unsigned)n] = ' ';
    bytes[127] = '\n';
    const size_t half = put_half(0, s->n, bytes + 128);
    (void)put_half(0, s->n, bytes + 128 + half);
    k->w->tensors.fortran[h->tensor] |= order && shape;
    if (order && shape) { /* the first of each half, then the others, which are equal */
        memcpy(bytes + 128 + 4, bytes + 128, 4);
        memcpy(bytes + 128 + half, bytes + 128 + half + 4, 4);
    }
    lock_take(&h->o->lock);
    struct tensor_edit *e = begin_edit(k->w, h->tensor, h->number);
    e->part[OF_SHAPE] = (uint8_t)(1 + shape);
    e->part[OF_LOW] = e->part[OF_HIGH] = (uint8_t)s->n;
    int r = 0;
    for (unsigned i = 0; i < 2 && r == 0; i++) {
        r = KERNEL_CALL(p,
                        tree_write(h->f, 128 * i, bytes + 128 * i, i ? BYTES_MOST : 128, &p->wait));
    }
    e->end = tensors_now(k->w);
    /* another program's header may say that these values are in another order */
    if (k->w->tensors.fortran[h->tensor] && k->w->tensors.shared[h->tensor] > h->opened)
        e->part[OF_LOW] = e->part[OF_HIGH] = ANYTHING;
    e->refused = r < 0 ? e->end : e->refused;
    h->failed |= r < 0;
    h->is_short &= r < 0;
    lock_drop(&h->o->lock);
    check_error(p, "write", h->tensor, r, is_lonely(k, h->tensor, h));
    (void)close_handle(p, OWN_SLOT);
}

/* ---- looks ---- */

static void read_view(struct program *p, const struct step *s)
{
    struct kernel *k = p->k;
    struct world *w = k->w;
    uint8_t bytes[2 * BYTES_MOST];
    const int t = of_name(s->name);
    const bool raw = sched_lot(2);
    const uint32_t since = tensors_now(w);
    struct handle *h =
        open_slot(p, OWN_SLOT, s->name, 0, (uint32_t)NEVER, raw ? "raw" : "f32", O_RDONLY);
    if (!h)
        return;
    const bool written = w->tensors.writers[t]; /* the last writer may go while it is read */
    const int r = KERNEL_CALL(p, (int)kernel_read(h->f, sizeof(bytes), bytes));
    const uint32_t now = tensors_now(w);
    const unsigned form = !raw ? 0 : r < 0 ? FORMS : form_of_size((size_t)r);
    if (r >= 0 && !may_see(w, t, OF_TYPE, 0, true, OPENED, since, now) && !w->oracle.off)
        sched_fail("%s was removed, and is read", names[s->name]);
    if (r < 0 && r != -ESTALE)
        check_error(p, "read", t, r, true);
    /* while others write, a reader may see a mixture */
    if (is_lonely(k, t, h) && !written && !w->tensors.writers[t] &&
        (r >= 0 || !*w->oracle.faults)) {
        if (form == FORMS || (!raw && r != BYTES_MOST))
            sched_fail("%s of %s has %d bytes", raw ? "raw" : "f32", names[s->name], r);
        if (raw)
            must_see(w, t, OF_TYPE, 1 + form, OPENED, since, now);
        must_see(w, t, OF_LOW, token_of(form, bytes), OPENED, since, now);
        must_see(w, t, OF_HIGH, token_of(form, bytes + types[form].half), OPENED, since, now);
    }
    (void)close_handle(p, OWN_SLOT);
}

void tensors_list(struct program *p)
{
    struct kernel *k = p->k;
    unsigned times[NAMES];
    const uint32_t since = tensors_now(k->w);
    kernel_begin(p);
    const int r = kernel_end(p, kernel_list(k, FOLDER, times));
    const uint32_t now = tensors_now(k->w);
    for (int t = 0; t < TENSORS && r == 0 && !k->w->oracle.off; t++)
        /* one that was removed may come again with another one of its name */
        if ((times[KEYS + t] > 1 && (is_settled(k->w, t, since) || !is_removed(k->w, t))) ||
            !may_see(k->w, t, OF_TYPE, NONE, times[KEYS + t], OPENED, since, now))
            sched_fail("%s is listed %u times", names[KEYS + t], times[KEYS + t]);
}

void tensors_step(struct program *p, const struct step *s)
{
    struct handle *h = p->slot[s->slot];
    struct step part = *s;
    if (!p->k->w->story.tensors)
        return;
    switch (s->word) {
    case W_OPEN:
    case W_PUT:
        part.flags |= s->word == W_PUT ? F_WRITE | F_TRUNC : 0;
        h = open_slot(p, s->slot, s->name, 0, (uint32_t)NEVER, part.flags & F_F32 ? "f32" : "raw",
                      (part.flags & F_WRITE ? O_RDWR : O_RDONLY) |
                          ((part.flags & F_WRITE) && (part.flags & F_TRUNC) ? O_TRUNC : 0));
        if (!h || s->word == W_OPEN)
            return;
        (void)write_token(p, h, s->n, false);
        (void)close_handle(p, s->slot);
        return;
    case W_WRITE:
    case W_HALF:
        if (h->writes)
            (void)write_token(p, h, s->n, s->word == W_HALF);
        return;
    case W_CLOSE:
        (void)close_handle(p, s->slot);
        return;
    case W_FORK:
        h->owners++;
        return;
    case W_FSYNC:
        (void)flush(p, h, true);
        return;
    case W_READ:
        read_view(p, s);
        return;
    case W_TYPE:
    case W_SHAPE:
        set_form(p, s);
        return;
    case W_ADD:
        add_tensor(p, s);
        return;
    case W_RMR:
    case W_RMDIR:
        remove_tensor(p, s);
        return;
    case W_NPY:
        save_npy(p, s);
        return;
    default:
        return;
    }
}

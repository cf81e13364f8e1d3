/* SPDX-License-Identifier: MIT */
/* The kernel and the steps of programs: see kernel.h. */
#include "kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/lock.h"
#include "live/tensors.h"
#include "hooks.h"
#include "tensors.h"
#include "tree/files.h"
#include "tree/history.h"
#include "tree_edit.h"

#define METADATA ino_row(0)
#define TENSORS ino_row(1)

static struct oracle *of(const struct kernel *k)
{
    return &k->w->oracle;
}

/* Returns whether the name is a key's or a tensor's. */
bool is_key(int name)
{
    return name >= 0 && name < REGS;
}

bool is_tensor(int name)
{
    return name >= KEYS && name < REGS;
}

/* ---- requests ---- */

static void answered(struct live_wait *w, int result)
{
    struct request *q = (struct request *)w;
    lock_take(&q->k->lock);
    if (!q->busy || q->answered)
        sched_fail("a request was answered twice");
    q->answered = true;
    q->result = result;
    memset(w, 0xA5, sizeof(*w)); /* must not be used after the answer */
    cond_broadcast(&q->k->more);
    lock_drop(&q->k->lock);
}

static bool is_stopped(struct live_wait *w)
{
    return ((struct request *)w)->stop;
}

/* Begins the program's next call. Returns the wait to pass to it. */
struct live_wait *kernel_begin(struct program *p)
{
    struct request *q = &p->request;
    sched_point("call", p->number);
    p->k->w->out.calls++;
    lock_take(&p->k->lock);
    *q = (struct request){
        .wait = {.done = answered, .request = q, .stopped = is_stopped}, .k = p->k, .busy = true};
    p->k->busy++;
    lock_drop(&p->k->lock);
    return &q->wait;
}

int kernel_end(struct program *p, int r)
{
    struct request *q = &p->request;
    lock_take(&p->k->lock);
    if (r == LIVE_PARKED)
        while (!q->answered)
            (void)lock_wait(&p->k->lock, &p->k->more, NULL);
    else if (q->answered)
        sched_fail("a request was answered that does not wait");
    r = r == LIVE_PARKED ? q->result : r;
    q->busy = false;
    p->k->busy--;
    lock_drop(&p->k->lock);
    return r;
}

void kernel_signal(struct kernel *k, unsigned program, bool notify)
{
    struct request *q = &k->program[program].request;
    lock_take(&k->lock);
    bool busy = q->busy;
    if (busy)
        q->stop = k->program[program].signalled = true;
    lock_drop(&k->lock);
    if (busy && notify)
        tree_interrupt(k->t, q);
}

/* Returns whether the story demands a strategy that cannot write every edit. */
static bool is_asked(const struct kernel *k)
{
    return k->w->story.strategy == EDIT_INPLACE;
}

/* Fails the run if the answer is an unexplained error. */
void kernel_expect(const struct program *p, const char *what, int r, bool good)
{
    sched_note("%c %s: %d", "ABCDZ"[p->number], what, r);
    good |= r == -EOPNOTSUPP && is_asked(p->k);
    if (r < 0 && !good && !p->k->rough && !p->k->w->disk.hits && !(r == -EINTR && p->signalled))
        sched_fail("%c: %s is answered with %s", "ABCDZ"[p->number], what, strerror(-r));
}

/* Returns whether the new file may stay although the edit fails (edit/commit.h, C4): after two disk
 * faults, or one if the file system cannot exchange names, it may be impossible to restore the old
 * file. */
static bool may_stay(const struct kernel *k)
{
    return k->w->disk.hits > (k->w->story.features & NO_EXCHANGE ? 0 : 1);
}

/* Returns what an error says about an edit. A signal ends a wait, not an edit. */
enum outcome kernel_failed(const struct kernel *k, int r)
{
    return r == -EINTR || may_stay(k) ? PERHAPS : FAILED;
}

/* ---- nodes ---- */

/* Records an assignment to the file's content that is still in progress. */
static void goes_on(struct object *o, int made)
{
    for (unsigned i = 0; i < 8 && made >= 0; i++)
        if (!o->going[i]) {
            o->going[i] = made + 1;
            return;
        }
}

static void went(struct object *o, int made)
{
    for (unsigned i = 0; i < 8; i++)
        if (o->going[i] == made + 1)
            o->going[i] = 0;
}

static bool is_judged(const struct object *o)
{
    bool is = false;
    for (unsigned i = 0; i < 8; i++)
        is |= o->going[i] != 0;
    return is;
}

/* Records that the file's draft may now have these values. */
static void may_be(struct kernel *k, struct object *o, uint64_t mask)
{
    o->content |= mask;
    o->seen |= mask;
    o->ever |= mask;
    for (unsigned i = 0; i < 8; i++)
        if (o->going[i])
            oracle_widen(of(k), (unsigned)o->going[i] - 1, mask);
    for (unsigned i = 0; i < ACTORS && is_tensor(o->name); i++)
        if (k->program[i].judges && k->program[i].names_of & (uint32_t)1 << (o->name - KEYS))
            oracle_widen(of(k), (unsigned)k->program[i].judges - 1, mask);
}

void kernel_disturb(struct kernel *k, int name, uint64_t mask, int moving)
{
    for (unsigned i = 0; i < k->objects; i++) {
        struct object *o = &k->object[i];
        if (o->name != name && !(o->moved && o->old_name == name))
            continue;
        o->changes++;
        o->moving += (unsigned)moving;
        o->doubt |= o->writers > 0;
        may_be(k, o, mask);
    }
}

/* Begins the truncation of a view, under each name that the tensor has until cut_ends(). */
static void cut_begins(struct program *p, int name)
{
    p->cuts = UINT32_C(1) << name;
    kernel_disturb(p->k, name, BIT(TOKEN_EMPTY) | BIT(TOKEN_OTHER), 0);
}

static void cut_ends(struct program *p)
{
    for (int i = KEYS; i < REGS; i++)
        if (p->cuts & UINT32_C(1) << i)
            kernel_disturb(p->k, i, BIT(TOKEN_EMPTY) | BIT(TOKEN_OTHER), 0);
    p->cuts = 0;
}

bool kernel_cuts(const struct kernel *k, int name)
{
    bool is = false;
    for (unsigned i = 0; i < ACTORS && is_tensor(name); i++)
        is |= (k->program[i].cuts & UINT32_C(1) << name) != 0;
    return is;
}

static struct object *object_of(struct kernel *k, const struct tree_entry *e, int name)
{
    struct object *o = NULL;
    for (unsigned i = 0; i < k->objects; i++)
        if (k->object[i].node == e->node && k->object[i].generation == e->generation)
            o = &k->object[i];
    if (!o) {
        if (k->objects == OBJECTS)
            sched_fail("%d nodes were given", OBJECTS);
        o = &k->object[k->objects++];
        *o = (struct object){.node = e->node,
                             .generation = e->generation,
                             .name = name,
                             .old_name = k->came[name] ? k->came[name] - 1 : name,
                             .moved =
                                 /* if that rename fails, the file reverts to its old name */
                             k->came[name] != 0,
                             .next_name = -1,
                             .last = -1};
        lock_init(&o->lock);
    }
    if (o->name != name) {
        o->name = name;
        o->changes++;
        o->moved = true; /* the rename was undone, or made by another program */
    }
    o->lookups++;
    sched_note("%s is file %u", names[name], (unsigned)(o - k->object));
    return o;
}

/* Queues a release or a forget for the thread that performs them late. */
static void later(struct kernel *k, struct tree_file *f, struct handle *h, uint64_t node,
                  uint64_t n, int name)
{
    lock_take(&k->lock);
    if (k->n_late - k->first_late == LATE)
        sched_fail("too much is to be released");
    k->late[k->n_late % LATE].f = f;
    k->late[k->n_late % LATE].h = h;
    k->late[k->n_late % LATE].node = node;
    k->late[k->n_late % LATE].name = name;
    k->late[k->n_late++ % LATE].n = n;
    cond_broadcast(&k->more);
    lock_drop(&k->lock);
}

static void forget_later(struct kernel *k, struct object *o)
{
    uint64_t n = o->lookups;
    if (o->handles || !n || sched_lot(2))
        return;
    o->lookups = 0;
    later(k, NULL, NULL, o->node, n, -1);
}

void kernel_later(struct kernel *k, struct tree_file *f, uint64_t node, int name)
{
    if (name >= 0)
        k->made[name].open += f != NULL;
    later(k, f, NULL, node, node != 0, name);
}

/* Assigns a file's content to its key, to its earlier keys (a lost rename restores the old name),
 * and to the key to which it is being renamed. */
enum { NOW, BEFORE, NEXT, ORIGIN, MADE };
struct made {
    int of[MADE]; /* -1: none */
};

static struct made assign(struct kernel *k, struct object *o, uint64_t mask)
{
    /* the name before two renames */
    const int came = o->old_name >= 0 ? k->came[o->old_name] : 0,
              first = (came ? came : o->origin) - 1;
    const int name[] = {o->name, o->old_name, o->next_name, first};
    struct made m = {{-1, -1, -1, -1}};
    for (unsigned i = 0; i < MADE; i++) {
        bool again = (i > 0 && name[i] == name[0]) || (i == BEFORE && name[i] == name[NEXT]) ||
                     (i == ORIGIN && (name[i] == name[BEFORE] || name[i] == name[NEXT]));
        if (is_key(name[i]) && !again)
            m.of[i] = (int)oracle_begin(of(k), (unsigned)name[i], mask);
        goes_on(o, m.of[i]);
    }
    return m;
}

static void assigned(struct kernel *k, struct object *o, const struct made *m, enum outcome how)
{
    bool back = k->w->disk.hits || o->unsure ||
                (m->of[BEFORE] >= 0 && k->back[of(k)->a[m->of[BEFORE]].reg]);
    /* A removed tensor may be written until the removal is on the disk. */
    bool removed = o->name < 0 && is_tensor(o->old_name);
    /* The next name counts until the rename has failed. */
    const int next = m->of[NEXT] >= 0 ? (int)of(k)->a[m->of[NEXT]].reg : -1;
    const bool goes = next == o->next_name || next == o->name || o->unsure || k->w->disk.hits > 1;
    const enum outcome hows[] = {how, back ? PERHAPS : FAILED, goes ? PERHAPS : FAILED,
                                 k->w->disk.hits || o->unsure ? PERHAPS : FAILED};
    for (unsigned i = 0; i < MADE; i++) {
        if (m->of[i] >= 0)
            oracle_end(of(k), (unsigned)m->of[i], removed && i == BEFORE ? PERHAPS : hows[i]);
        if (m->of[i] >= 0 && removed && i == BEFORE && !k->w->disk.hits &&
            !o->unsure) /* otherwise the tensor may have come back */
            of(k)->a[m->of[i]].end = o->gone_at;
        went(o, m->of[i]);
    }
}

/* Writes back the pages of a mapping, as the kernel itself does. */
static void write_pages(struct kernel *k, struct object *o);

/* Ends the handle: a file that was truncated and never written becomes empty. */
static void release(struct kernel *k, struct tree_file *f, struct handle *h)
{
    struct object *o = h->o;
    if (o->mapped == h && !k->gone)
        write_pages(k, o); /* this also waits for a page that is being written */
    if (o->mapped == h)
        o->pages = 0;
    bool counts = h->writes && (o->emptied || o->dirty);
    /* If a draft is refused, the key reverts to the value that it had before the draft. */
    bool refused =
        !h->floats && (k->w->disk.hits || o->content & (BIT(TOKEN_EMPTY) | BIT(TOKEN_OTHER)));
    struct made made = assign(k, o, counts ? o->content | (refused ? o->seen : 0) : 0);
    (void)tree_release(f);
    assigned(k, o, &made, PERHAPS);
    if (o->by == h)
        o->by = NULL;
    o->handles--;
    if (h->writes && --o->writers == 0) {
        o->dirty = o->emptied = false;
        o->seen = o->opening ? o->seen : 0;
    }
    __real_free(h);
}

/* Performs the late release or forget in entry i. */
static void end_late(struct kernel *k, unsigned i)
{
    struct tree_file *f = k->late[i].f;
    struct handle *h = k->late[i].h;
    uint64_t node = k->late[i].node, n = k->late[i].n;
    int name = k->late[i].name;
    lock_drop(&k->lock);
    if (h)
        release(k, f, h);
    else if (f)
        (void)tree_release(f);
    if (f && name >= 0)
        k->made[name].open--;
    if (n)
        tree_forget(k->t, node, n);
    lock_take(&k->lock);
}

void kernel_drop(struct kernel *k)
{
    lock_take(&k->lock);
    for (; k->first_late < k->n_late; k->first_late++)
        if (k->late[k->first_late % LATE].f)
            end_late(k, k->first_late % LATE);
    lock_drop(&k->lock);
    for (unsigned i = 0; i < ACTORS * SLOTS; i++) {
        struct handle **h = &k->program[i / SLOTS].slot[i % SLOTS];
        if (*h)
            release(k, (*h)->f, *h);
        *h = NULL;
    }
}

void *kernel_late(void *arg)
{
    struct kernel *k = arg;
    lock_take(&k->lock);
    while (!k->stop || (k->first_late < k->n_late && !k->gone)) {
        if (k->first_late == k->n_late) {
            (void)lock_wait(&k->lock, &k->more, NULL);
            continue;
        }
        end_late(k, k->first_late++ % LATE);
    }
    lock_drop(&k->lock);
    return NULL;
}

/* ---- texts ---- */

static size_t text_of(unsigned token, char dst[16])
{
    return (size_t)snprintf(dst, 16, "%u\n", 1000 + token);
}

static unsigned token_of(const char *text, size_t n)
{
    unsigned v = 0;
    while (n && text[n - 1] == '\n')
        n--;
    for (size_t i = 0; i < n; i++)
        v = text[i] >= '0' && text[i] <= '9' && v < 100000 ? v * 10 + (unsigned)(text[i] - '0')
                                                           : 99999;
    return n == 0                                         ? TOKEN_EMPTY
           : v >= 1000 + TOKEN_FIRST && v < 1000 + TOKENS ? v - 1000
                                                          : TOKEN_OTHER;
}

/* ---- open ---- */

/* Updates the file's state for a new handle that may write. */
static void joined(struct kernel *k, struct handle *h, bool truncates)
{
    struct object *o = h->o;
    if (!h->writes)
        return;
    if (o->writers++ == 0) {
        if (is_key(o->name))
            o->content = oracle_may(of(k), (unsigned)o->name, 0, UINT64_MAX, false);
        o->seen = o->content;
        o->ever |= o->content;
    }
    if (truncates) {
        h->truncated = true;
        o->content = BIT(TOKEN_EMPTY);
        o->seen |= o->content;
        o->ever |= o->content;
        o->emptied = true;
        o->dirty = false;
        o->changes++;
    }
}

/* Looks up a name, and counts the kernel's reference to its node. */
static int find(struct program *p, int name, bool f32, struct tree_entry *ret)
{
    struct kernel *k = p->k;
    struct tree_entry dir;
    (void)kernel_begin(p);
    if (!is_tensor(name))
        return kernel_end(p, tree_lookup(k->t, METADATA, names[name], ret));
    int r = kernel_end(p, tree_lookup(k->t, TENSORS, names[name], &dir));
    if (r < 0)
        return r;
    (void)kernel_begin(p);
    r = kernel_end(p, tree_lookup(k->t, dir.node, f32 ? "f32" : "raw", ret));
    tree_forget(k->t, dir.node, 1);
    return r;
}

static int open_once(struct program *p, const struct step *s, struct handle *h)
{
    struct kernel *k = p->k;
    struct tree_entry e;
    int flags = (h->writes ? O_RDWR : O_RDONLY) | (s->flags & F_TRUNC ? O_TRUNC : 0);
    lock_take(&k->dir);
    int r = find(p, s->name, s->flags & F_F32, &e);
    if (r == -ENOENT && s->flags & F_CREAT && !is_tensor(s->name)) {
        int back = -1;
        if (is_key(s->name) && k->before[s->name])
            back = (int)oracle_begin(of(k), s->name, k->before[s->name]);
        k->creating[s->name]++;
        k->created[s->name] = oracle_time(of(k));
        k->removed[s->name] = false;
        (void)kernel_begin(p);
        r = kernel_end(p, tree_create(k->t, METADATA, names[s->name], flags | O_CREAT, &e, &h->f));
        k->creating[s->name]--;
        if (back >= 0)
            oracle_end(of(k), (unsigned)back, PERHAPS);
        if (r == 0) {
            h->o = object_of(k, &e, s->name);
            joined(k, h, true);
        }
    } else if (r == 0) {
        h->o = object_of(k, &e, s->name);
        if (s->flags & F_CREAT && s->flags & F_EXCL)
            r = -EEXIST;
    }
    if (r == 0)
        h->o->handles++; /* keeps the object from being forgotten in the meantime */
    lock_drop(&k->dir);
    if (r < 0 || h->f)
        return r;
    lock_take(&h->o->lock);
    bool truncates = h->writes && s->flags & F_TRUNC;
    if (truncates)
        tensors_written(k, h->o->name, 0);
    h->o->changes += truncates;
    uint64_t was = h->o->content;
    may_be(k, h->o, truncates ? BIT(TOKEN_EMPTY) : 0);
    h->o->opening += truncates;
    if (truncates && is_tensor(h->o->name))
        cut_begins(p, h->o->name);
    (void)kernel_begin(p);
    r = kernel_end(p, tree_open_file(k->t, h->o->node, flags, &h->f));
    h->o->opening -= truncates;
    cut_ends(p);
    if (r == 0)
        joined(k, h, truncates);
    else
        h->o->content = was;
    lock_drop(&h->o->lock);
    if (r < 0)
        h->o->handles--;
    return r;
}

static void opened(struct program *p, const struct step *s, struct handle *h, int r)
{
    if (r < 0) {
        if (h->o)
            forget_later(p->k, h->o);
        __real_free(h);
        return;
    }
    h->owners = 1;
    p->slot[s->slot] = h;
}

static void step_open(struct program *p, const struct step *s)
{
    struct handle *h;
    int r = -ESTALE;
    if (p->slot[s->slot])
        return;
    for (unsigned i = 0; i < 2 && r == -ESTALE; i++) {
        h = __real_calloc(1, sizeof(*h));
        h->writes = s->flags & F_WRITE;
        h->floats = is_tensor(s->name);
        r = open_once(p, s, h);
        if (i == 0 && r == -ESTALE)
            opened(p, s, h, r);
    }
    kernel_expect(p, "open", r, r == -ENOENT || r == -EEXIST || r == -ESTALE || r == -EBUSY);
    opened(p, s, h, r);
}

/* ---- write ---- */

/* Returns TOKEN_OTHER's bit if the tensor may be, or may have been, of a type other than F32: its
 * bytes are then not its values. Otherwise returns 0. */
static uint64_t as_bytes(const struct kernel *k, const struct object *o)
{
    const int name = o->name >= 0 ? o->name : o->old_name;
    bool other = is_tensor(name) &&
                 (oracle_ever(of(k), (unsigned)(TYPES + name - KEYS)) & ~BIT(TOKEN_FIRST)) != 0;
    return other ? BIT(TOKEN_OTHER) : 0;
}

/* Writes a view in two requests, as write(2) does while the kernel holds the inode's lock. With
 * `half`, only the first request is made. */
static int write_floats(struct program *p, const struct handle *h, unsigned token, bool half)
{
    enum { FIRST = 2 * PAGE };
    static uint8_t room[ACTORS][FLOATS * 4];
    uint8_t *bytes = room[p->number];
    const size_t n = tensors_bytes(0, token, bytes);
    (void)kernel_begin(p);
    int r = kernel_end(p, tree_write(h->f, 0, bytes, FIRST, NULL));
    if (r < 0 || half)
        return r;
    (void)kernel_begin(p);
    return kernel_end(p, tree_write(h->f, FIRST, bytes + FIRST, n - FIRST, NULL));
}

static int write_text(struct program *p, const struct handle *h, unsigned token, bool half)
{
    char text[16];
    size_t n = text_of(token, text);
    (void)kernel_begin(p);
    return kernel_end(p, tree_write(h->f, 0, text, half ? 2 : n, NULL));
}

/* Returns whether the draft has a second node, which is possible if memory ran out. Writes through
 * the two nodes are interleaved. */
static bool has_twin(const struct kernel *k, const struct object *o)
{
    bool has = false;
    for (unsigned i = 0; i < k->objects && is_tensor(o->name); i++)
        has |= &k->object[i] != o && k->object[i].name == o->name && k->object[i].writers;
    return has;
}

static ssize_t read_at(struct tree_file *f, size_t off, size_t room, void *dst)
{
    size_t n = 0;
    for (size_t got = 1; got && n < room; n += got) {
        struct reply reply = {.scratch = (uint8_t *)dst + n};
        int r = tree_read(f, off + n, room - n, &reply);
        got = reply.len;
        if (r == 0 && got && reply.bytes != reply.scratch)
            memcpy((uint8_t *)dst + n, reply.bytes, got);
        tree_reply_done(&reply);
        if (r < 0)
            return r;
    }
    return (ssize_t)n;
}

/* Writes back a whole page of the mapping. */
static int write_page(struct kernel *k, struct object *o, unsigned page)
{
    size_t n = page == PAGES - 1 ? FLOATS * 4 - page * PAGE : PAGE;
    uint8_t bytes[FLOATS * 4];
    (void)tensors_bytes(0, o->stored, bytes);
    o->pages &= (uint8_t) ~(1u << page);
    o->dirty = true; /* a truncation after the store may have cleared this */
    may_be(k, o, BIT(o->stored) | BIT(TOKEN_OTHER));
    int r = tree_write(o->mapped->f, (uint64_t)page * PAGE, bytes + page * PAGE, n, NULL);
    sched_note("page %u is written: %d", page, r);
    if (o->pages || r < 0 || o->changes != o->at || has_twin(k, o)) {
        o->doubt |= r < 0 || !o->pages;
        o->at -= r < 0;
        return r;
    }
    o->content = BIT(o->stored) | as_bytes(k, o);
    o->by = o->mapped;
    o->doubt = false;
    return r;
}

static void write_pages(struct kernel *k, struct object *o)
{
    lock_take(&o->lock);
    while (o->pages) {
        unsigned page = sched_draw(PAGES);
        if (o->pages & 1u << page)
            (void)write_page(k, o, page);
    }
    lock_drop(&o->lock);
}

/* Returns whether a truncation, or a write through another node, may come between the pieces of a
 * write. */
static bool is_mixed(const struct kernel *k, const struct object *o)
{
    return has_twin(k, o) || kernel_cuts(k, o->name);
}

/* Changes half of a page: the kernel reads the page, and writes the page back before the program
 * changes the other half. A read must then return the bytes written. */
static void write_half(struct program *p, struct handle *h, unsigned page, unsigned token)
{
    struct kernel *k = p->k;
    struct object *o = h->o;
    const size_t n = page == PAGES - 1 ? FLOATS * 4 - page * PAGE : PAGE;
    uint8_t part[PAGE], now[PAGE], values[FLOATS * 4];
    if (read_at(h->f, page * PAGE, n, part) != (ssize_t)n)
        return;
    (void)tensors_bytes(0, token, values);
    memcpy(part, values, n / 2);
    const unsigned stamp = ++o->changes;
    may_be(k, o, BIT(TOKEN_OTHER));
    int r = tree_write(h->f, (uint64_t)page * PAGE, part, n, NULL);
    sched_note("half of page %u is written: %d", page, r);
    if (r == 0 && read_at(h->f, page * PAGE, n, now) == (ssize_t)n && memcmp(part, now, n) != 0 &&
        stamp == o->changes && !is_mixed(k, o) && !k->w->disk.hits && !k->rough)
        sched_fail("page %u of %s is not what was written", page, names[o->name]);
}

/* Stores to a mapping. The kernel writes back its pages sooner or later. With W_HALVES, it also
 * writes back some of them half changed. */
static void step_store(struct program *p, const struct step *s)
{
    struct handle *h = p->slot[s->slot];
    if (!h || !h->writes || !h->floats)
        return;
    struct object *o = h->o;
    lock_take(&o->lock);
    o->pages = (1 << PAGES) - 1;
    o->stored = s->n;
    o->mapped = h;
    o->at = ++o->changes;
    h->wrote = true;
    o->by = h;
    o->dirty = true;
    o->doubt = true;
    o->emptied = false;
    may_be(p->k, o, BIT(s->n) | BIT(TOKEN_OTHER));
    tensors_written(p->k, o->name, o->content);
    lock_drop(&o->lock);
    for (unsigned i = s->word == W_HALVES ? 1 + sched_draw(PAGES) : 0; i; i--) {
        lock_take(&o->lock);
        if (o->pages)
            write_half(p, h, sched_draw(PAGES), s->n);
        lock_drop(&o->lock);
    }
    for (unsigned i = sched_draw(PAGES); i; i--) {
        unsigned page = sched_draw(PAGES);
        lock_take(&o->lock);
        if (o->pages & 1u << page)
            (void)write_page(p->k, o, page);
        lock_drop(&o->lock);
    }
}

static void step_write(struct program *p, const struct step *s)
{
    struct handle *h = p->slot[s->slot];
    if (!h || !h->writes)
        return;
    struct object *o = h->o;
    const bool half = s->word == W_HALF;
    const uint64_t value = half ? BIT(TOKEN_OTHER) : BIT(s->n);
    lock_take(&o->lock);
    o->changes++;
    uint64_t was = o->content;
    /* a refusal may have restored an older value */
    if (is_judged(o) || p->k->w->disk.hits)
        was |= o->seen;
    /* Half a text, written over a longer one, may leave the longer one unchanged. */
    may_be(p->k, o, value | (h->floats ? BIT(TOKEN_OTHER) : half ? was & ~BIT(TOKEN_EMPTY) : 0));
    bool mixed = is_mixed(p->k, o);
    if (mixed)
        kernel_disturb(p->k, o->name, value | BIT(TOKEN_OTHER), 0);
    tensors_written(p->k, o->name, value | BIT(TOKEN_OTHER));
    o->pages = 0;
    const unsigned stamp = o->changes, judged = o->judged;
    o->writing = true;
    int r = h->floats ? write_floats(p, h, s->n, half) : write_text(p, h, s->n, half);
    o->writing = false;
    const unsigned stamp_now = o->changes++;
    mixed |= is_mixed(p->k, o);
    if (r >= 0) {
        o->content = value | (half ? was & ~BIT(TOKEN_EMPTY) : 0) |
                     (h->floats ? as_bytes(p->k, o) : 0) | (mixed ? BIT(TOKEN_OTHER) : 0);
        o->dirty = true;
        o->by = h;
        o->doubt = judged != o->judged;
        if (stamp != stamp_now && h->floats) { /* the draft was changed during the write */
            o->content |= was | BIT(TOKEN_OTHER);
            o->doubt = true;
        }
        o->emptied = false;
        h->wrote = true;
    } else {
        o->content |= was;
    }
    lock_drop(&o->lock);
    kernel_expect(p, "write", r,
                  r == -ESTALE || (h->floats && (r == -EBUSY || (r == -ENOENT && o->moved) ||
                                                 (r == -EFBIG && as_bytes(p->k, o)))));
}

/* Writes a text that no key accepts. The key reverts to the value that it had before its writers'
 * edits, unless something else has changed the key since. */
static void step_spoil(struct program *p, const struct step *s)
{
    struct handle *h = p->slot[s->slot];
    if (!h || !h->writes || h->floats)
        return;
    struct object *o = h->o;
    lock_take(&o->lock);
    o->changes++;
    o->spoilt = true;
    struct made made = assign(p->k, o, o->seen);
    may_be(p->k, o, BIT(TOKEN_OTHER));
    (void)kernel_begin(p);
    int r = kernel_end(p, tree_write(h->f, 0, "\xff\n", 2, NULL));
    assigned(p->k, o, &made, PERHAPS);
    o->changes++;
    if (r >= 0) {
        o->dirty = true;
        o->by = h;
        o->emptied = false;
        h->wrote = true;
    }
    lock_drop(&o->lock);
    kernel_expect(p, "spoil", r, r == -EINVAL || r == -EILSEQ);
}

static void step_cut(struct program *p, const struct step *s)
{
    struct handle *h = p->slot[s->slot];
    if (!h || !h->writes)
        return;
    struct object *o = h->o;
    lock_take(&o->lock);
    o->changes++;
    may_be(p->k, o, BIT(TOKEN_EMPTY));
    tensors_written(p->k, o->name, 0);
    struct live_wait *w = kernel_begin(p);
    int r = kernel_end(p, tree_truncate(h->f, 0, w));
    o->changes++;
    if (r >= 0) {
        h->truncated = true;
        o->content = BIT(TOKEN_EMPTY);
        o->emptied = true;
        o->dirty = false;
    }
    lock_drop(&o->lock);
    kernel_expect(p, "ftruncate", r, r == -ESTALE);
}

/* ---- flush and fsync ---- */

static uint64_t twins_have(const struct kernel *k, const struct object *o)
{
    uint64_t mask = 0;
    for (unsigned i = 0; i < k->objects && is_tensor(o->name); i++)
        if (&k->object[i] != o && k->object[i].name == o->name && k->object[i].writers)
            mask |= k->object[i].content | BIT(TOKEN_OTHER);
    return mask;
}

/* Returns whether the file might hold no complete value. A view may share its draft with one that
 * another program has truncated under an earlier node. */
static bool is_bad(const struct kernel *k, const struct object *o, uint64_t had)
{
    had |= o->content;
    for (unsigned i = 0; i < k->objects && is_tensor(o->name); i++)
        if (k->object[i].name == o->name)
            had |= k->object[i].content;
    return had & (BIT(TOKEN_EMPTY) | BIT(TOKEN_OTHER));
}

bool kernel_durable_close(const struct kernel *k)
{
    return k->w->story.commit != LIVE_COMMIT_SYNC;
}

/* Returns what the answer to a close or fsync says about the bytes written. */
static enum outcome judged(const struct kernel *k, const struct handle *h, unsigned changes, int r,
                           bool sync)
{
    const struct object *o = h->o;
    bool sure = changes == o->changes && !o->moving && is_key(o->name) && !o->emptied &&
                !(o->moved && k->w->disk.hits) && !o->unsure && !o->doubt && o->by == h &&
                !o->pages && !has_twin(k, o) && !(is_tensor(o->name) && k->made[o->name].may) &&
                (o->content & (o->content - 1)) == 0;
    if (r < 0)
        return kernel_failed(k, r);
    return !sure ? PERHAPS : sync || kernel_durable_close(k) ? DURABLE : ACCEPTED;
}

static int flush_or_sync(struct program *p, struct handle *h, bool sync)
{
    struct object *o = h->o;
    struct kernel *k = p->k;
    unsigned changes = o->moving ? UINT32_MAX : o->changes;
    int last = o->last;
    if (!h->writes && is_tensor(o->name) && k->accepted[o->name].changes == k->changes[o->name])
        last = k->accepted[o->name].of - 1; /* through a handle of another node */
    uint64_t since = oracle_time(of(k)), had = o->content;
    /* otherwise, a judgement is needed only if another program writes at the same time */
    bool dirty = o->dirty;
    /* A close judges only what its own handle wrote; fsync of a view judges everything. */
    bool judges = h->floats ? sync || h->writes : h->writes && (sync || h->wrote || h->truncated);
    if (judges && !h->floats && is_key(o->name)) /* a refused write brings back this value */
        o->seen |= oracle_may(of(k), (unsigned)o->name, since, UINT64_MAX, false);
    struct made made = assign(k, o, judges && (dirty || o->writing) ? o->content : 0);
    uint64_t twins = twins_have(k, o);
    bool twin = has_twin(k, o), cut = kernel_cuts(k, o->name);
    for (unsigned i = 0; i < MADE && twin; i++)
        if (made.of[i] >= 0)
            oracle_widen(of(k), (unsigned)made.of[i], twins);
    o->judged++;
    struct live_wait *w = kernel_begin(p);
    int r = kernel_end(p, sync ? tree_fsync(h->f, w) : tree_flush(h->f, w));
    had |= made.of[NOW] >= 0 ? of(k)->a[made.of[NOW]].mask : o->seen;
    bool bad = cut || is_bad(k, o, had);
    o->judged++;
    enum outcome how = judged(k, h, changes, r, sync);
    how = twin && how > PERHAPS ? PERHAPS : how;
    /* A refused key reverts to the value that it had before the draft, even though part of the
     * draft may have been accepted. */
    if ((r == -EINVAL || r == -EILSEQ || r == -ENOMEM) && !h->floats && is_key(o->name))
        oracle_end(of(k), oracle_begin(of(k), (unsigned)o->name, o->seen), PERHAPS);
    if (how == PERHAPS && made.of[NOW] >= 0 && dirty && judges)
        oracle_widen(of(k), (unsigned)made.of[NOW], o->seen);
    assigned(k, o, &made, how >= ACCEPTED && !dirty ? PERHAPS : how);
    if (how == PERHAPS && dirty && is_key(o->name) &&
        (made.of[NOW] < 0 || o->name != (int)of(k)->a[made.of[NOW]].reg))
        oracle_end(of(k), oracle_begin(of(k), (unsigned)o->name, o->seen), PERHAPS);
    o->doubt |= how == PERHAPS;
    if (how >= ACCEPTED && dirty) {
        o->dirty = false;
        o->last = made.of[NOW];
        if (is_tensor(o->name)) {
            k->accepted[o->name].of = o->last + 1;
            k->accepted[o->name].changes = k->changes[o->name];
        }
    }
    /* fsync through a handle that wrote nothing syncs the file's value */
    bool own = o->by == h || !h->wrote;
    if (sync && r == 0 && own && last >= 0 && of(k)->a[last].end < since && !dirty)
        oracle_durable(of(k), (unsigned)last);
    kernel_expect(
        p, sync ? "fsync" : "close", r,
        (r == -EINVAL && bad) || ((r == -EINVAL || r == -EILSEQ) && o->spoilt) || r == -ESTALE ||
            (h->floats && ((r == -ENOENT && o->moved) || (r == -EFBIG && as_bytes(k, o)))));
    if (r == 0 && (sync || kernel_durable_close(k)))
        kernel_look_disk(k, sync ? "after fsync" : "after close");
    return r;
}

static void close_slot(struct program *p, unsigned slot)
{
    struct handle *h = p->slot[slot];
    if (!h)
        return;
    if (h->o->pages && sched_lot(2))
        write_pages(p->k, h->o);
    (void)flush_or_sync(p, h, false);
    if (--h->owners)
        return;
    p->slot[slot] = NULL;
    later(p->k, h->f, h, 0, 0, -1);
}

/* Calls fsync(2), or msync(2) if the file is mapped. */
static void step_fsync(struct program *p, struct handle *h)
{
    if (!h)
        return;
    if (h->o->pages)
        write_pages(p->k, h->o);
    (void)flush_or_sync(p, h, true);
}

static void step_put(struct program *p, struct step s)
{
    s.flags = F_WRITE | F_TRUNC | F_CREAT;
    if (p->slot[s.slot])
        return;
    step_open(p, &s);
    step_write(p, &s);
    close_slot(p, s.slot);
}

void kernel_exit(struct program *p)
{
    for (unsigned i = 0; i < SLOTS; i++)
        while (p->slot[i])
            close_slot(p, i);
}

/* ---- names ---- */

/* Records the value of a name that is about to disappear. */
static void leaves(struct kernel *k, int name)
{
    uint64_t was = is_key(name) ? oracle_may(of(k), (unsigned)name, 0, UINT64_MAX, false) : 0;
    if (is_key(name))
        k->before[name] = was & ~BIT(TOKEN_ABSENT);
}

static int look_up(struct program *p, int name, struct object **ret)
{
    struct tree_entry e;
    (void)kernel_begin(p);
    int r = kernel_end(p, tree_lookup(p->k->t, METADATA, names[name], &e));
    *ret = r == 0 ? object_of(p->k, &e, name) : NULL;
    return r;
}

/* Begins or ends a rename or removal for all views of a tensor. */
static void views_move(struct kernel *k, int name, int next, bool begins, bool done, uint64_t since)
{
    for (unsigned i = 0; i < ACTORS && begins && next >= 0; i++)
        if (k->program[i].cuts & UINT32_C(1) << name)
            k->program[i].cuts |= UINT32_C(1) << next;
    for (unsigned i = 0; i < k->objects; i++) {
        struct object *o = &k->object[i];
        if (begins ? o->name != name : !o->leaves)
            continue;
        o->changes++;
        o->leaves = begins;
        o->moving += begins ? 1 : -1U;
        o->next_name = begins ? next : -1;
        if (begins && next >= 0 && is_judged(o)) /* a call in progress may assign to the new name */
            goes_on(o, (int)oracle_begin(of(k), (unsigned)next, o->content | o->seen));
        if (!done)
            continue;
        if (!o->unsure) /* otherwise the tensor may still have its earlier name */
            o->old_name = o->name;
        o->name = next;
        o->moved = true;
        o->gone_at = since;
    }
}

void kernel_step_tensor(struct program *p, const struct step *s)
{
    struct kernel *k = p->k;
    int next = s->word == W_MV ? s->to : -1, made = -1;
    uint64_t since = oracle_time(of(k));
    lock_take(&k->dir);
    views_move(k, s->name, next, true, false, since);
    leaves(k, s->name);
    if (next >= 0)
        made = (int)oracle_begin(of(k), s->to,
                                 oracle_may(of(k), s->name, since, UINT64_MAX, false) &
                                     ~BIT(TOKEN_ABSENT));
    unsigned gone = oracle_begin(of(k), s->name, BIT(TOKEN_ABSENT));
    struct tensor_move move = tensors_move_begin(k, s->name, next);
    struct live_wait *w = kernel_begin(p);
    int r = kernel_end(
        p, next >= 0 ? tree_rename(k->t, TENSORS, names[s->name], TENSORS, names[next], 0, w)
                     : tree_rmdir(k->t, TENSORS, names[s->name]));
    if (made >= 0)
        oracle_widen(of(k), (unsigned)made,
                     oracle_may(of(k), s->name, since, UINT64_MAX, false) & ~BIT(TOKEN_ABSENT));
    enum outcome how = r == -ENOTEMPTY                        ? FAILED /* even after disk faults */
                       : r < 0                                ? kernel_failed(k, r)
                       : next >= 0 && kernel_durable_close(k) ? DURABLE
                                                              : ACCEPTED;
    if (made >= 0 && !(move.making && r == 0))
        oracle_end(of(k), (unsigned)made, how);
    oracle_end(of(k), gone, move.making && how == DURABLE ? ACCEPTED : how);
    tensors_move_end(k, &move, made, r, how);
    if (next >= 0 && (r == 0 || (how == PERHAPS && !k->came[next])))
        k->came[next] = 1 + s->name;
    views_move(k, s->name, next, false, r == 0, of(k)->a[gone].start);
    for (unsigned i = 0; i < k->objects && r < 0 && how == PERHAPS; i++)
        if (k->object[i].name == s->name) { /* the view may belong to the other tensor by now */
            k->object[i].unsure = k->object[i].moved = true;
            k->object[i].old_name = next;
        }
    lock_drop(&k->dir);
    kernel_expect(p, next >= 0 ? "rename of a tensor" : "rmdir", r,
                  r == -ENOENT || r == -ENOTEMPTY || r == -ESTALE);
    if (how == DURABLE && !move.making)
        kernel_look_disk(k, "after rename");
}

/* Makes a helper with mknod(2), as tar does before it opens the file. */
static void step_nod(struct program *p, const struct step *s)
{
    struct kernel *k = p->k;
    struct object *o;
    struct tree_entry e;
    if (s->name < REGS)
        return;
    lock_take(&k->dir);
    int r = look_up(p, s->name, &o);
    if (r == -ENOENT) {
        (void)kernel_begin(p);
        r = kernel_end(p, tree_mknod(k->t, METADATA, names[s->name], &e));
        o = r == 0 ? object_of(k, &e, s->name) : NULL;
    }
    if (o)
        forget_later(k, o);
    lock_drop(&k->dir);
    kernel_expect(p, "mknod", r, false);
}

static void step_rm(struct program *p, const struct step *s)
{
    struct kernel *k = p->k;
    struct object *o;
    int made = -1;
    if (is_tensor(s->name)) {
        kernel_step_tensor(p, s);
        return;
    }
    lock_take(&k->dir);
    int r = look_up(p, s->name, &o);
    if (r == 0) {
        o->moving++;
        o->changes++;
        leaves(k, s->name);
        if (is_key(s->name))
            made = (int)oracle_begin(of(k), s->name, BIT(TOKEN_ABSENT));
        (void)kernel_begin(p);
        r = kernel_end(p, tree_unlink(k->t, METADATA, names[s->name]));
        if (made >= 0)
            oracle_end(of(k), (unsigned)made, r == 0 ? ACCEPTED : kernel_failed(k, r));
        o->moving--;
        o->changes++;
        if (r == 0) {
            o->old_name = o->name;
            o->name = -1;
            k->removed[s->name] = true;
        }
        forget_later(k, o);
    }
    lock_drop(&k->dir);
    kernel_expect(p, "unlink", r, r == -ENOENT);
}

/* Returns the values that the target of a rename may get. */
static uint64_t moved_value(const struct kernel *k, const struct object *from, uint64_t since)
{
    uint64_t value = from->content | from->seen;
    if (is_key(from->name))
        value = oracle_may(of(k), (unsigned)from->name, since, UINT64_MAX, false) | from->seen;
    /* the helper was created again when its rename failed */
    else if (k->w->disk.hits && !from->ever)
        return ~BIT(TOKEN_ABSENT);
    return k->w->disk.hits ? value | from->ever : value; /* its names may have been restored */
}

static void renamed(struct program *p, const struct step *s, struct object *from, struct object *to,
                    int r, int gone, int made, uint64_t since, unsigned changes)
{
    struct kernel *k = p->k;
    /* The rename has judged the text: a close judges the file only if it is written again. */
    const bool judged = changes == from->changes && !(from->content & BIT(TOKEN_EMPTY)) &&
                        !from->writing && !k->w->disk.hits;
    /* If a key has no value because its edit was lost, the target may get any value. */
    bool valued =
        !is_key(from->name) ||
        !(oracle_may(of(k), (unsigned)from->name, since, UINT64_MAX, false) & BIT(TOKEN_ABSENT));
    bool sure = r == 0 && valued && !from->writers && !(from->content & BIT(TOKEN_EMPTY));
    enum outcome ok = !sure ? PERHAPS : kernel_durable_close(k) ? DURABLE : ACCEPTED;
    bool parked = !is_key(s->to);
    if (made >= 0) {
        uint64_t value = moved_value(k, from, since);
        oracle_widen(of(k), (unsigned)made, value & ~BIT(TOKEN_ABSENT));
        went(from, made);
        oracle_end(of(k), (unsigned)made, r == 0 ? ok : kernel_failed(k, r));
    }
    if (gone >= 0)
        oracle_end(of(k), (unsigned)gone, r < 0 ? kernel_failed(k, r) : parked ? HIDDEN : ok);
    from->moving--;
    from->next_name = -1;
    from->changes++;
    if (to) {
        to->moving--;
        to->changes++;
    }
    if (!sure && !parked && k->before[s->to]) {
        k->back[s->to] = true;
        oracle_end(of(k), oracle_begin(of(k), s->to, k->before[s->to]), PERHAPS);
    }
    if (r < 0 && kernel_failed(k, r) == PERHAPS) {
        from->moved = from->unsure = true;
        from->old_name = s->to; /* it may have its new name by now */
        if (to)
            to->moved = to->unsure = true;
    }
    if (r < 0)
        return;
    if (is_key(s->name) && parked)
        from->content = from->seen = moved_value(k, from, since) & ~BIT(TOKEN_ABSENT);
    else if (!is_key(s->name) && !parked && (!from->writers || judged))
        from->dirty = false;
    from->seen &= ~BIT(TOKEN_ABSENT); /* that was a value of the old name */
    from->origin = 1 + from->old_name;
    from->old_name = from->name;
    from->name = s->to;
    from->moved = true;
    if (to) {
        to->origin = 1 + to->old_name;
        to->old_name = to->name;
        to->name = -1;
    }
}

/* Checks that a refused rename leaves the file under its old name. */
static void stays(struct program *p, int name, int r)
{
    struct kernel *k = p->k;
    struct object *o;
    if (r == 0 || r == -ENOENT || r == -EINTR || r == -ESTALE || may_stay(k) || k->rough)
        return;
    if (is_key(name) && oracle_may(of(k), (unsigned)name, oracle_time(of(k)), UINT64_MAX, false) &
                            BIT(TOKEN_ABSENT))
        return; /* a new key that could not be written either */
    r = look_up(p, name, &o);
    if (o)
        forget_later(k, o);
    if (r == -ENOENT)
        sched_fail("%s is gone, whose rename was refused", names[name]);
}

static void step_mv(struct program *p, const struct step *s)
{
    struct kernel *k = p->k;
    struct object *from, *to = NULL;
    uint64_t since = oracle_time(of(k));
    int gone = -1, made = -1;
    if (s->name == s->to || is_tensor(s->name) != is_tensor(s->to))
        return;
    if (is_tensor(s->name)) {
        kernel_step_tensor(p, s);
        return;
    }
    lock_take(&k->dir);
    int r = look_up(p, s->name, &from);
    if (r == 0) {
        (void)look_up(p, s->to, &to);
        from->moving++;
        from->changes++;
        if (to) {
            to->moving++;
            to->changes++;
        }
        from->next_name = s->to;
        const unsigned changes = from->changes;
        k->removed[s->to] = false;
        if (is_key(s->to))
            made =
                (int)oracle_begin(of(k), s->to, moved_value(k, from, since) & ~BIT(TOKEN_ABSENT));
        leaves(k, s->name);
        goes_on(from, made);
        if (is_key(s->name))
            gone = (int)oracle_begin(of(k), s->name, BIT(TOKEN_ABSENT));
        struct live_wait *w = kernel_begin(p);
        r = kernel_end(p,
                       tree_rename(k->t, METADATA, names[s->name], METADATA, names[s->to], 0, w));
        const uint64_t had = made >= 0 ? of(k)->a[made].mask : 0; /* during the rename */
        bool bad = (moved_value(k, from, since) | had) & (BIT(TOKEN_EMPTY) | BIT(TOKEN_OTHER));
        renamed(p, s, from, to, r, gone, made, since, changes);
        kernel_expect(p, "rename", r,
                      r == -ENOENT || (r == -EINVAL && bad) || (r == -EILSEQ && from->spoilt));
        stays(p, s->name, r);
        forget_later(k, from);
        if (to)
            forget_later(k, to);
    }
    lock_drop(&k->dir);
    if (r == 0 && made >= 0 && kernel_durable_close(k))
        kernel_look_disk(k, "after rename");
}

static void step_sync(struct program *p)
{
    struct kernel *k = p->k;
    lock_take(&k->dir);
    uint64_t since = oracle_time(of(k));
    uint32_t whole = tensors_whole(k);
    bool making = tensors_unsettled(k);
    uint64_t jumps = sched_jumps(), begun = sched_now();
    struct live_wait *w = kernel_begin(p);
    int r = kernel_end(p, tree_fsyncdir(k->t, w));
    lock_drop(&k->dir);
    kernel_expect(p, "sync", r, making || tensors_unsettled(k));
    if (r == 0 && !k->w->disk.hits && !k->rough && jumps == sched_jumps() &&
        /* fsync waits for late releases, but at most a second */
        sched_now() - begun < 1000000000)
        tensors_added(k, whole);
    if (r == 0 && !k->w->disk.hits && !k->rough)
        oracle_all_durable(of(k), since);
    if (r == 0)
        kernel_look_disk(k, "after sync");
}

/* Reads the values of the keys in the file. */
static void disk_keys(const struct kernel *k, unsigned token[KEYS]);

/* Records that an undo is on the disk: keys that nothing else has changed since the undo began have
 * the file's values. */
static void undone(struct kernel *k, const unsigned made[KEYS])
{
    unsigned token[KEYS];
    uint32_t judged = 0; /* keys that may have been written since the undo began */
    for (unsigned i = 0; i < k->objects; i++) {
        const struct object *o = &k->object[i];
        const bool may = o->dirty || o->emptied || o->writing || o->moving || is_judged(o);
        judged |= may && o->name >= 0 ? UINT32_C(1) << o->name : 0;
        judged |= may && o->moved && o->old_name >= 0 ? UINT32_C(1) << o->old_name : 0;
    }
    disk_keys(k, token);
    for (unsigned i = 0; i < KEYS; i++)
        if (!(judged & UINT32_C(1) << i) && oracle_alone(of(k), made[i]) &&
            of(k)->a[made[i]].mask & BIT(token[i])) {
            of(k)->a[made[i]].mask = BIT(token[i]);
            oracle_durable(of(k), made[i]);
        }
}

/* Undoes an edit: each key may revert to any of its earlier values. */
static void step_undo(struct program *p)
{
    struct kernel *k = p->k;
    unsigned made[KEYS];
    if (!k->w->story.history)
        return;
    for (unsigned i = 0; i < KEYS; i++) {
        made[i] = oracle_begin_undo(of(k), i);
        k->back[i] = true;
        k->removed[i] = false;
    }
    struct live_wait *w = kernel_begin(p);
    int r = kernel_end(p, tree_begin_undo(k->t, 0, w));
    for (unsigned i = 0; i < KEYS; i++)
        oracle_end(of(k), made[i], r < 0 ? kernel_failed(k, r) : PERHAPS);
    if (r == 0 && !k->w->disk.hits && !k->rough)
        undone(k, made);
    /* a rename may have judged text that no close has judged */
    for (unsigned i = 0; i < k->objects; i++)
        k->object[i].doubt |= k->object[i].moved || k->object[i].moving;
    /* EIO: the history was not written in time. */
    kernel_expect(p, "undo", r,
                  r == -EIO || r == -EBUSY || r == -ENOENT || r == -ENODATA || r == -ESTALE);
}

/* Truncates a view with truncate(2). This also truncates and judges what other programs have
 * written to it. */
static void truncate_tensor(struct program *p, const struct step *s)
{
    struct kernel *k = p->k;
    struct tree_entry e;
    lock_take(&k->dir);
    int r = find(p, s->name, false, &e);
    struct object *o = r == 0 ? object_of(k, &e, s->name) : NULL;
    if (o)
        o->handles++;
    lock_drop(&k->dir);
    if (!o)
        return;
    lock_take(&o->lock);
    cut_begins(p, s->name);
    tensors_written(k, o->name, 0);
    struct made made = assign(k, o, o->writers ? o->content | o->seen : 0);
    o->judged++;
    struct live_wait *w = kernel_begin(p);
    r = kernel_end(p, truncate_node(k->t, o->node, 0, w));
    assigned(k, o, &made, PERHAPS);
    o->judged++;
    cut_ends(p);
    o->handles--;
    lock_drop(&o->lock);
    kernel_expect(p, "truncate of a view", r,
                  r == -ESTALE || r == -ENOENT || r == -EINVAL || r == -EBUSY ||
                      (r == -EFBIG && as_bytes(k, o)));
}

static void step_trunc(struct program *p, const struct step *s)
{
    struct kernel *k = p->k;
    struct object *o;
    if (is_tensor(s->name)) {
        truncate_tensor(p, s);
        return;
    }
    lock_take(&k->dir);
    int r = look_up(p, s->name, &o);
    if (r == 0)
        o->handles++;
    lock_drop(&k->dir);
    if (r < 0)
        return;
    lock_take(&o->lock);
    o->changes++;
    struct made made = assign(k, o, BIT(TOKEN_EMPTY)); /* an undo may bring back the key */
    may_be(k, o, BIT(TOKEN_EMPTY));
    struct live_wait *w = kernel_begin(p);
    r = kernel_end(p, truncate_node(k->t, o->node, 0, w));
    assigned(k, o, &made, r < 0 ? kernel_failed(k, r) : PERHAPS);
    o->changes++;
    o->content = o->writers && r < 0 ? o->content | BIT(TOKEN_EMPTY) : BIT(TOKEN_EMPTY);
    if (r == 0) {
        o->emptied = o->writers;
        o->dirty = false;
    }
    o->handles--;
    lock_drop(&o->lock);
    kernel_expect(p, "truncate", r, r == -ESTALE || r == -ENOENT || r == -EINVAL);
}

/* Changes the type of a key's value, but not its text. */
static void step_retype(struct program *p, const struct step *s)
{
    static const char *const types[] = {"string", "u32", "u64"};
    const char *type = types[s->n % 3];
    struct kernel *k = p->k;
    struct object *o;
    if (s->name >= KEYS)
        return;
    uint64_t since = oracle_time(of(k));
    lock_take(&k->dir);
    int r = look_up(p, s->name, &o);
    if (r == 0)
        o->handles++;
    lock_drop(&k->dir);
    if (r < 0)
        return;
    lock_take(&o->lock);
    o->changes++;
    struct made made =
        assign(k, o, oracle_may(of(k), s->name, since, UINT64_MAX, false) & ~BIT(TOKEN_ABSENT));
    struct live_wait *w = kernel_begin(p);
    r = kernel_end(p, tree_setxattr(k->t, o->node, "user.gguf.type", type, strlen(type), w));
    const uint64_t may = oracle_may(of(k), s->name, since, UINT64_MAX, false);
    for (unsigned i = 0; i < MADE; i++)
        if (made.of[i] >= 0)
            oracle_widen(of(k), (unsigned)made.of[i], may & ~BIT(TOKEN_ABSENT));
    assigned(k, o, &made, r < 0 ? kernel_failed(k, r) : PERHAPS);
    o->changes++;
    o->handles--;
    lock_drop(&o->lock);
    kernel_expect(
        p, "retype", r,
        r == -ENOENT || r == -ESTALE ||
            (r == -EINVAL && may & (BIT(TOKEN_ABSENT) | BIT(TOKEN_EMPTY) | BIT(TOKEN_OTHER))));
    if (r == 0 && kernel_durable_close(k))
        kernel_look_disk(k, "after retype");
}

/* ---- looks ---- */

/* Returns the values of drafts, which files with this name may also show. */
static uint64_t drafts(const struct kernel *k, int name)
{
    uint64_t may = 0;
    for (unsigned i = 0; i < k->objects; i++) {
        const struct object *o = &k->object[i];
        if (o->name == name || (o->moving && o->old_name == name) || o->moved)
            may |= o->seen;
    }
    return may;
}

/* Returns whether a file with this name is open: if so, it is listed even without a value. */
static bool is_open(const struct kernel *k, int name)
{
    bool is = k->creating[name];
    for (unsigned i = 0; i < k->objects; i++)
        is |= (k->object[i].name == name || k->object[i].moved) && k->object[i].handles;
    return is;
}

static void wrong(const struct kernel *k, const char *when, int name, unsigned token, uint64_t may)
{
    char told[900];
    oracle_tell(of(k), (unsigned)name, told, sizeof(told));
    sched_fail("%s: %s is token %u, may be %llx:%s", when, names[name], token,
               (unsigned long long)may, told);
}

static void step_read(struct program *p, const struct step *s)
{
    struct kernel *k = p->k;
    static char room[ACTORS][FLOATS * 4 + 64];
    char *text = room[p->number];
    struct step open = *s;
    uint64_t since = oracle_time(of(k)), draft = drafts(k, s->name);
    open.flags = 0;
    open.slot = SLOTS - 1;
    if (p->slot[open.slot])
        return;
    step_open(p, &open);
    struct handle *h = p->slot[open.slot];
    if (!h)
        return;
    (void)kernel_begin(p);
    ssize_t n = read_at(h->f, 0, sizeof(room[0]), text);
    (void)kernel_end(p, 0);
    kernel_expect(p, "read", (int)n, false);
    if (n >= 0 && is_key(s->name)) {
        unsigned token = h->floats ? tensors_token(0, (const uint8_t *)text, (size_t)n)
                                   : token_of(text, (size_t)n);
        draft |= drafts(k, s->name) | h->o->ever | h->o->content;
        uint64_t may = oracle_may(of(k), s->name, since, UINT64_MAX, false) | draft;
        sched_note("%c reads %s: token %u", "ABCDZ"[p->number], names[s->name], token);
        /* A file renamed in the meantime shows the value of its new name. */
        bool same = h->o->name == s->name && !h->o->moving;
        /* While a tensor is changing, a read may return some old values. */
        bool mixed =
            h->floats && ((token == TOKEN_OTHER &&
                           (draft || as_bytes(k, h->o) || oracle_changed(of(k), s->name, since))) ||
                          k->made[s->name].may);
        if (!(may & BIT(token)) && same && !mixed && !k->rough)
            wrong(k, "read", s->name, token, may);
        may = oracle_ever(of(k), s->name) |
              /* a file removed in the meantime may show any value, but is never empty */
              draft;
        if (h->o->name < 0 && token == TOKEN_EMPTY && !(may & BIT(token)) && !h->floats &&
            !k->rough)
            wrong(k, "read of what is removed", s->name, token, may);
    }
    close_slot(p, open.slot);
}

static void step_list(struct program *p)
{
    struct kernel *k = p->k;
    struct tree_dir *d;
    char name[TREE_NAME_MAX + 1];
    uint64_t since = oracle_time(of(k)), cookie = 0, there = 0, open = 0;
    for (unsigned i = 0; i < KEYS; i++)
        open |= is_open(k, (int)i) ? BIT(i) : 0;
    (void)kernel_begin(p);
    int r = kernel_end(p, tree_opendir(k->t, METADATA, &d));
    kernel_expect(p, "opendir", r, false);
    if (r < 0)
        return;
    (void)kernel_begin(p);
    struct tree_entry e;
    while ((r = tree_readdir(k->t, d, &cookie, false, name, &e)) > 0)
        for (unsigned i = 0; i < KEYS; i++)
            if (strcmp(name, names[i]) == 0) {
                if (there & BIT(i))
                    sched_fail("%s is listed twice", name);
                there |= BIT(i);
            }
    (void)kernel_end(p, 0);
    tree_closedir(d);
    kernel_expect(p, "readdir", r, false);
    for (unsigned i = 0; i < KEYS && r == 0 && !k->rough; i++) {
        uint64_t may = oracle_may(of(k), i, since, UINT64_MAX, false);
        bool is = there & BIT(i);
        if (is ? !(may & ~BIT(TOKEN_ABSENT)) && !(open & BIT(i)) && !is_open(k, (int)i) &&
                     k->created[i] < since
               : !(may & BIT(TOKEN_ABSENT)))
            wrong(k, "list", (int)i, is ? TOKEN_OTHER : TOKEN_ABSENT, may);
    }
}

/* Reads a view of the whole model, which must have the size that its lookup returned. */
static void step_model(struct program *p, const char *view)
{
    struct kernel *k = p->k;
    struct tree_entry e;
    struct tree_file *f;
    size_t room = 1 << 17;
    char *bytes = __real_malloc(room);
    uint64_t since = oracle_time(of(k));
    (void)kernel_begin(p);
    int r = kernel_end(p, tree_lookup(k->t, INO_ROOT, view, &e));
    kernel_expect(p, view, r, false);
    if (r == 0) {
        (void)kernel_begin(p);
        r = kernel_end(p, tree_open_file(k->t, e.node, O_RDONLY, &f));
        kernel_expect(p, "its open", r, r == -ESTALE);
        if (r == 0) {
            (void)kernel_begin(p);
            ssize_t n = read_at(f, 0, room - 1, bytes);
            (void)kernel_end(p, 0);
            kernel_expect(p, "its read", (int)n, false);
            if (n >= 0 && n != e.attr.st_size)
                sched_fail("%s has %zd bytes, its size is %lld", view, n,
                           (long long)e.attr.st_size);
            bytes[n > 0 ? n : 0] = '\0';
            if (n >= 0 && !k->rough && view[1] == 'o')
                check_model(k->w, (const uint8_t *)bytes, (size_t)n, since, false, view);
            else if (n >= 0 && !k->rough)
                check_json(k->w, bytes, since);
            (void)tree_release(f);
        }
        tree_forget(k->t, e.node, 1);
    }
    __real_free(bytes);
}

static void disk_keys(const struct kernel *k, unsigned token[KEYS])
{
    char path[128];
    size_t n = 0;
    run_path(k->w, path);
    uint8_t *bytes = disk_read(path, &n);
    model_keys(bytes, n, token);
    __real_free(bytes);
}

void kernel_look_disk(struct kernel *k, const char *when)
{
    char path[128];
    size_t n = 0;
    run_journal(k->w, path);
    if (k->rough || access(path, F_OK) == 0) /* the model is being written in place */
        return;
    run_path(k->w, path);
    uint8_t *bytes = disk_read(path, &n);
    if (!bytes)
        sched_fail("%s: there is no model", when);
    check_model(k->w, bytes, n, oracle_time(of(k)), true, when);
    __real_free(bytes);
}

void kernel_init(struct kernel *k, struct world *w, struct tree *t)
{
    memset(k, 0, sizeof(*k));
    k->w = w;
    k->t = t;
    lock_init(&k->lock);
    lock_init(&k->dir);
    cond_init(&k->more);
    for (unsigned i = 0; i < ACTORS; i++)
        k->program[i] = (struct program){.k = k, .number = i};
}

void kernel_step(struct program *p, const struct step *s)
{
    if (!p->k->w->story.tensors && (is_tensor(s->name) || is_tensor(s->to)))
        return;
    switch ((enum word)s->word) {
    case W_OPEN:
        step_open(p, s);
        break;
    case W_WRITE:
    case W_HALF:
        step_write(p, s);
        break;
    case W_CLOSE:
        close_slot(p, s->slot);
        break;
    case W_FORK:
        if (p->slot[s->slot])
            p->slot[s->slot]->owners++;
        break;
    case W_FSYNC:
        step_fsync(p, p->slot[s->slot]);
        break;
    case W_SPOIL:
    case W_CUT:
        (s->word == W_SPOIL ? step_spoil : step_cut)(p, s);
        break;
    case W_PUT:
        step_put(p, *s);
        break;
    case W_MV:
        step_mv(p, s);
        break;
    case W_NOD:
    case W_RM:
        (s->word == W_NOD ? step_nod : step_rm)(p, s);
        break;
    case W_SYNC:
        step_sync(p);
        break;
    case W_TRUNC:
        step_trunc(p, s);
        break;
    case W_READ:
        step_read(p, s);
        break;
    case W_LIST:
        step_list(p);
        if (p->k->w->story.tensors)
            tensors_list(p);
        break;
    case W_MODEL:
        step_model(p, "model.gguf");
        break;
    case W_JSON:
        step_model(p, "metadata.json");
        break;
    case W_RETYPE:
        step_retype(p, s);
        break;
    case W_UNDO:
        step_undo(p);
        break;
    case W_STORE:
    case W_HALVES:
        step_store(p, s);
        break;
    case W_TYPE:
    case W_SHAPE:
    case W_ADD:
    case W_SWAP:
    case W_RMR:
    case W_NPY:
        if (p->k->w->story.tensors && is_tensor(s->name))
            tensors_step(p, s);
        break;
    case W_PASS:
        sched_pass(s->n);
        break;
    default:
        break;
    }
}

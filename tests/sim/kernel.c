/* SPDX-License-Identifier: MIT */
/* The kernel and the steps of programs: see kernel.h. */
#include "kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hooks.h"
#include "tensors.h"
#include "tree/attr.h"
#include "tree/files.h"
#include "tree_image.h"

#define METADATA ino_row(0)

static struct oracle *of(const struct kernel *k)
{
    return &k->w->oracle;
}

/* ---- requests ---- */

static void answered(struct live_wait *w, int result)
{
    struct program *p = (struct program *)w;
    lock_take(&p->k->lock);
    if (!p->busy || p->answered)
        sched_fail("a request was answered twice");
    p->answered = true;
    p->result = result;
    memset(w, 0xA5, sizeof(*w)); /* must not be used after the answer */
    cond_broadcast(&p->k->more);
    lock_drop(&p->k->lock);
}

static bool is_stopped(struct live_wait *w)
{
    return ((struct program *)w)->stop;
}

/* Begins the program's next call, which takes p->wait. */
static void begin(struct program *p, const struct op *op)
{
    struct kernel *k = p->k;
    const bool alone = op && op->kind == OP_UNDO;
    sched_point("call", p->number);
    k->w->out.calls++;
    lock_take(&k->lock);
    while (k->alone)
        (void)lock_wait(&k->lock, &k->more, NULL);
    k->alone = p->alone = alone;
    while (alone && k->busy)
        (void)lock_wait(&k->lock, &k->more, NULL);
    p->wait = (struct live_wait){.done = answered, .request = p, .stopped = is_stopped};
    p->busy = true;
    p->answered = p->stop = false;
    k->busy++;
    p->keys = op;
    if (op)
        oracle_call(of(k), p->number, op);
    if (op && p->signals)
        oracle_signal(of(k), p->number);
    lock_drop(&k->lock);
}

/* Waits for the answer to the call. */
static int wait_answer(struct program *p, int r)
{
    lock_take(&p->k->lock);
    if (r == LIVE_PARKED && p->keys)
        oracle_parked(of(p->k), p->number);
    if (r == LIVE_PARKED)
        while (!p->answered)
            (void)lock_wait(&p->k->lock, &p->k->more, NULL);
    else if (p->answered)
        sched_fail("a request was answered that does not wait");
    r = r == LIVE_PARKED ? p->result : r;
    if (r == -EINTR && !p->signalled)
        sched_fail("a call is interrupted without a signal");
    sched_note("%c: %d", "ABCDZ-"[p->number], r);
    lock_drop(&p->k->lock);
    return r;
}

static void end(struct program *p)
{
    struct kernel *k = p->k;
    lock_take(&k->lock);
    p->busy = false;
    k->busy--;
    k->alone &= !p->alone;
    cond_broadcast(&k->more);
    lock_drop(&k->lock);
}

void kernel_begin(struct program *p)
{
    begin(p, NULL);
}

int kernel_end(struct program *p, int r)
{
    r = wait_answer(p, r);
    end(p);
    return r;
}

static int answer(struct program *p, int r, uint64_t node)
{
    r = wait_answer(p, r);
    oracle_answer(of(p->k), p->number, r, node);
    end(p);
    return r;
}

#define CALL(p, op, call) (begin(p, op), answer(p, (call), 0))

void kernel_signal(struct kernel *k, unsigned program, bool notify)
{
    struct program *p = &k->program[program];
    lock_take(&k->lock);
    const bool busy = p->busy;
    if (busy)
        p->stop = p->signalled = true;
    if (busy && p->keys)
        oracle_signal(of(k), program);
    p->signals += busy && notify;
    lock_drop(&k->lock);
    if (!busy || !notify)
        return;
    tree_interrupt(k->t, p);
    lock_take(&k->lock);
    p->signals--;
    lock_drop(&k->lock);
}

/* ---- nodes ---- */

struct object *kernel_object(struct kernel *k, uint64_t node)
{
    struct object *o = NULL;
    for (unsigned i = 0; i < k->objects; i++)
        if (k->object[i].node == node)
            o = &k->object[i];
    if (!o) {
        if (k->objects == OBJECTS)
            sched_fail("%d nodes were given", OBJECTS);
        o = &k->object[k->objects++];
        *o = (struct object){.node = node};
        lock_init(&o->lock);
    }
    o->lookups++;
    return o;
}

void kernel_later(struct kernel *k, struct handle *h, uint64_t node, uint64_t n)
{
    lock_take(&k->lock);
    if (k->n_late - k->first_late == LATE)
        sched_fail("too much is to be released");
    k->late[k->n_late % LATE].h = h;
    k->late[k->n_late % LATE].node = node;
    k->late[k->n_late++ % LATE].n = n;
    cond_broadcast(&k->more);
    lock_drop(&k->lock);
}

static void forget_later(struct kernel *k, struct object *o)
{
    const uint64_t n = o->lookups;
    if (o->handles || !n || sched_lot(2))
        return;
    o->lookups = 0;
    kernel_later(k, NULL, o->node, n);
}

static void release(struct kernel *k, struct handle *h)
{
    tree_release(h->f);
    if (h->tensor != NOT_OF_TENSOR)
        tensors_released(k, h);
    h->o->handles--;
    k->used[h->number] = false;
    __real_free(h);
}

static void end_late(struct kernel *k, unsigned i)
{
    struct program *p = &k->program[LATE_CALLER];
    struct handle *h = k->late[i].h;
    const uint64_t node = k->late[i].node, n = k->late[i].n;
    lock_drop(&k->lock);
    if (h && h->tensor != NOT_OF_TENSOR) {
        begin(p, NULL);
        release(k, h);
        (void)kernel_end(p, 0);
    } else if (h) {
        const struct op op = {.kind = OP_RELEASE, .handle = h->number};
        begin(p, &op);
        tree_release(h->f);
        (void)answer(p, 0, 0);
        h->o->handles--;
        k->used[h->number] = false;
        __real_free(h);
    }
    if (n)
        tree_forget(k->t, node, n);
    lock_take(&k->lock);
}

void *kernel_late(void *arg)
{
    struct kernel *k = arg;
    lock_take(&k->lock);
    while (!k->stop || (k->first_late < k->n_late && !k->gone)) {
        if (k->first_late == k->n_late)
            (void)lock_wait(&k->lock, &k->more, NULL);
        else
            end_late(k, k->first_late++ % LATE);
    }
    lock_drop(&k->lock);
    return NULL;
}

void kernel_drop(struct kernel *k)
{
    for (; k->first_late < k->n_late; k->first_late++)
        if (k->late[k->first_late % LATE].h)
            release(k, k->late[k->first_late % LATE].h);
    for (unsigned i = 0; i < ACTORS * SLOTS; i++) {
        struct handle **h = &k->program[i / SLOTS].slot[i % SLOTS];
        if (*h)
            release(k, *h);
        *h = NULL;
    }
}

/* ---- open ---- */

static int look_up(struct program *p, unsigned name, struct object **ret)
{
    const struct op op = {.kind = OP_LOOKUP, .name = (int)name};
    struct tree_entry e = {0};
    begin(p, &op);
    int r = tree_lookup(p->k->t, METADATA, names[name], &e);
    r = answer(p, r, e.node);
    *ret = r == 0 ? kernel_object(p->k, e.node) : NULL;
    return r;
}

struct handle *kernel_handle(struct kernel *k, bool writes)
{
    unsigned n = 0;
    while (n < HANDLES && k->used[n])
        n++;
    if (n == HANDLES) /* the late thread is far behind */
        return NULL;
    struct handle *h = __real_calloc(1, sizeof(*h));
    k->used[n] = true;
    h->number = n;
    h->writes = writes;
    h->tensor = NOT_OF_TENSOR;
    return h;
}

void kernel_unopened(struct kernel *k, struct handle *h)
{
    if (h->tensor != NOT_OF_TENSOR)
        tensors_released(k, h);
    if (h->o) {
        h->o->handles--;
        forget_later(k, h->o);
    }
    k->used[h->number] = false;
    __real_free(h);
}

static int open_once(struct program *p, const struct step *s, struct handle *h)
{
    struct kernel *k = p->k;
    struct tree_entry e = {0};
    struct op op = {.kind = OP_OPEN,
                    .name = (int)s->name,
                    .handle = h->number,
                    .flags = s->flags & (h->writes ? ~0u : ~(unsigned)F_TRUNC)};
    const int flags = (h->writes ? O_RDWR : O_RDONLY) | (op.flags & F_TRUNC ? O_TRUNC : 0) |
                      (s->flags & F_EXCL ? O_EXCL : 0);
    lock_take(&k->dir);
    int r = look_up(p, s->name, &h->o);
    if (r == 0 && s->flags & F_CREAT && s->flags & F_EXCL)
        r = -EEXIST;
    if (r == -ENOENT && s->flags & F_CREAT && h->writes) {
        op.kind = OP_CREATE;
        begin(p, &op);
        r = tree_create(k->t, METADATA, names[s->name], flags | O_CREAT, &e, &h->f);
        r = answer(p, r, e.node);
        h->o = r == 0 ? kernel_object(k, e.node) : NULL;
    }
    if (h->o) {
        h->o->handles++; /* keeps the node from being forgotten in the meantime */
        h->o->written |= h->writes;
    }
    lock_drop(&k->dir);
    if (r < 0 || h->f)
        return r;
    lock_take(&h->o->lock);
    op.node = h->o->node;
    r = CALL(p, &op, tree_open_file(k->t, h->o->node, flags & ~O_EXCL, &h->f));
    lock_drop(&h->o->lock);
    return r;
}

static void step_open(struct program *p, const struct step *s)
{
    int r = -ESTALE;
    for (unsigned i = 0; i < 2 && r == -ESTALE && !p->slot[s->slot]; i++) {
        struct handle *h = kernel_handle(p->k, s->flags & F_WRITE);
        if (!h)
            return;
        r = open_once(p, s, h);
        if (r == 0) {
            h->owners = 1;
            p->slot[s->slot] = h;
            continue;
        }
        kernel_unopened(p->k, h);
    }
}

/* ---- write ---- */

static void write_text(struct program *p, unsigned slot, const char *text, size_t n)
{
    struct handle *h = p->slot[slot];
    struct op op = {.kind = OP_WRITE, .text = {.n = (uint8_t)n}};
    if (!h || !h->writes)
        return;
    op.handle = h->number;
    memcpy(op.text.b, text, n);
    lock_take(&h->o->lock);
    (void)CALL(p, &op, tree_write(h->f, 0, text, n, NULL));
    lock_drop(&h->o->lock);
}

static void step_write(struct program *p, const struct step *s)
{
    char text[16];
    const int n = snprintf(text, sizeof(text), "%u\n", 1000 + s->n);
    if (s->word == W_SPOIL)
        write_text(p, s->slot, "\xff\n", 2);
    else
        write_text(p, s->slot, text, s->word == W_HALF ? 2 : (size_t)n);
}

static void step_cut(struct program *p, const struct step *s)
{
    struct handle *h = p->slot[s->slot];
    if (!h || !h->writes)
        return;
    const struct op op = {.kind = OP_CUT, .handle = h->number};
    lock_take(&h->o->lock);
    (void)CALL(p, &op, tree_truncate(h->f, 0, &p->wait));
    lock_drop(&h->o->lock);
}

/* ---- flush and fsync ---- */

static bool durable_close(const struct kernel *k)
{
    return k->w->story.commit != LIVE_COMMIT_SYNC;
}

static void flush_or_sync(struct program *p, struct handle *h, bool sync)
{
    const struct op op = {.kind = sync ? OP_FSYNC : OP_FLUSH, .handle = h->number};
    const uint32_t since = tensors_now(p->k->w);
    const int r = CALL(p, &op, sync ? tree_fsync(h->f, &p->wait) : tree_flush(h->f, &p->wait));
    if (r == 0 && sync)
        tensors_synced(p->k->w, since, false);
    if (r == 0 && (sync || durable_close(p->k)))
        kernel_look_disk(p->k, sync ? "after fsync" : "after close");
}

static void close_slot(struct program *p, unsigned slot)
{
    struct handle *h = p->slot[slot];
    if (!h)
        return;
    flush_or_sync(p, h, false);
    if (--h->owners)
        return;
    p->slot[slot] = NULL;
    kernel_later(p->k, h, 0, 0);
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
            kernel_step(p, &(struct step){.word = W_CLOSE, .slot = i});
}

/* ---- names ---- */

static void step_rm(struct program *p, const struct step *s)
{
    struct kernel *k = p->k;
    struct object *o;
    const struct op op = {.kind = OP_UNLINK, .name = (int)s->name};
    lock_take(&k->dir);
    if (look_up(p, s->name, &o) == 0) {
        (void)CALL(p, &op, tree_unlink(k->t, METADATA, names[s->name]));
        forget_later(k, o);
    }
    lock_drop(&k->dir);
}

static void step_mv(struct program *p, const struct step *s)
{
    struct kernel *k = p->k;
    struct object *from, *to = NULL;
    const struct op op = {.kind = OP_RENAME, .name = (int)s->name, .to = (int)s->to};
    lock_take(&k->dir);
    int r = s->name == s->to ? -EINVAL : look_up(p, s->name, &from);
    if (r == 0) {
        (void)look_up(p, s->to, &to);
        r = CALL(p, &op,
                 tree_rename(k->t, METADATA, names[s->name], METADATA, names[s->to], 0, &p->wait));
        forget_later(k, from);
        if (to)
            forget_later(k, to);
        if (r == 0 && s->to < KEYS && durable_close(k))
            kernel_look_disk(k, "after rename");
    }
    lock_drop(&k->dir);
}

static void step_sync(struct program *p)
{
    struct kernel *k = p->k;
    const struct op op = {.kind = OP_SYNC};
    lock_take(&k->dir);
    const uint32_t since = tensors_now(k->w);
    const int r = CALL(p, &op, tree_fsyncdir(k->t, &p->wait));
    lock_drop(&k->dir);
    if (r == 0)
        tensors_synced(k->w, since, true);
    if (r == 0)
        kernel_look_disk(k, "after sync");
}

static bool disk_keys(struct kernel *k, value_t ret[KEYS])
{
    char path[128];
    size_t n = 0;
    run_journal(k->w, path);
    if (k->rough || access(path, F_OK) == 0) /* the model is being written in place */
        return false;
    run_path(k->w, path);
    uint8_t *bytes = disk_read(path, &n);
    check_model(k->w, bytes, n, true, 0, ret);
    __real_free(bytes);
    return true;
}

/* Restores the last state of the history. */
static void step_undo(struct program *p)
{
    struct kernel *k = p->k;
    value_t now[KEYS];
    const struct op op = {.kind = OP_UNDO};
    if (!k->w->story.history)
        return;
    begin(p, &op);
    const int r = wait_answer(p, tree_setxattr(k->t, METADATA, "user.gguf.undo", "0", 1, &p->wait));
    oracle_answer(of(k), p->number, r, 0);
    if (r == 0 && of(k)->fails)
        tensors_spared(k->w);
    bool known = r == 0 && disk_keys(k, now);
    for (unsigned i = 0; r == 0 && !known && i < 1000; i++) {
        sched_pass(10); /* a timer has something else written in place */
        known = disk_keys(k, now);
    }
    if (known)
        oracle_undone(of(k), now);
    else if (r == 0 || *of(k)->faults)
        of(k)->off = true; /* an undo may have been made, and finished later */
    end(p);
}

/* truncate(2), or setfattr of the type. */
static void step_node(struct program *p, const struct step *s)
{
    static const char *const types[] = {"string", "u32", "u64"};
    static const uint8_t numbers[] = {TYPE_STRING, TYPE_U32, TYPE_U64};
    const char *type = types[s->n % 3];
    struct kernel *k = p->k;
    struct object *o;
    struct op op = {.kind = OP_TRUNCATE};
    lock_take(&k->dir);
    int r = look_up(p, s->name, &o);
    if (r == 0)
        o->handles++;
    lock_drop(&k->dir);
    if (r < 0)
        return;
    lock_take(&o->lock);
    op.node = o->node;
    o->written = true;
    if (s->word == W_RETYPE) {
        op.kind = OP_RETYPE;
        op.type = numbers[s->n % 3];
    }
    r = CALL(p, &op,
             s->word == W_RETYPE
                 ? tree_setxattr(k->t, o->node, "user.gguf.type", type, strlen(type), &p->wait)
                 : tree_truncate_unopened(k->t, o->node, 0, &p->wait));
    o->handles--;
    lock_drop(&o->lock);
    if (r == 0 && durable_close(k))
        kernel_look_disk(k, "after a truncation or a new type");
}

/* ---- looks ---- */

ssize_t kernel_read(struct tree_file *f, size_t room, void *dst)
{
    size_t n = 0;
    for (size_t got = 1; got && n < room; n += got) {
        struct reply reply = {.scratch = (uint8_t *)dst + n};
        int r = tree_read(f, n, room - n, &reply);
        got = reply.len;
        if (r == 0 && got && reply.bytes != reply.scratch)
            memcpy((uint8_t *)dst + n, reply.bytes, got);
        tree_reply_done(&reply);
        if (r < 0)
            return r;
    }
    return (ssize_t)n;
}

static void step_read(struct program *p, const struct step *s)
{
    struct kernel *k = p->k;
    struct object *o;
    struct tree_file *f;
    char text[64];
    struct op op = {.kind = OP_READ};
    lock_take(&k->dir);
    int r = look_up(p, s->name, &o);
    if (r == 0)
        o->handles++;
    lock_drop(&k->dir);
    if (r < 0)
        return;
    op.node = o->node;
    begin(p, &op);
    r = tree_open_file(k->t, o->node, O_RDONLY, &f);
    if (r == 0) {
        r = (int)kernel_read(f, sizeof(text), text);
        tree_release(f);
    }
    if (r == 0 && !o->written)
        sched_fail("%s is read as an empty text, which no key has", names[s->name]);
    oracle_answer_read(of(k), p->number, text, r);
    end(p);
    o->handles--;
    forget_later(k, o);
}

int kernel_list(struct kernel *k, uint64_t folder, unsigned times[NAMES])
{
    struct tree_dir *d = NULL;
    struct tree_entry e;
    char name[TREE_NAME_MAX + 1];
    uint64_t cookie = 0;
    int r = tree_opendir(k->t, folder, &d);
    memset(times, 0, NAMES * sizeof(*times));
    while (r == 0 && (r = tree_readdir(k->t, d, &cookie, false, name, &e)) > 0) {
        for (unsigned i = 0; i < NAMES; i++)
            times[i] += strcmp(name, names[i]) == 0;
        r = 0;
    }
    if (d)
        tree_closedir(d);
    return r;
}

static void step_list(struct program *p)
{
    struct kernel *k = p->k;
    unsigned times[NAMES], there = 0;
    const struct op op = {.kind = OP_LIST};
    begin(p, &op);
    const int r = kernel_list(k, METADATA, times);
    for (unsigned i = 0; i < KEYS; i++) {
        if (times[i] > 1)
            sched_fail("%s is listed twice", names[i]);
        there |= times[i] << i;
    }
    if (r < 0 && !*of(k)->faults)
        sched_fail("a listing is answered with %s", strerror(-r));
    if (r < 0)
        oracle_no_answer(of(k), p->number);
    else
        oracle_answer_list(of(k), p->number, there);
    end(p);
}

/* Reads a view of the whole model, which must have the size that its lookup returned. */
static void step_view(struct program *p, bool json)
{
    enum { ROOM = 1 << 17 };
    struct kernel *k = p->k;
    struct tree_entry e;
    struct tree_file *f;
    value_t seen[KEYS];
    const struct op op = {.kind = OP_VIEW};
    char *bytes = __real_malloc(ROOM);
    const uint32_t since = tensors_now(k->w);
    begin(p, &op);
    int r = tree_lookup(k->t, INO_ROOT, json ? "metadata.json" : "model.gguf", &e);
    if (r == 0)
        r = tree_open_file(k->t, e.node, O_RDONLY, &f);
    if (r == 0) {
        const ssize_t n = kernel_read(f, ROOM - 1, bytes);
        if (n >= 0 && n != e.attr.st_size)
            sched_fail("a view has %zd bytes, its size is %lld", n, (long long)e.attr.st_size);
        bytes[n > 0 ? n : 0] = '\0';
        tree_release(f);
        r = n < 0 ? (int)n : 0;
        if (r == 0 && !k->rough) {
            if (json)
                check_json(bytes, seen);
            else
                check_model(k->w, (const uint8_t *)bytes, (size_t)n, false, since, seen);
            oracle_answer_view(of(k), p->number, seen);
        }
        tree_forget(k->t, e.node, 1);
    }
    if (r < 0 && !k->rough && !*of(k)->faults && r != -ESTALE)
        sched_fail("a view is answered with %s", strerror(-r));
    if (r < 0 || k->rough)
        oracle_no_answer(of(k), p->number);
    end(p);
    __real_free(bytes);
}

void kernel_look_disk(struct kernel *k, const char *when)
{
    value_t now[KEYS];
    if (disk_keys(k, now))
        oracle_look(of(k), when, now);
}

void kernel_init(struct kernel *k, struct world *w, struct tree *t)
{
    memset(k, 0, sizeof(*k));
    k->w = w;
    k->t = t;
    lock_init(&k->lock);
    lock_init(&k->dir);
    lock_init(&k->tensors);
    k->more = (struct cond)COND_INIT;
    for (unsigned i = 0; i < CALLERS; i++)
        k->program[i] = (struct program){.k = k, .number = i};
}

void kernel_step(struct program *p, const struct step *s)
{
    const struct handle *h = p->slot[s->slot];
    const bool by_slot = s->word >= W_WRITE && s->word <= W_CUT;
    if (by_slot ? h && h->tensor != NOT_OF_TENSOR : is_tensor(s->name) || is_tensor(s->to)) {
        tensors_step(p, s);
        return;
    }
    switch (s->word) {
    case W_OPEN:
        step_open(p, s);
        break;
    case W_WRITE:
    case W_HALF:
    case W_SPOIL:
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
        if (p->slot[s->slot])
            flush_or_sync(p, p->slot[s->slot], true);
        break;
    case W_CUT:
        step_cut(p, s);
        break;
    case W_PUT:
        step_put(p, *s);
        break;
    case W_MV:
        step_mv(p, s);
        break;
    case W_RM:
        step_rm(p, s);
        break;
    case W_SYNC:
        step_sync(p);
        break;
    case W_TRUNC:
    case W_RETYPE:
        if (s->name < KEYS)
            step_node(p, s);
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
    case W_JSON:
        step_view(p, s->word == W_JSON);
        break;
    case W_UNDO:
        step_undo(p);
        break;
    case W_PASS:
        sched_pass(s->n);
        break;
    default:
        break;
    }
}

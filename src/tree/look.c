/* SPDX-License-Identifier: MIT */
/* The rights of the model's file, which may change while it is open. See tree.h. */
#include "base/lock.h"
#include "base/when.h"
#include "tree/internal.h"

#define LOOK_EACH 1000 /* milliseconds */

static int file_of(const void *arg, uint32_t file)
{
    const struct view *v = arg;
    return v->store->file[file]->fd;
}

static bool is_due(struct tree *t)
{
    const struct timespec now = when_now();
    const long long ms = now.tv_sec * 1000LL + now.tv_nsec / 1000000;
    long long last = atomic_load(&t->looked);
    return ms - last >= LOOK_EACH && atomic_compare_exchange_strong(&t->looked, &last, ms);
}

static void look(struct tree *t)
{
    struct rights now = RIGHTS_INIT;
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    if (rights_again(&t->rights, file_of, &v, &now) > 0) {
        lock_take(&t->newest.lock);
        const struct rights before = t->rights;
        t->rights = now;
        lock_drop(&t->newest.lock);
        now = before;
    }
    rights_free(&now);
}

uint64_t tree_look(struct tree *t)
{
    if (is_due(t) && !atomic_flag_test_and_set(&t->looks)) {
        look(t);
        atomic_flag_clear(&t->looks);
    }
    LOCKED(&t->newest.lock);
    return t->rights.hash;
}

/* Of one tensor. */
static void tensor_nodes(const struct snapshot *g, uint32_t i, void (*call)(void *, uint64_t),
                         void *arg)
{
    const struct tensor_id id = ids_of(g->ids, i);
    call(arg, ino_tensor(id.number));
    for (uint32_t row = 0; row < files_count(FILES_TENSOR); row++)
        call(arg, ino_tensor_file(id.version, row));
}

void tree_nodes(struct tree *t, void (*call)(void *arg, uint64_t node), void *arg)
{
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    const struct snapshot *g = v.snap;
    struct live *l = atomic_load(&t->live);
    const uint32_t keys = l ? live_given(l).keys : g->gguf->n_kv;
    call(arg, INO_ROOT);
    lock_take(&t->newest.lock);
    const uint32_t state = t->states;
    lock_drop(&t->newest.lock);
    for (uint32_t row = 0; row < files_count(FILES_ROOT); row++) {
        const unsigned flags = files_root[row].flags;
        call(arg, flags & ROW_DIR ? ino_row(row)
                                  : ino_whole(flags & ROW_STATE ? state : g->number, row));
    }
    for (uint32_t i = 0; i < keys; i++)
        call(arg, ino_key(i));
    for (uint32_t i = 0; i < g->gguf->n_tensors; i++)
        tensor_nodes(g, i, call, arg);
}

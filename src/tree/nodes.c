/* SPDX-License-Identifier: MIT */
/* What nodes show: the newest state of the model, or one that the kernel still knows. See tree.h. */
#include "tree/internal.h"

#include <errno.h>

#include "tree/state.h"

/* Of what is held for a node: one for all views of a state of the model, but for those that count
 * states of their own. */
static uint64_t held_key(const struct node *n)
{
    return node_row(n)->flags & ROW_STATE ? ino_whole(n->number, n->row)
                                          : ino_make(INO_WHOLE, n->number, 0);
}

/* The kernel got one more reference to a view of the whole. 0, -ENOMEM. */
static int hold(struct tree *t, const struct node *n, struct gen *g)
{
    struct held *h = held_get(&t->held, held_key(n));
    if (!h)
        return -ENOMEM;
    if (!h->gen)
        h->gen = gen_ref(g);
    h->state = n->state;
    h->lookups++;
    return 0;
}

/* Returns the generation that is not needed for this node any more, or NULL. */
static struct gen *let_go(struct tree *t, const struct node *n, uint64_t times)
{
    struct held *h = held_find(&t->held, held_key(n));
    if (!h || h->lookups > times) {
        if (h)
            h->lookups -= times;
        return NULL;
    }
    struct gen *gen = h->gen;
    held_remove(&t->held, h);
    return gen;
}

static bool is_whole(const struct node *n)
{
    return n->kind == NODE_WHOLE && n->row < files_count(FILES_ROOT);
}

int tree_view_of(struct tree *t, struct node *n, struct view *ret)
{
    int r = 0;
    (void)pthread_mutex_lock(&t->newest.lock);
    struct held *h = is_whole(n) ? held_find(&t->held, held_key(n)) : NULL;
    if (h) {
        *ret = newest_view_as(&t->newest, h->gen);
        n->state = h->state;
    } else if (is_whole(n) &&
               (node_row(n)->flags & ROW_STATE || n->number != t->newest.view.gen->number)) {
        r = -ESTALE;
    } else {
        *ret = newest_view_as(&t->newest, t->newest.view.gen);
    }
    (void)pthread_mutex_unlock(&t->newest.lock);
    return r;
}

int node_number_state(struct tree *t, const struct gen *g, struct node *n)
{
    int r = 0;
    n->state = state_now(t);
    (void)pthread_mutex_lock(&t->newest.lock);
    bool same = t->states && t->state == n->state && t->state_gen == g->number;
    if (!same && t->states == UINT32_MAX)
        r = -EOVERFLOW;
    else if (!same)
        t->states++;
    t->state = n->state;
    t->state_gen = g->number;
    n->number = t->states;
    (void)pthread_mutex_unlock(&t->newest.lock);
    return r;
}

void tree_forget(struct tree *t, uint64_t node, uint64_t n)
{
    struct node at = ino_node(node);
    if (is_whole(&at)) {
        (void)pthread_mutex_lock(&t->newest.lock);
        struct gen *gen = let_go(t, &at, n);
        (void)pthread_mutex_unlock(&t->newest.lock);
        gen_unref(gen);
    }
    if (at.kind == NODE_KEY)
        keys_forget(t, at.number, n);
}

int node_known(struct tree *t, const struct view *v, const struct node *n)
{
    if (n->kind != NODE_WHOLE)
        return 0;
    (void)pthread_mutex_lock(&t->newest.lock);
    int r = hold(t, n, v->gen);
    (void)pthread_mutex_unlock(&t->newest.lock);
    return r;
}

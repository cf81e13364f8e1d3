/* SPDX-License-Identifier: MIT */
/* Stores: see store.h. */
#include "tree/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"

static void store_free(struct store *s)
{
    map_close(&s->map);
    free(s->off);
    if (s->fd >= 0)
        (void)close(s->fd);
    free(s);
}

int store_open(int fd, uint64_t size, const struct gguf *g, struct store **ret, struct err *e)
{
    struct store *s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(e, -ENOMEM, "no memory");
    atomic_init(&s->refs, 1);
    s->fd = -1;
    s->off = malloc(((size_t)g->n_tensors + 1) * sizeof(*s->off));
    int r = s->off ? map_open(&s->map, fd, size) : -ENOMEM;
    if (r < 0) {
        store_free(s);
        return err_set(e, r, "cannot map: %s", strerror(-r));
    }
    for (uint32_t i = 0; i < g->n_tensors; i++)
        s->off[i] = g->tensor[i].off;
    s->fd = fd;
    *ret = s;
    return 0;
}

struct store *store_ref(struct store *s)
{
    atomic_fetch_add(&s->refs, 1);
    return s;
}

void store_unref(struct store *s)
{
    if (s && atomic_fetch_sub(&s->refs, 1) == 1)
        store_free(s);
}

const uint8_t *store_data(const struct store *s, uint32_t i, uint64_t first, uint64_t last)
{
    uint64_t end;
    if (!add_u64(s->off[i], last, &end) || end > s->map.size)
        return NULL;
    return s->map.data + s->off[i] + first;
}

int store_check(const struct store *s, uint32_t i, uint64_t last)
{
    return map_check(&s->map, s->off[i] + last);
}

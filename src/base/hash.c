/* SPDX-License-Identifier: MIT */
/* SipHash-2-4, and a table of links: see hash.h. */
#include "base/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/lock.h"
#include "base/bytes.h"

static inline uint64_t rotl(uint64_t v, int n)
{
    return v << n | v >> (64 - n);
}

static inline void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotl(v[1], 13) ^ v[0];
    v[3] = rotl(v[3], 16) ^ v[2];
    v[0] = rotl(v[0], 32) + v[3];
    v[2] += v[1];
    v[3] = rotl(v[3], 21) ^ v[0];
    v[1] = rotl(v[1], 17) ^ v[2];
    v[2] = rotl(v[2], 32);
}

static inline void sip_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_round(v);
    sip_round(v);
    v[0] ^= word;
}

uint64_t siphash(const uint64_t key[2], const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    uint64_t last = (uint64_t)n << 56;
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d,
                     key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        sip_word(v, get_u64(p + i, false));
    for (; i < n; i++)
        last |= (uint64_t)p[i] << 8 * (i % 8);
    sip_word(v, last);
    v[2] ^= 0xff;
    for (int r = 0; r < 4; r++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static uint64_t process_key[2];

static void make_key(void)
{
    if (getrandom(process_key, sizeof(process_key), GRND_NONBLOCK) == sizeof(process_key))
        return;
    /* Without entropy (early during boot), the clock and the stack's random address still differ
     * each time. */
    struct timespec now = when_now();
    process_key[0] = (uint64_t)now.tv_nsec;
    process_key[1] = (uint64_t)(uintptr_t)&now;
}

uint64_t hash_name(const void *bytes, size_t n)
{
    static struct once once = ONCE_INIT;
    once_run(&once, make_key);
    return siphash(process_key, bytes, n);
}

/* ---- the table ---- */

enum { ROOM_LEAST = 64 };

static int table_grow(struct table *t)
{
    size_t room = t->room ? 2 * t->room : ROOM_LEAST;
    struct link **bucket = calloc(room, sizeof(*bucket));
    if (!bucket)
        return -ENOMEM;
    for (size_t i = 0; i < t->room; i++)
        for (struct link *l = t->bucket[i], *next; l; l = next) {
            next = l->next;
            l->next = bucket[l->hash & (room - 1)];
            bucket[l->hash & (room - 1)] = l;
        }
    free((void *)t->bucket);
    t->bucket = bucket;
    t->room = room;
    return 0;
}

int table_add(struct table *t, struct link *l, uint64_t hash)
{
    if (t->n >= t->room && table_grow(t) < 0 && t->room == 0)
        return -ENOMEM;
    l->hash = hash;
    l->next = t->bucket[hash & (t->room - 1)];
    t->bucket[hash & (t->room - 1)] = l;
    t->n++;
    return 0;
}

void table_remove(struct table *t, const struct link *l)
{
    struct link **at = &t->bucket[l->hash & (t->room - 1)];
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    t->n--;
}

static struct link *same_hash(struct link *l, uint64_t hash)
{
    while (l && l->hash != hash)
        l = l->next;
    return l;
}

struct link *table_first(const struct table *t, uint64_t hash)
{
    return t->room ? same_hash(t->bucket[hash & (t->room - 1)], hash) : NULL;
}

struct link *table_next(const struct link *l)
{
    return same_hash(l->next, l->hash);
}

struct link *table_each(const struct table *t, const struct link *l)
{
    if (l && l->next)
        return l->next;
    for (size_t i = l ? (l->hash & (t->room - 1)) + 1 : 0; i < t->room; i++)
        if (t->bucket[i])
            return t->bucket[i];
    return NULL;
}

void table_free(struct table *t)
{
    free((void *)t->bucket);
    *t = (struct table){0};
}

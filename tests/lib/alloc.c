/* SPDX-License-Identifier: MIT */
/* Makes allocations fail, and counts them: see alloc.h. */
#include "alloc.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

void *__real_malloc(size_t n);
void *__real_aligned_alloc(size_t to, size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_aligned_alloc(size_t to, size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strndup(const char *s, size_t n);
char *__wrap_strdup(const char *s);
void __wrap_free(void *p);

static atomic_uint calls, fail_at; /* `calls` counts since alloc_arm() */
static atomic_bool all_after, failed;
static bool spoils;
static atomic_llong live, peak; /* in bytes since alloc_count(), so live can be negative */

void alloc_arm(unsigned n, bool rest)
{
    atomic_store(&calls, 0);
    atomic_store(&failed, false);
    atomic_store(&all_after, rest);
    atomic_store(&fail_at, n);
}

bool alloc_disarm(void)
{
    atomic_store(&fail_at, 0);
    return atomic_load(&failed);
}

static bool fails(void)
{
    unsigned at = atomic_load(&fail_at), call = at ? atomic_fetch_add(&calls, 1) + 1 : 0;
    bool due = at && (call == at || (call > at && atomic_load(&all_after)));
    if (due)
        atomic_store(&failed, true);
    return due;
}

void alloc_count(void)
{
    atomic_store(&live, 0);
    atomic_store(&peak, 0);
}

size_t alloc_peak(void)
{
    return (size_t)atomic_load(&peak);
}

long long alloc_live(void)
{
    return atomic_load(&live);
}

void alloc_spoil(void)
{
    spoils = true;
}

/* Overwrite the beginning of an allocation. Overwriting all of a large one would take too long. */
static void spoil(void *p, size_t n)
{
    if (spoils && p)
        memset(p, 0xA5, n < 4096 ? n : 4096);
}

static void *add(void *p)
{
    long long n = (long long)malloc_usable_size(p), now = atomic_fetch_add(&live, n) + n;
    long long most = atomic_load(&peak);
    while (now > most && !atomic_compare_exchange_weak(&peak, &most, now))
        ;
    return p;
}

static void sub(size_t n)
{
    atomic_fetch_sub(&live, (long long)n);
}

void *__wrap_malloc(size_t n)
{
    if (fails())
        return NULL;
    void *p = __real_malloc(n);
    spoil(p, n);
    return add(p);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : add(__real_calloc(n, size));
}

void *__wrap_aligned_alloc(size_t to, size_t n)
{
    if (fails())
        return NULL;
    void *p = __real_aligned_alloc(to, n);
    spoil(p, n);
    return add(p);
}

void *__wrap_realloc(void *p, size_t n)
{
    size_t was = malloc_usable_size(p);
    if (fails())
        return NULL;
    void *now = __real_realloc(p, n);
    if (now)
        sub(was);
    return now ? add(now) : NULL;
}

char *__wrap_strndup(const char *s, size_t n)
{
    const size_t len = strnlen(s, n);
    char *p = __wrap_malloc(len + 1);
    if (p) {
        memcpy(p, s, len);
        p[len] = '\0';
    }
    return p;
}

char *__wrap_strdup(const char *s)
{
    return __wrap_strndup(s, SIZE_MAX);
}

void __wrap_free(void *p)
{
    const size_t n = malloc_usable_size(p);
    sub(n);
    spoil(p, n);
    __real_free(p);
}

/* SPDX-License-Identifier: MIT */
/* Allocations that fail: see alloc.h. */
#include "alloc.h"

#include <stdatomic.h>
#include <stddef.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static atomic_uint calls, fail_at;
static atomic_bool all_after, failed;

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

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}

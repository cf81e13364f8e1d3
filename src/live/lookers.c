/* SPDX-License-Identifier: MIT */
/* Programs that look a name up again: see lookers.h. */
#include "live/lookers.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/when.h"
#include "live/tensors.h"

/* Seconds after which a lookup is forgotten that no open has followed. */
#define WITHIN 10

static time_t seconds(void)
{
    struct timespec now = when_now();
    return now.tv_sec;
}

static void take_out(struct looker **at)
{
    struct looker *k = *at;
    *at = k->next;
    free(k);
}

static bool is_of(const struct looker *k, uint32_t tensor, uint32_t row)
{
    return k->tensor == tensor && k->row == row;
}

/* The entry of a program that opens a file: it has one; of programs that are not known, each view. */
static struct looker *entry(struct looker **all, uint64_t program, uint32_t tensor, uint32_t row)
{
    time_t now = seconds();
    struct looker *ret = NULL;
    for (struct looker **at = all; *at;) {
        struct looker *k = *at;
        bool same = k->program == program && (program || is_of(k, tensor, row));
        if (same)
            ret = k;
        if (!same && now - k->since > WITHIN)
            take_out(at);
        else
            at = &k->next;
    }
    return ret;
}

int lookers_add(struct looker **all, uint64_t program, uint32_t tensor, uint32_t row, unsigned kind)
{
    struct looker *k = entry(all, program, tensor, row);
    bool new = !k;
    if (new)
        k = calloc(1, sizeof(*k));
    if (!k)
        return -ENOMEM;
    struct looker *next = new ? *all : k->next;
    unsigned times = program ? 1 : k->times + 1;
    *k = (struct looker){next, program, seconds(), times, tensor, row, kind, 0};
    if (new)
        *all = k;
    return 0;
}

struct looker *lookers_find(struct looker *all, uint64_t program, uint32_t tensor, uint32_t row)
{
    struct looker *k = all;
    while (k && (k->program != program || !is_of(k, tensor, row)))
        k = k->next;
    return k && seconds() - k->since <= WITHIN ? k : NULL;
}

uint32_t lookers_node(const struct looker *all, uint32_t tensor, uint32_t row)
{
    const struct looker *k = all;
    while (k && (!k->node || !is_of(k, tensor, row)))
        k = k->next;
    return k ? k->node : 0;
}

void looker_done(struct looker **all, struct looker *k)
{
    struct looker **at = all;
    if (!k || --k->times)
        return;
    while (*at != k)
        at = &(*at)->next;
    take_out(at);
}

void lookers_free(struct looker **all)
{
    while (*all)
        take_out(all);
}

/* ---- the origin of calls ---- */

static _Thread_local uint64_t program_now;

void live_caller(uint64_t program)
{
    program_now = program;
}

uint64_t caller_program(void)
{
    return program_now;
}

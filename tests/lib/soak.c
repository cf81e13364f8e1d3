/* SPDX-License-Identifier: MIT */
/* Sizes and figures for long runs: see soak.h. */
#include "soak.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIGURES = 8 };

static struct {
    const char *what;
    uint64_t n;
} figure[FIGURES];

uint64_t soak_size(uint64_t usual)
{
    const char *times = getenv("GGUFS_SOAK");
    uint64_t n = times ? strtoull(times, NULL, 10) : 1;
    return usual * (n ? n : 1);
}

int soak_files(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    if (d)
        (void)closedir(d);
    return n;
}

unsigned soak_draw(uint64_t *state, unsigned n)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (unsigned)(*state >> 33) % n;
}

void soak_count(const char *what, uint64_t n)
{
    for (int i = 0; i < FIGURES; i++)
        if (!figure[i].what || strcmp(figure[i].what, what) == 0) {
            figure[i].what = what;
            figure[i].n += n;
            return;
        }
    abort();
}

void soak_print(void)
{
    for (int i = 0; i < FIGURES && figure[i].what; i++)
        (void)printf("soak: %llu %s\n", (unsigned long long)figure[i].n, figure[i].what);
}

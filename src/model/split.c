/* SPDX-License-Identifier: MIT */
/* The names of a split model's files: see split.h. */
#include "model/split.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool five_digits(const char *s, unsigned *ret)
{
    *ret = 0;
    for (int i = 0; i < 5; i++) {
        if (!isdigit((unsigned char)s[i]))
            return false;
        *ret = *ret * 10 + (unsigned)(s[i] - '0');
    }
    return true;
}

/* The number of shards in a name, 0 if it is not the name of a shard. */
static unsigned shard_count(const char *path, size_t len)
{
    unsigned no, count;
    const char *t = path + len - SPLIT_TAIL;
    if (len <= SPLIT_TAIL || t[-1] == '/' || t[0] != '-' || strncmp(t + 6, "-of-", 4) != 0 ||
        strcmp(t + 15, ".gguf") != 0 || !five_digits(t + 1, &no) || !five_digits(t + 10, &count))
        return 0;
    return no >= 1 && no <= count && count > 1 ? count : 0;
}

size_t split_count(const char *name)
{
    return shard_count(name, strlen(name));
}

static int find_by_name(const char *path, struct split *ret)
{
    size_t len = strlen(path);
    struct split s = {.n = shard_count(path, len)};
    if (s.n && !(s.prefix = strndup(path, len - SPLIT_TAIL)))
        return -ENOMEM;
    *ret = s;
    return 0;
}

static bool has_first(const struct split *s)
{
    char *first = s->n ? split_path(s, 0) : NULL;
    bool has = first && access(first, F_OK) == 0;
    free(first);
    return has;
}

int split_find(const char *path, struct split *ret)
{
    struct split linked = {0};
    int r = find_by_name(path, ret);
    if (r < 0 || has_first(ret))
        return r;
    char *real = realpath(path, NULL);
    r = real ? find_by_name(real, &linked) : 0;
    free(real);
    if (r == 0 && linked.n && (ret->n == 0 || has_first(&linked))) {
        split_free(ret);
        *ret = linked;
        return 0;
    }
    split_free(&linked);
    if (r < 0)
        split_free(ret);
    return r;
}

void split_free(struct split *s)
{
    free(s->prefix);
    *s = (struct split){0};
}

static char *make_name(const char *prefix, size_t i, size_t n)
{
    char *name;
    return asprintf(&name, "%s-%05zu-of-%05zu.gguf", prefix, i + 1, n) < 0 ? NULL : name;
}

char *split_path(const struct split *s, size_t i)
{
    return make_name(s->prefix, i, s->n);
}

char *split_name(const struct split *s, size_t i)
{
    const char *slash = strrchr(s->prefix, '/');
    return make_name(slash ? slash + 1 : s->prefix, i, s->n);
}

char *split_sibling(const char *name, size_t i, size_t n)
{
    char *prefix = strndup(name, strlen(name) - SPLIT_TAIL), *ret = NULL;
    if (prefix)
        ret = make_name(prefix, i, n);
    free(prefix);
    return ret;
}

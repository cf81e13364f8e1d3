/* SPDX-License-Identifier: MIT */
/* Makes a file in its own directory: see place.h. */
#include "place.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cu_main.h"
#include "base/bytes.h"
#include "gguf/value.h"
#include "model_dir.h"

void make_place(struct place *p, const struct content *i)
{
    const char *root = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    (void)snprintf(p->folder, sizeof(p->folder), "%s/ggufs-test-XXXXXX", root);
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(p->folder));
    (void)snprintf(p->model, sizeof(p->model), "%s/" NAME, p->folder);
    p->dir = open(p->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    put_file(p->dir, NAME, i->bytes, i->n);
}

static int count_one(void *arg, const char *name)
{
    (void)name;
    ++*(int *)arg;
    return 0;
}

static int remove_one(void *arg, const char *name)
{
    return unlinkat(*(int *)arg, name, 0);
}

int files_in(const struct place *p)
{
    int seen = 0;
    (void)sys_libc.list(&sys_libc, p->dir, count_one, &seen);
    return seen;
}

void drop_place(struct place *p)
{
    (void)sys_libc.list(&sys_libc, p->dir, remove_one, &p->dir);
    CU_ASSERT_EQUAL(rmdir(p->folder), 0);
    (void)close(p->dir);
}

struct content file_now(const struct place *p)
{
    struct content i;
    i.bytes = get_file(p->dir, NAME, &i.n);
    return i;
}

struct content as_shown(const struct content *file)
{
    struct source s = source_mem(file->bytes, file->n);
    struct gguf *g = NULL;
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, 0, &g, NULL), 0);
    struct content ret = {malloc(file->n), file->n};
    memcpy(ret.bytes, file->bytes, file->n);
    uint32_t i = gguf_find_key(g, KEY_RESERVE, strlen(KEY_RESERVE));
    if (i != UINT32_MAX) {
        uint64_t rest = g->head_len - g->kv[i].end, at = g->kv[i].off + rest, data = 0;
        CU_ASSERT_TRUE_FATAL(align_u64(at, g->alignment, &data));
        put_uint(ret.bytes + 16, g->n_kv - 1, 8, g->fmt.big);
        memcpy(ret.bytes + g->kv[i].off, file->bytes + g->kv[i].end, rest);
        memset(ret.bytes + at, 0, data - at);
        ret.n = data + (file->n - g->data_off);
        memcpy(ret.bytes + data, file->bytes + g->data_off, file->n - g->data_off);
    }
    gguf_free(g);
    return ret;
}

bool same(const struct content *a, const struct content *b)
{
    return a->n == b->n && memcmp(a->bytes, b->bytes, a->n) == 0;
}

bool file_is(const struct place *p, const struct content *want)
{
    struct content now = file_now(p);
    bool is = same(&now, want);
    free(now.bytes);
    return is;
}

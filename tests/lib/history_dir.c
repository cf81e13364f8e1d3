/* SPDX-License-Identifier: MIT */
/* Makes a directory with a history: see history_dir.h. */
#include "history_dir.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "build_gguf.h"
#include "edit/change.h"
#include "model_dir.h"

void home_setup(struct home *x)
{
    const char *memory = access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
    (void)snprintf(x->path, sizeof(x->path), "%s/ggufs-home-XXXXXX", memory);
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(x->path));
    x->dir = open(x->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CU_ASSERT_EQUAL_FATAL(open_history(x, &x->h, "/models/m.gguf", HISTORY_KEEP), 0);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

void home_teardown(struct home *x)
{
    history_close(&x->h);
    (void)close(x->dir);
    CU_ASSERT_EQUAL(nftw(x->path, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

int open_history(const struct home *x, struct history *h, const char *model, unsigned keep)
{
    char state[80];
    (void)snprintf(state, sizeof(state), "%s/state", x->path);
    return history_open(h, calm(), state, model, keep, NULL);
}

static int count_one(void *arg, const char *name)
{
    (void)name;
    ++*(unsigned *)arg;
    return 0;
}

unsigned home_files(const struct home *x)
{
    unsigned n = 0;
    int dir = openat(x->dir, "state/ggufs/history", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return 0;
    (void)sys_libc.list(&sys_libc, dir, count_one, &n);
    (void)close(dir);
    return n;
}

struct gguf *keys_of(const char *text)
{
    struct build b;
    struct gguf *g = NULL;
    size_t n;
    build_init(&b, 3, false);
    build_str(&b, "general.architecture", "test");
    build_str(&b, "text", text);
    build_array(&b, "list", GGUF_I32, 2);
    build_item_num(&b, GGUF_I32, 1);
    build_item_num(&b, GGUF_I32, 2);
    uint8_t *image = build_finish(&b, &n);
    struct source s = source_mem(image, n);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, 0, &g, NULL), 0);
    free(image);
    return g;
}

/* Return the first user key at or after i. */
static uint32_t next_key(const struct gguf *g, uint32_t i)
{
    while (i < g->n_kv && edit_key_is_own(g, i))
        i++;
    return i;
}

bool same_keys(const struct gguf *a, const struct gguf *b)
{
    uint32_t i = next_key(a, 0), k = next_key(b, 0);
    while (i < a->n_kv && k < b->n_kv) {
        const struct gguf_kv *x = &a->kv[i], *y = &b->kv[k];
        uint64_t n = x->end - x->off;
        if (n != y->end - y->off || memcmp(a->head + x->off, b->head + y->off, (size_t)n) != 0)
            return false;
        i = next_key(a, i + 1);
        k = next_key(b, k + 1);
    }
    return i == a->n_kv && k == b->n_kv;
}

int64_t save(struct history *h, struct gguf *before, struct gguf *after, int64_t now,
             uint64_t restored, struct err *e)
{
    CLEANUP(history_states_free) struct history_states f = HISTORY_STATES_INIT;
    const struct recorded_edit edit = {before, after, restored, now, 0};
    int done = history_record(h, &edit, e);
    if (done == 0)
        done = history_end(h, edit_keys_id(after), now, e);
    if (done == 0)
        done = history_load(h, &f, e);
    return done < 0 ? done : (int64_t)f.last;
}

bool numbers_are(struct history *h, uint64_t first, uint64_t last)
{
    CLEANUP(history_states_free) struct history_states f = HISTORY_STATES_INIT;
    bool good = history_load(h, &f, NULL) == 0 && f.n == last + 1 - first;
    for (size_t i = 0; i < f.n && good; i++)
        good = f.of[i].rec.number == first + i;
    return good && f.damaged == 0;
}

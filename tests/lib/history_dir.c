/* SPDX-License-Identifier: MIT */
/* Makes a directory with a history: see history_dir.h. */
#include "history_dir.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "build_gguf.h"
#include "edit/change.h"
#include "model_dir.h"
#include "parsed.h"

void home_setup(struct home *x)
{
    make_folder(x->path, &x->dir, in_memory());
    CU_ASSERT_EQUAL_FATAL(open_history(x, &x->h, "/models/m.gguf", HISTORY_KEEP), 0);
}

void home_teardown(struct home *x)
{
    history_close(&x->h);
    (void)close(x->dir);
    remove_tree(x->path);
}

int open_history(const struct home *x, struct history *h, const char *model, size_t keep)
{
    char state[80];
    (void)snprintf(state, sizeof(state), "%s/state", x->path);
    return history_open(h, calm(), state, model, keep, NULL);
}

unsigned home_files(const struct home *x)
{
    int dir = openat(x->dir, "state/ggufs/history", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    unsigned n = dir < 0 ? 0 : files_in(dir);
    (void)close(dir);
    return n;
}

struct gguf *keys_of(const char *text)
{
    struct build b = build_of(3, false);
    build_str(&b, "general.architecture", "test");
    build_str(&b, "text", text);
    build_text(&b, "list:array=i32[1,2]");
    return gguf_of(&b);
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

int save(struct history *h, const struct gguf *before, const struct gguf *after, int64_t now,
         uint64_t restored, struct err *e)
{
    int r = begin_save(h, before, after, now, restored, e);
    h->ended = now;
    return r;
}

int begin_save(struct history *h, const struct gguf *before, const struct gguf *after, int64_t now,
               uint64_t restored, struct err *e)
{
    CLEANUP(edit_change_free) struct edit_change c;
    edit_change_init(&c, &(struct edit_base){.g = before});
    CU_ASSERT_EQUAL_FATAL(edit_restore(&c, after, NULL), 0);
    const struct history_edit edit = {&c, after, restored, now, false};
    return history_append(h, &edit, e);
}

/* Add the numbers of the states shown. */
void states_of(const struct history *h, const struct gguf *now, char *dst, size_t room)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    CU_ASSERT_EQUAL(history_text(h, edit_keys_id(now), &text, NULL), 0);
    buf_char(&text, '\0');
    size_t n = 0;
    dst[0] = '\0';
    for (char *line = (char *)text.data; *line; line = strchr(line, '\n') + 1)
        n += (size_t)snprintf(dst + n, room - n, "%s%.*s", n ? " " : "", (int)strcspn(line, "\t"),
                              line);
}

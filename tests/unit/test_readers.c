/* SPDX-License-Identifier: MIT */
/*
 * Readers of a model are answered while another call renders, parses or plans something large. At
 * the first large allocation of such a call, another thread reads a key; if it had to wait for the
 * call, it would never be answered.
 */
#include "cu_test.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "build_gguf.h"
#include "model_dir.h"
#include "tree/file.h"
#include "tree_image.h"

#define LARGE ((size_t)1 << 20)
#define TEXT ((size_t)3 << 20)
#define LINES 250000 /* of "1\n": less than LARGE as text, more as values */

void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);

static struct tree *tree;
static atomic_bool armed, answered;

static void *read_key(void *arg)
{
    const struct tree_image m = {.t = tree};
    size_t n;
    char *text = image_text(&m, "metadata/a.small", &n);
    atomic_store(&answered, strcmp(text, "7\n") == 0);
    free(text);
    return arg;
}

/* Let another thread read a key. */
static void read_beside(void)
{
    pthread_t reader;
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    if (pthread_create(&reader, NULL, read_key, NULL) == 0 &&
        pthread_timedjoin_np(reader, NULL, &until) == 0)
        return;
    fprintf(stderr, "a thread waits\n");
    abort();
}

void *__wrap_realloc(void *p, size_t n)
{
    if (n >= LARGE && atomic_exchange(&armed, false))
        read_beside();
    return __real_realloc(p, n);
}

static struct place begin(void)
{
    char *text = malloc(TEXT + 1);
    memset(text, 'x', TEXT);
    text[TEXT] = '\0';
    struct build b = build_of(3, false);
    build_str(&b, "general.architecture", "test");
    build_str(&b, "a.big", text);
    build_text(&b, "a.small:u32=7|a.other=one|a.list:array=i64[]|>t F32 5");
    free(text);
    const struct place p = place_of(&b);
    tree = image_tree(p.model, &(struct tree_options){.commit = LIVE_COMMIT_SYNC});
    atomic_store(&answered, false);
    atomic_store(&armed, true);
    return p;
}

static void end(struct place *p)
{
    CU_ASSERT_TRUE(atomic_load(&answered));
    atomic_store(&armed, false);
    CU_ASSERT_EQUAL(tree_finish(tree), 0);
    tree_close(tree);
    drop_place(p);
}

static void moved_aside(void)
{
    CU_ASSERT_EQUAL(do_rename(tree, "a.big", "a.big~"), 0);
}

static void renamed_over(void)
{
    CU_ASSERT_EQUAL(do_rename(tree, "a.big", "a.other"), 0);
}

static void opened(void)
{
    struct tree_file *f = NULL;
    const struct tree_image m = {.t = tree};
    CU_ASSERT_EQUAL_FATAL(
        tree_open_file(tree, image_node(&m, "metadata/a.big"), O_WRONLY | O_APPEND, &f), 0);
    CU_ASSERT_EQUAL(tree_write(f, 0, "x", 1, NULL), 0);
    tree_release(f);
}

static void created(void)
{
    struct tree_entry e;
    struct tree_file *f = NULL;
    CU_ASSERT_EQUAL_FATAL(tree_create(tree, ino_row(0), "a.big", O_WRONLY, &e, &f), 0);
    CU_ASSERT_EQUAL(tree_write(f, 1, "y", 1, NULL), 0);
    tree_release(f);
}

static void written(void)
{
    struct tree_file *f = NULL;
    const struct tree_image m = {.t = tree};
    struct tree_wait w;
    CLEANUP(free_it) char *text = malloc(2 * LINES);
    for (size_t i = 0; i < LINES; i++)
        memcpy(text + 2 * i, "1\n", 2);
    CU_ASSERT_EQUAL_FATAL(
        tree_open_file(tree, image_node(&m, "metadata/a.list"), O_WRONLY | O_TRUNC, &f), 0);
    CU_ASSERT_EQUAL(tree_write(f, 0, text, 2 * LINES, NULL), 0);
    CU_ASSERT_TRUE(atomic_load(&answered));
    CU_ASSERT_EQUAL(tree_waited(&w, tree_flush(f, tree_wait(&w))), 0);
    tree_release(f);
}

static void removed(void)
{
    const struct tree_image m = {.t = tree};
    CU_ASSERT_EQUAL(do_unlink(tree, "a.other"), 0);
    CU_ASSERT_TRUE(image_node(&m, "model.gguf") > 0);
}

static void removed_before(void)
{
    CU_ASSERT_EQUAL(do_unlink(tree, "a.other"), 0);
    CU_ASSERT_EQUAL(do_write(tree, "a.list", "1\n", 2), 0);
}

/* A key is moved aside, renamed over another, appended to, created though it is there, and lines
 * are written at once; the model is looked up, and a key edited, after a removal. */
TEST("a key is read while another call does something large")
{
    static void (*const calls[])(void) = {moved_aside, renamed_over, opened,        created,
                                          written,     removed,      removed_before};
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        struct place p = begin();
        calls[i]();
        end(&p);
    }
}

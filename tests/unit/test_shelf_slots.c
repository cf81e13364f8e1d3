/* SPDX-License-Identifier: MIT */
/* shelf/slots: which models are open, and how they are closed. */
#include "cu_main.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "build_gguf.h"
#include "shelf/internal.h"
#include "tree_edit.h"

/* Models: more than are kept open without being used. */
#define MANY (SLOTS_IDLE_MAX + 6)
#define KEY "metadata/general.name"

static char top[64];
static struct shelf *shelf;

static const char *path_of(unsigned model)
{
    static char path[128];
    (void)snprintf(path, sizeof(path), "%s/m%u.gguf", top, model);
    return path;
}

/* A model that is called so. free() it. */
static uint8_t *image(const char *name, size_t *n)
{
    struct build b;
    build_init(&b, 3, false);
    build_str(&b, "general.architecture", "llama");
    build_str(&b, "general.name", name);
    build_tensor(&b, "t", 0, (uint64_t[]){8}, 1, NULL, 32);
    return build_finish(&b, n);
}

static void setup(void)
{
    struct shelf_options o = {.tree = {.commit = LIVE_COMMIT_SYNC}};
    size_t n;
    uint8_t *bytes = image("Old name", &n);
    (void)strcpy(top, "/tmp/ggufs-slots-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(top));
    for (unsigned i = 0; i < MANY; i++) {
        int fd = open(path_of(i), O_WRONLY | O_CREAT | O_EXCL, 0600);
        CU_ASSERT_EQUAL_FATAL(write(fd, bytes, n), (ssize_t)n);
        (void)close(fd);
    }
    free(bytes);
    CU_ASSERT_EQUAL_FATAL(shelf_open(top, &o, &shelf, NULL), 0);
}

static void teardown(void)
{
    shelf_close(shelf);
    for (unsigned i = 0; i < MANY; i++)
        CU_ASSERT_EQUAL(unlink(path_of(i)), 0);
    CU_ASSERT_EQUAL(rmdir(top), 0);
}

/* The node at a path of names in a model, which is opened; the kernel knows it from then on. */
static uint64_t node_of(unsigned model, const char *path)
{
    char name[128];
    struct tree_entry e = {0};
    (void)snprintf(name, sizeof(name), "m%u.gguf", model);
    CU_ASSERT_EQUAL_FATAL(shelf_lookup(shelf, INO_ROOT, name, &e), 0);
    for (const char *p = path, *end; *p; p = *end ? end + 1 : end) {
        end = strchrnul(p, '/');
        (void)snprintf(name, sizeof(name), "%.*s", (int)(end - p), p);
        CU_ASSERT_EQUAL_FATAL(shelf_lookup(shelf, e.node, name, &e), 0);
    }
    return e.node;
}

static void look_at(unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++)
        (void)node_of(i, "info");
}

static const struct slot *slot_of_node(uint64_t node)
{
    return slots_at(&shelf->slots, ino_slot(node));
}

static uint64_t edit(unsigned model, const char *text)
{
    struct tree_wait w;
    struct shelf_file *f;
    uint64_t node = node_of(model, KEY);
    CU_ASSERT_EQUAL_FATAL(shelf_open_file(shelf, node, O_WRONLY | O_TRUNC, &f), 0);
    CU_ASSERT_EQUAL(shelf_write(f, 0, text, strlen(text)), 0);
    CU_ASSERT_EQUAL(tree_waited(&w, shelf_flush(f, tree_wait(&w))), 0);
    CU_ASSERT_EQUAL(shelf_release(f), 0);
    return node;
}

static bool is_called(unsigned model, const char *name)
{
    size_t n;
    uint8_t *want = image(name, &n), *got = malloc(n + 1);
    int fd = open(path_of(model), O_RDONLY);
    bool same = read(fd, got, n + 1) == (ssize_t)n && memcmp(got, want, n) == 0;
    (void)close(fd);
    free(want);
    free(got);
    return same;
}

/* A turn that hangs, so that what is to be closed waits. */
struct hang {
    struct crew_job job;
    sem_t begun, end, ended;
};

static bool hang(struct crew_job *j, struct timespec *again)
{
    struct hang *h = (struct hang *)j;
    (void)again;
    (void)sem_post(&h->begun);
    (void)sem_wait(&h->end);
    (void)sem_post(&h->ended);
    return false;
}

/* The end comes while models wait to be closed. One of them has an edit that is not written. */
static void test_finish_while_closing(void)
{
    struct hang h;
    setup();
    (void)sem_init(&h.begun, 0, 0);
    (void)sem_init(&h.end, 0, 0);
    (void)sem_init(&h.ended, 0, 0);
    CU_ASSERT_EQUAL_FATAL(crew_do(shelf->slots.closer, &h.job, hang), 0);
    (void)sem_wait(&h.begun);
    uint64_t node = edit(0, "New name");
    look_at(1, MANY);
    CU_ASSERT_TRUE(is_called(0, "Old name"));
    CU_ASSERT_TRUE(slot_of_node(node)->busy);
    CU_ASSERT_EQUAL(shelf_finish(shelf), 0);
    CU_ASSERT_EQUAL_FATAL(shelf->slots.closing, 0);
    CU_ASSERT_EQUAL(shelf->slots.n_open, 0);
    CU_ASSERT_TRUE(is_called(0, "New name"));
    CU_ASSERT_TRUE(is_called(1, "Old name"));
    (void)sem_post(&h.end);
    (void)sem_wait(&h.ended);
    teardown();
}

/* A signal to a program keeps no model open. */
static void test_interrupt(void)
{
    setup();
    look_at(0, 2);
    struct slot *slot = shelf->slots.open;
    uint64_t turn = slot->turn;
    slot->used = 1;
    shelf_interrupt(shelf, &turn);
    CU_ASSERT_EQUAL(slot->used, 1);
    CU_ASSERT_EQUAL(slot->turn, turn);
    CU_ASSERT_EQUAL(slot->uses, 0);
    CU_ASSERT_EQUAL(shelf_finish(shelf), 0);
    teardown();
}

/* A truncation by path holds its model until its attributes were asked for. */
static void test_unopened_file(void)
{
    struct tree_wait w;
    struct tree_entry e;
    struct shelf_file *f;
    setup();
    uint64_t node = node_of(0, KEY);
    const struct slot *slot = slot_of_node(node);
    CU_ASSERT_EQUAL_FATAL(shelf_unopened_file(shelf, node, &f), 0);
    CU_ASSERT_EQUAL(tree_waited(&w, shelf_truncate(f, node, 3, tree_wait(&w))), 0);
    const struct tree *t = slot->tree;
    look_at(1, MANY);
    CU_ASSERT_PTR_EQUAL(slot->tree, t);
    CU_ASSERT_EQUAL(shelf_getattr(shelf, node, f, &e), 0);
    CU_ASSERT_EQUAL(e.node, node);
    CU_ASSERT_EQUAL(e.attr.st_size, 4); /* with the newline */
    CU_ASSERT_EQUAL(slot->uses, 1);
    CU_ASSERT_EQUAL(shelf_release(f), 0);
    CU_ASSERT_EQUAL(slot->uses, 0);
    CU_ASSERT_EQUAL(shelf_finish(shelf), 0);
    teardown();
}

static CU_TestInfo tests[] = {
    {"the end while models are closed", test_finish_while_closing},
    {"an interrupt is no use", test_interrupt},
    {"a file that is not open", test_unopened_file},
    CU_TEST_INFO_NULL,
};

CU_MAIN("shelf slots", tests)

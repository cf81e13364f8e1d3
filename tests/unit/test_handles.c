/* SPDX-License-Identifier: MIT */
/* mount/handles: a handle is closed with its last use, whichever thread drops it. */
#include "cu_main.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/count.h"
#include "mount/handles.h"

static char top[64];
static struct shelf *shelf;
static struct handles list;
static struct passed *const passed = (struct passed *)top; /* is handed on, never looked at */

static void setup(void)
{
    const struct shelf_options o = {.strict = false};
    (void)strcpy(top, "/tmp/ggufs-handles-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(top));
    CU_ASSERT_EQUAL_FATAL(shelf_open(top, &o, &shelf, NULL), 0);
    list = (struct handles)HANDLES_INIT;
}

static void teardown(void)
{
    CU_ASSERT_EQUAL(shelf_finish(shelf), 0);
    shelf_close(shelf);
    CU_ASSERT_EQUAL(rmdir(top), 0);
}

/* An open handle of the folder, which is empty. */
static struct handle *opened(void)
{
    struct shelf_dir *d = NULL;
    CU_ASSERT_EQUAL_FATAL(shelf_opendir(shelf, INO_ROOT, &d), 0);
    struct handle *h = handle_open(&list, NULL, d, passed);
    CU_ASSERT_PTR_NOT_NULL_FATAL(h);
    return h;
}

/* The entries that the handle lists. */
static unsigned listed(struct handle *h)
{
    char name[TREE_NAME_MAX + 1];
    struct tree_entry e;
    uint64_t cookie = 0;
    unsigned n = 0;
    LOCKED(&h->listing);
    while (shelf_readdir(h->dir, &cookie, false, name, &e) > 0)
        n++;
    return n;
}

/* The release comes while a request is still in its call. */
static void test_released_in_use(void)
{
    setup();
    unsigned long seen = 0;
    struct handle *h = opened();
    unsigned n = listed(h);
    CU_ASSERT(n >= 2);
    handle_use(&list, h);
    CU_ASSERT_PTR_NULL(handle_drop(&list, h));
    CU_ASSERT_EQUAL(listed(h), n);
    CU_ASSERT_FALSE(handles_idle(&list, &seen));
    CU_ASSERT_FALSE(handles_idle(&list, &seen));
    CU_ASSERT_PTR_EQUAL(handle_drop(&list, h), passed);
    CU_ASSERT_FALSE(handles_idle(&list, &seen)); /* something was closed since */
    CU_ASSERT(handles_idle(&list, &seen));
    teardown();
}

struct call {
    pthread_t thread;
    struct handle *handle;
    unsigned listed;
    struct passed *passed;
};

static void *serve(void *arg)
{
    struct call *c = arg;
    c->listed = listed(c->handle);
    c->passed = handle_drop(&list, c->handle);
    return NULL;
}

static void test_threads(void)
{
    setup();
    struct call call[8];
    struct handle *h = opened();
    unsigned n = listed(h), last = 0;
    unsigned long seen = 0;
    for (size_t i = 0; i < COUNT(call); i++) {
        call[i] = (struct call){.handle = h};
        handle_use(&list, h);
        CU_ASSERT_EQUAL_FATAL(pthread_create(&call[i].thread, NULL, serve, &call[i]), 0);
    }
    last += handle_drop(&list, h) == passed;
    for (size_t i = 0; i < COUNT(call); i++) {
        (void)pthread_join(call[i].thread, NULL);
        CU_ASSERT_EQUAL(call[i].listed, n);
        last += call[i].passed == passed;
    }
    CU_ASSERT_EQUAL(last, 1);
    (void)handles_idle(&list, &seen);
    CU_ASSERT(handles_idle(&list, &seen));
    teardown();
}

/* The kernel does not send a release for each handle at an unmount. */
static void test_left_at_the_end(void)
{
    setup();
    (void)opened();
    (void)opened();
    (void)opened();
    handles_end(&list);
    CU_ASSERT_PTR_NULL(list.first);
    teardown();
}

int main(void)
{
    static CU_TestInfo tests[] = {{"released in use", test_released_in_use},
                                  {"threads", test_threads},
                                  {"left at the end", test_left_at_the_end},
                                  CU_TEST_INFO_NULL};
    return cu_run("handles", tests);
}

/* SPDX-License-Identifier: MIT */
/* Objects of tensors: lookups by number and by name, states, and lists. */
#include "cu_main.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "live/batch.h"
#include "live/tensors.h"

enum { MANY = 1000, NAMES = 700 };

static void test_found(void)
{
    struct objects s = {0};
    uint32_t n = 0;
    CU_ASSERT_PTR_NULL(object_find(&s, 5));
    CU_ASSERT_PTR_NULL(object_from(&s, 0));
    for (uint32_t i = 0; i < MANY; i++)
        CU_ASSERT_PTR_NOT_NULL_FATAL(object_get(&s, 7 * i));
    for (uint32_t i = 0; i < 7 * MANY; i++) {
        const struct object *o = object_find(&s, i);
        CU_ASSERT(i % 7 ? !o : o && o->number == i);
    }
    for (const struct object *o = object_from(&s, 0); o; o = object_from(&s, o->number + 1ull))
        CU_ASSERT_EQUAL(o->number, 7 * n++);
    CU_ASSERT_EQUAL(n, MANY);
    CU_ASSERT_PTR_NULL(object_find(&s, UINT32_MAX));
    object_drop(&s, object_find(&s, 7));
    CU_ASSERT_PTR_NULL(object_find(&s, 7));
    objects_free(&s);
}

/* Returns true if the list consists of the objects with these numbers. */
static bool is_list(const struct object_list *list, const char *want)
{
    char got[64] = "";
    size_t n = 0;
    const struct object *last = NULL;
    for (const struct object *o = list->first; o; last = o, o = o->next, n++) {
        CU_ASSERT(o->in == list && o->before == last);
        (void)snprintf(got + strlen(got), 8, "%u ", o->number);
    }
    CU_ASSERT(list->last == last && list->n == n);
    return strcmp(got, want) == 0;
}

static void test_removed(void)
{
    struct objects s = {0};
    struct object *a = object_get(&s, 1), *b = object_get(&s, 2), *c = object_get(&s, 3);
    CU_ASSERT_FATAL(a && b && c);
    object_event(&s, a, OBJECT_DOOM);
    object_event(&s, b, OBJECT_DOOM);
    object_event(&s, c, OBJECT_DOOM);
    CU_ASSERT(is_list(&s.doomed, "1 2 3 "));
    CU_ASSERT_FALSE(objects_due(&s)); /* due only after two seconds without changes */
    objects_sync(&s);
    CU_ASSERT(objects_due(&s));
    object_event(&s, b, OBJECT_REMOVE);
    CU_ASSERT(b->state == OBJECT_ABSENT && is_list(&s.doomed, "1 3 "));
    object_hide(a, 3);
    object_event(&s, a, OBJECT_BACK);
    CU_ASSERT(a->generation == 1 && !object_hidden(a) && a->state == OBJECT_STORED);
    object_event(&s, c, OBJECT_BACK);
    object_event(&s, b, OBJECT_BACK);
    CU_ASSERT(is_list(&s.doomed, "") && !objects_due(&s));
    objects_free(&s);
}

static void test_hidden(void)
{
    struct objects s = {0};
    struct object *o = object_get(&s, 1);
    CU_ASSERT_FATAL(o != NULL);
    object_hide(o, 0);
    object_hide(o, 5);
    CU_ASSERT_EQUAL(object_hidden(o), 1 << 0 | 1 << 5);
    object_unhide(o, 0);
    CU_ASSERT_EQUAL(object_hidden(o), 1 << 5);
    o->due.tv_sec -= OBJECTS_VIEWS; /* as if it had happened long ago */
    CU_ASSERT_EQUAL(object_hidden(o), 0);
    objects_free(&s);
}

/* Only errors in the model's own tensors are counted. */
static void test_errors(void)
{
    struct objects s = {0};
    struct object *o = object_get(&s, 1);
    CU_ASSERT_FATAL(o != NULL);
    object_set_error(&s, o, "why");
    object_set_error(&s, o, "another");
    CU_ASSERT(s.n_errors == 1 && strcmp(o->error, "another") == 0);
    object_event(&s, o, OBJECT_DOOM);
    CU_ASSERT_EQUAL(s.n_errors, 1);
    object_event(&s, o, OBJECT_REMOVE);
    CU_ASSERT_EQUAL(s.n_errors, 0);
    object_event(&s, o, OBJECT_BACK);
    CU_ASSERT_EQUAL(s.n_errors, 1);
    object_set_error(&s, o, NULL);
    CU_ASSERT(s.n_errors == 0 && !o->error);
    object_event(&s, o, OBJECT_MAKE);
    object_set_error(&s, o, "still needs type");
    CU_ASSERT(s.n_errors == 0 && s.fresh.n == 1);
    object_event(&s, o, OBJECT_ADD);
    CU_ASSERT(s.n_errors == 1 && s.fresh.n == 0);
    object_event(&s, o, OBJECT_LOSE);
    CU_ASSERT_EQUAL(s.n_errors, 0);
    objects_free(&s);
}

static void name_of(size_t which, char name[16])
{
    (void)snprintf(name, 16, "t.%zu", which);
}

/* Names are added and removed. The reference is a plain array with the object of each name. */
static void test_random_names(void)
{
    static uint32_t want[NAMES]; /* 0: no object has this name */
    struct objects s = {0};
    uint64_t state = 1;
    for (uint32_t i = 0; i < NAMES; i++)
        CU_ASSERT_PTR_NOT_NULL_FATAL(object_get(&s, i + 1));
    for (int i = 0; i < 20000; i++) {
        char name[16];
        state = state * 6364136223846793005u + 1442695040888963407u;
        const size_t which = (size_t)(state >> 33) % NAMES;
        struct object *o = object_find(&s, 1 + (uint32_t)(state >> 45) % NAMES);
        name_of(which, name);
        struct object *has = object_named(&s, name, strlen(name), OBJECT_STORED);
        CU_ASSERT_EQUAL(has ? has->number : 0, want[which]);
        for (size_t k = 0; k < NAMES; k++)
            want[k] = want[k] == o->number ? 0 : want[k];
        if (state >> 63) {
            if (has)
                object_clear_name(&s, has);
            CU_ASSERT_EQUAL(object_set_name(&s, o, name, strlen(name)), 0);
            want[which] = o->number;
        } else {
            object_clear_name(&s, o);
        }
    }
    objects_free(&s);
}

/* Names may contain NUL bytes. Objects have names only in some states. */
static void test_names(void)
{
    struct objects s = {0};
    struct object *a = object_get(&s, 1), *b = object_get(&s, 2);
    CU_ASSERT_FATAL(a && b);
    CU_ASSERT_EQUAL(object_set_name(&s, a, "a\0b", 3), 0);
    CU_ASSERT_EQUAL(object_set_name(&s, b, "a\0b", 3), 0);
    object_event(&s, b, OBJECT_REMOVE);
    CU_ASSERT_PTR_EQUAL(object_named(&s, "a\0b", 3, OBJECT_STORED), a);
    CU_ASSERT_PTR_EQUAL(object_named(&s, "a\0b", 3, OBJECT_ABSENT), b);
    CU_ASSERT_PTR_NULL(object_named(&s, "a\0c", 3, OBJECT_STORED));
    CU_ASSERT_PTR_NULL(object_named(&s, "a", 1, OBJECT_STORED));
    objects_free(&s);
}

/* Make a new tensor that is due at this time. */
static struct object *make(struct live *l, uint32_t number, bool dirty, struct timespec due)
{
    struct object *o = object_get(&l->objects, number);
    CU_ASSERT_FATAL(o != NULL);
    object_event(&l->objects, o, OBJECT_MAKE);
    o->dirty = dirty;
    o->due = due;
    return o;
}

/* New tensors are judged when the first is due; this time is rounded up to a full second. */
static void test_due(void)
{
    static struct live l;
    lock_init(&l.lock);
    lock_take(&l.lock);
    CU_ASSERT_PTR_NULL(new_tensors_due_at(&l));
    struct object *o[5] = {make(&l, 0, true, (struct timespec){0}),
                           make(&l, 1, true, (struct timespec){0}),
                           make(&l, 2, false, (struct timespec){0}),
                           make(&l, 3, true, (struct timespec){100, 999999999}),
                           make(&l, 4, true, (struct timespec){200, 5})};
    object_event(&l.objects, o[0], OBJECT_REMOVE);
    o[1]->open = 1;
    CU_ASSERT(is_list(&l.objects.fresh, "1 2 3 4 "));
    object_move_last(o[2]);
    object_move_last(o[2]);
    CU_ASSERT(is_list(&l.objects.fresh, "1 3 4 2 "));
    const struct timespec *due = new_tensors_due_at(&l);
    CU_ASSERT(due && due->tv_sec == 101 && due->tv_nsec == 0);
    object_event(&l.objects, o[4], OBJECT_REMOVE);
    l.objects.judging = o[3];
    CU_ASSERT_PTR_NULL(new_tensors_due(&l));
    l.objects.judging = NULL;
    CU_ASSERT_PTR_NOT_NULL(new_tensors_due(&l)); /* due long ago */
    o[3]->open = 1;
    CU_ASSERT_TRUE(new_tensors_closing(&l));
    o[1]->unclosed = o[3]->unclosed = 1;
    CU_ASSERT_FALSE(new_tensors_closing(&l));
    l.objects.now = true;
    CU_ASSERT_PTR_NULL(new_tensors_due(&l)); /* not while a tensor is being written */
    l.writer.stop = true;
    CU_ASSERT_PTR_NOT_NULL(new_tensors_due(&l));
    l.writer.stop = false;
    o[3]->open = 0;
    (void)clock_gettime(CLOCK_MONOTONIC, &o[3]->due);
    o[3]->due.tv_sec += 1000;
    CU_ASSERT_PTR_NOT_NULL(new_tensors_due(&l)); /* a sync does not wait */
    l.objects.now = false;
    CU_ASSERT_PTR_NULL(new_tensors_due(&l));
    lock_drop(&l.lock);
    lock_destroy(&l.lock);
    objects_free(&l.objects);
}

static CU_TestInfo tests[] = {
    {"objects are found by number", test_found},
    {"removed tensors are due after a pause, and can come back", test_removed},
    {"hidden views come back after a while", test_hidden},
    {"errors are counted for the model's own tensors only", test_errors},
    {"random names agree with a plain array", test_random_names},
    {"names are bytes with a length", test_names},
    {"new tensors are judged when the first one is due", test_due},
    CU_TEST_INFO_NULL,
};

CU_MAIN("objects", tests)

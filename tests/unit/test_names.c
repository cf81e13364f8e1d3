/* SPDX-License-Identifier: MIT */
/*
 * Names, files, slots and numbers of metadata/, without a model that is written: what must hold
 * whatever is done to them (M1 to M3). Scripts in test_live*.c have what programs see of it.
 */
#include <stdio.h>
#include <string.h>

#include "build_gguf.h"
#include "cu_main.h"
#include "live/names.h"
#include "parsed.h"

enum { MODEL_KEYS = 4 };
static const char *const model_keys[MODEL_KEYS] = {"general.architecture", "a.one", "a.two",
                                                   "a.three"};

struct fixture {
    struct parsed model;
    struct snapshot *snap;
    struct names n;
};

static void begin(struct fixture *x)
{
    struct build b;
    const struct timespec now = {0};
    build_init(&b, 3, false);
    for (size_t i = 0; i < MODEL_KEYS; i++)
        build_str(&b, model_keys[i], "x");
    x->model = parse_build(&b, 0);
    CU_ASSERT_EQUAL_FATAL(snapshot_make(x->model.g, 0, &now, &x->snap), 0);
    x->model.g = NULL; /* the generation's */
    CU_ASSERT_EQUAL_FATAL(names_init(&x->n, x->snap->gguf), 0);
}

static void end(struct fixture *x)
{
    names_close(&x->n);
    snapshot_unref(x->snap);
    parsed_free(&x->model);
}

/* M1 and M2, and what the lists say. */
static void check(const struct names *n)
{
    size_t named = 0, doomed = 0, errors = 0;
    for (const struct name *x = name_from(n, 0); x; x = name_from(n, x->ino + 1), named++) {
        CU_ASSERT_PTR_EQUAL(names_find(n, x->text), x);
        CU_ASSERT_TRUE(!x->file || x->file->name == x);
        CU_ASSERT_TRUE(!x->file || n->at[x->file->number].file == x->file);
        CU_ASSERT_PTR_EQUAL(n->of[x->ino], x);
        doomed += x->slot == SLOT_DOOMED;
        errors += x->error != NULL;
    }
    CU_ASSERT_EQUAL(n->by_text.n, named);
    CU_ASSERT_EQUAL(n->n_doomed, doomed);
    CU_ASSERT_EQUAL(n->n_errors, errors);
    for (uint32_t i = 0; i < n->numbers.given; i++)
        CU_ASSERT_TRUE(!n->at[i].file || !n->at[i].file->name ||
                       n->at[i].file->name->file == n->at[i].file);
}

static struct name *first_key(struct fixture *x, uint32_t i)
{
    struct file *f = names_file(&x->n, i);
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    CU_ASSERT_EQUAL(f->number, i);
    CU_ASSERT_EQUAL(f->name->slot, SLOT_STORED);
    return f->name;
}

static struct name *helper(struct fixture *x, const char *text)
{
    struct name *h = names_get(&x->n, text, false);
    struct file *f = file_new(&x->n, FILE_HELPER);
    CU_ASSERT_PTR_NOT_NULL_FATAL(h);
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    name_take(&x->n, h, f);
    return h;
}

static void test_numbers(void)
{
    struct fixture x;
    begin(&x);
    for (uint32_t i = 0; i < MODEL_KEYS; i++) {
        const struct name *key = first_key(&x, i);
        CU_ASSERT_EQUAL(key->ino, i);
        CU_ASSERT_EQUAL(key->mtime.tv_sec, 0);
        CU_ASSERT_PTR_EQUAL(names_find_key(&x.n, model_keys[i], strlen(model_keys[i])), key);
        CU_ASSERT_PTR_EQUAL(names_get_key(&x.n, model_keys[i], strlen(model_keys[i])), key);
    }
    CU_ASSERT_PTR_NULL(names_file(&x.n, MODEL_KEYS));
    CU_ASSERT_EQUAL(x.n.by_text.n, MODEL_KEYS);
    check(&x.n);
    end(&x);
}

/* A key whose name is longer than a file name has one that is cut; a helper keeps its name. */
static void test_by_key(void)
{
    struct fixture x;
    char key[400], text[TREE_NAME_MAX + 1];
    begin(&x);
    memset(key, 'k', sizeof(key));
    struct name *cut = names_get_key(&x.n, key, sizeof(key));
    CU_ASSERT_PTR_NOT_NULL_FATAL(cut);
    CU_ASSERT_EQUAL(cut->key_len, sizeof(key));
    CU_ASSERT_EQUAL(name_encode(key, sizeof(key), text), TREE_NAME_MAX);
    CU_ASSERT_STRING_EQUAL(cut->text, text);
    CU_ASSERT_PTR_EQUAL(names_get_key(&x.n, key, sizeof(key)), cut);
    CU_ASSERT_PTR_EQUAL(names_get(&x.n, text, true), cut);
    struct name *h = helper(&x, "b.one");
    CU_ASSERT_PTR_EQUAL(names_get_key(&x.n, "b.one", 5), h);
    CU_ASSERT_PTR_NULL(h->key);
    file_reap(&x.n, name_leave(h));
    CU_ASSERT_PTR_EQUAL(names_get_key(&x.n, "b.one", 5), h);
    CU_ASSERT_STRING_EQUAL(h->key, "b.one");
    check(&x.n);
    end(&x);
}

/* A helper takes a key's name; then the key is back by the file that it had. */
static void test_take(void)
{
    struct fixture x;
    begin(&x);
    struct name *key = first_key(&x, 1), *h = helper(&x, ".h");
    struct file *was = key->file, *f = h->file;
    uint32_t ino = key->ino;
    CU_ASSERT_PTR_EQUAL(name_leave(h), f);
    name_take(&x.n, key, f);
    CU_ASSERT_PTR_EQUAL(key->file, f);
    CU_ASSERT_PTR_NULL(was->name);
    CU_ASSERT_PTR_EQUAL(was->last, key); /* it shows the key's value still */
    CU_ASSERT_PTR_EQUAL(key->spare, was);
    CU_ASSERT_EQUAL(key->ino, ino);
    check(&x.n);
    file_reap(&x.n, name_leave(key));
    name_show(&x.n, key);
    CU_ASSERT_PTR_EQUAL(key->file, was);
    CU_ASSERT_PTR_NULL(key->spare);
    CU_ASSERT_PTR_NULL(was->last);
    name_reap(&x.n, h);
    CU_ASSERT_PTR_NULL(names_find(&x.n, ".h"));
    check(&x.n);
    end(&x);
}

/* A number is used again when neither handle nor kernel has it, with another generation. */
static void test_reuse(void)
{
    struct fixture x;
    begin(&x);
    struct name *h = helper(&x, ".h");
    struct file *f = h->file;
    uint32_t number = f->number, ino = h->ino;
    f->lookups = f->opens = 1;
    CU_ASSERT_PTR_EQUAL(name_leave(h), f);
    name_reap(&x.n, h);
    file_reap(&x.n, f);
    CU_ASSERT_PTR_EQUAL(names_file(&x.n, number), f);
    f->opens = 0;
    file_reap(&x.n, f);
    CU_ASSERT_PTR_EQUAL(names_file(&x.n, number), f);
    f->lookups = 0;
    file_reap(&x.n, f);
    CU_ASSERT_PTR_NULL(names_file(&x.n, number));
    h = helper(&x, ".other");
    CU_ASSERT_EQUAL(h->file->number, number);
    CU_ASSERT_EQUAL(h->ino, ino);
    CU_ASSERT_EQUAL(x.n.at[number].generation, 1);
    check(&x.n);
    end(&x);
}

/* A key of the first generation keeps its number for itself, whatever becomes of it. */
static void test_first_stay(void)
{
    struct fixture x;
    begin(&x);
    struct name *key = first_key(&x, 3);
    struct file *f = name_leave(key);
    slot_event(&x.n, key, SLOT_REMOVED);
    file_reap(&x.n, f);
    CU_ASSERT_PTR_EQUAL(names_file(&x.n, 3), f);
    CU_ASSERT_NOT_EQUAL(helper(&x, ".h")->file->number, 3);
    check(&x.n);
    end(&x);
}

/* The states that a key goes through, and that the lists follow. */
static void test_slots(void)
{
    static const struct {
        enum slot_event event;
        enum slot then;
    } steps[] = {
        {SLOT_UNLINK, SLOT_DOOMED}, {SLOT_REFUSED, SLOT_STORED}, {SLOT_UNLINK, SLOT_DOOMED},
        {SLOT_BACK, SLOT_DOOMED},   {SLOT_CREATE, SLOT_STORED},  {SLOT_PARK, SLOT_PARKED},
        {SLOT_BACK, SLOT_PARKED},   {SLOT_LOST, SLOT_DOOMED},    {SLOT_REMOVED, SLOT_ABSENT},
        {SLOT_CREATE, SLOT_ABSENT}, {SLOT_UNLINK, SLOT_ABSENT},  {SLOT_ACCEPT, SLOT_STORED},
        {SLOT_GONE, SLOT_ABSENT},   {SLOT_BACK, SLOT_STORED},    {SLOT_PARK, SLOT_PARKED},
        {SLOT_ACCEPT, SLOT_STORED},
    };
    struct fixture x;
    begin(&x);
    struct name *key = first_key(&x, 1);
    (void)first_key(&x, 2);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        slot_event(&x.n, key, steps[i].event);
        CU_ASSERT_EQUAL(key->slot, steps[i].then);
        CU_ASSERT_PTR_EQUAL(x.n.doomed, key->slot == SLOT_DOOMED ? key : NULL);
        check(&x.n);
    }
    end(&x);
}

/* A key and its backup are a pair for as long as the key is parked. */
static void test_backup(void)
{
    struct fixture x;
    begin(&x);
    struct name *key = first_key(&x, 1), *h = helper(&x, "a.one~");
    slot_event(&x.n, key, SLOT_PARK);
    slot_backup(key, h->file);
    CU_ASSERT_PTR_EQUAL(h->file->parked, key);
    slot_event(&x.n, key, SLOT_ACCEPT);
    CU_ASSERT_PTR_NULL(h->file->parked);
    CU_ASSERT_PTR_NULL(key->backup);
    end(&x);
}

/* Names are found however many there are, and leave nothing when they go. */
static void test_many(void)
{
    enum { MANY = 500 };
    struct fixture x;
    char text[32];
    begin(&x);
    for (unsigned i = 0; i < MANY; i++) {
        (void)snprintf(text, sizeof(text), ".h%u", i);
        (void)helper(&x, text);
    }
    CU_ASSERT_EQUAL(x.n.by_text.n, MODEL_KEYS + MANY);
    for (unsigned i = 0; i < MANY; i += 2) {
        (void)snprintf(text, sizeof(text), ".h%u", i);
        struct name *h = names_find(&x.n, text);
        CU_ASSERT_PTR_NOT_NULL_FATAL(h);
        file_reap(&x.n, name_leave(h));
        name_reap(&x.n, h);
    }
    CU_ASSERT_EQUAL(x.n.by_text.n, MODEL_KEYS + MANY / 2);
    check(&x.n);
    (void)helper(&x, ".new");
    CU_ASSERT_EQUAL(x.n.numbers.given, MODEL_KEYS + MANY);
    end(&x);
}

static CU_TestInfo tests[] = {
    {"names, files and numbers of the first keys", test_numbers},
    {"names by their keys", test_by_key},
    {"a file takes a name, and the name is shown again", test_take},
    {"a number is used again when nothing refers to it", test_reuse},
    {"the number of a first key is not", test_first_stay},
    {"states of a slot", test_slots},
    {"a parked key and its backup", test_backup},
    {"many names", test_many},
    CU_TEST_INFO_NULL,
};

CU_MAIN("names", tests)

/* SPDX-License-Identifier: MIT */
/* Names, files and numbers in metadata/, without writing a model: invariants M1 and M2, which hold
 * after every operation. The scripts in test_live*.c test what programs see. */
#include <stdio.h>
#include <string.h>

#include "cu_main.h"
#include "live/objects.h"

enum { MODEL_KEYS = 4 };
static const char *const model_keys[MODEL_KEYS] = {"general.architecture", "a.one", "a.two",
                                                   "a.three"};

struct fixture {
    struct names n;
};

static void begin(struct fixture *x)
{
    names_init(&x->n, MODEL_KEYS);
}

static void end(struct fixture *x)
{
    names_close(&x->n);
}

/* Check M1 and the lists. */
static void check(const struct names *n)
{
    size_t named = 0, doomed = 0, errors = 0;
    for (const struct name *x = n->oldest; x; x = x->newer, named++) {
        CU_ASSERT_PTR_EQUAL(names_find(n, x->text), x);
        CU_ASSERT_TRUE(!x->file || file_name(x->file) == x);
        CU_ASSERT_TRUE(!x->file || names_file(n, x->file->number) == x->file);
        CU_ASSERT_PTR_EQUAL(names_of_ino(n, x->ino), x);
        doomed += x->doomed;
        errors += x->error != NULL;
    }
    CU_ASSERT_EQUAL(n->by_text.n, named);
    CU_ASSERT_EQUAL(n->n_doomed, doomed);
    CU_ASSERT_EQUAL(n->n_errors, errors);
}

static struct name *first_key(struct fixture *x, uint32_t i)
{
    struct name *key = names_touch(&x->n, i, model_keys[i], strlen(model_keys[i]));
    CU_ASSERT_PTR_NOT_NULL_FATAL(key);
    CU_ASSERT_PTR_NOT_NULL_FATAL(key->file);
    CU_ASSERT_EQUAL(key->file->number, i);
    return key;
}

static struct name *helper(struct fixture *x, const char *text)
{
    struct file *f = names_make(&x->n, text, FILE_HELPER);
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    return file_name(f);
}

static void test_numbers(void)
{
    struct fixture x;
    begin(&x);
    for (uint32_t i = MODEL_KEYS; i-- > 0;) {
        CU_ASSERT_PTR_NULL(names_file(&x.n, i));
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

/* A key too long for a file name gets a shortened name; a helper keeps its name. */
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
    h->file->lookups = 1;
    name_leave(&x.n, h);
    CU_ASSERT_PTR_EQUAL(names_get_key(&x.n, "b.one", 5), h);
    CU_ASSERT_STRING_EQUAL(h->key, "b.one");
    check(&x.n);
    end(&x);
}

/* If a helper's file takes a key's name, the key's own file still shows the key's value. */
static void test_take(void)
{
    struct fixture x;
    begin(&x);
    struct name *key = first_key(&x, 1), *h = helper(&x, ".h");
    struct file *was = key->file, *f = h->file;
    uint32_t ino = key->ino;
    name_take(&x.n, key, f);
    CU_ASSERT_PTR_EQUAL(key->file, f);
    CU_ASSERT_PTR_NULL(file_name(was));
    CU_ASSERT_PTR_EQUAL(was->of, key);
    CU_ASSERT_EQUAL(key->ino, ino);
    CU_ASSERT_PTR_NULL(h->file);
    name_reap(&x.n, h);
    CU_ASSERT_PTR_NULL(names_find(&x.n, ".h"));
    check(&x.n);
    end(&x);
}

/* A file and its name are freed once neither a handle nor the kernel refers to the file. Its number
 * is not reused. */
static void test_reap(void)
{
    struct fixture x;
    begin(&x);
    struct name *h = helper(&x, ".h");
    struct file *f = h->file;
    uint32_t number = f->number;
    f->lookups = f->opens = 1;
    name_leave(&x.n, h);
    CU_ASSERT_PTR_EQUAL(names_file(&x.n, number), f);
    f->opens = 0;
    file_reap(&x.n, f);
    CU_ASSERT_PTR_EQUAL(names_file(&x.n, number), f);
    f->lookups = 0;
    file_reap(&x.n, f);
    CU_ASSERT_PTR_NULL(names_file(&x.n, number));
    CU_ASSERT_PTR_NULL(names_find(&x.n, ".h"));
    CU_ASSERT_TRUE(helper(&x, ".other")->file->number > number);
    check(&x.n);
    end(&x);
}

static void test_first_stay(void)
{
    struct fixture x;
    begin(&x);
    struct name *key = first_key(&x, 3);
    struct file *f = key->file;
    name_leave(&x.n, key);
    CU_ASSERT_PTR_EQUAL(names_file(&x.n, 3), f);
    check(&x.n);
    end(&x);
}

/* Keys can be hidden in any order, and shown again. */
static void test_doomed(void)
{
    struct fixture x;
    begin(&x);
    struct name *one = first_key(&x, 1), *two = first_key(&x, 2), *h = helper(&x, "a.one~");
    one->backup = h->file;
    h->file->parked = one;
    name_doom(&x.n, one);
    CU_ASSERT_PTR_NULL(one->backup);
    CU_ASSERT_PTR_NULL(h->file->parked);
    name_doom(&x.n, two);
    CU_ASSERT(two->doomed);
    check(&x.n);
    name_spare(&x.n, one);
    CU_ASSERT(two->doomed);
    check(&x.n);
    name_spare(&x.n, two);
    name_spare(&x.n, two);
    CU_ASSERT(!one->doomed && !two->doomed);
    check(&x.n);
    end(&x);
}

/* Names are found however many there are, and are removed without a trace. */
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
    CU_ASSERT_EQUAL(x.n.by_text.n, MANY);
    for (unsigned i = 0; i < MANY; i += 2) {
        (void)snprintf(text, sizeof(text), ".h%u", i);
        struct name *h = names_find(&x.n, text);
        CU_ASSERT_PTR_NOT_NULL_FATAL(h);
        name_leave(&x.n, h);
    }
    CU_ASSERT_EQUAL(x.n.by_text.n, MANY / 2);
    check(&x.n);
    end(&x);
}

static CU_TestInfo tests[] = {
    {"initial keys have names, files and numbers", test_numbers},
    {"names are found by their keys", test_by_key},
    {"a file takes a name", test_take},
    {"a file is freed once nothing refers to it", test_reap},
    {"the file of an initial key stays", test_first_stay},
    {"keys can be hidden and shown again", test_doomed},
    {"many names are found and removed", test_many},
    CU_TEST_INFO_NULL,
};

CU_MAIN("names", tests)

/* SPDX-License-Identifier: MIT */
/* A text equal to a file's content is always accepted and changes nothing, even if no other text
 * could set the value: alignments out of range, unusual bools, payloads of NaNs, bytes that are not
 * UTF-8. */
#include "cu_main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "build_gguf.h"
#include "history_dir.h"
#include "model_dir.h"
#include "tree_edit.h"
#include "tree_image.h"
#include "tree/history.h"
#include "tree/nodes.h"

/* Make a model with unusual values and this alignment. */
static struct content odd_model(uint32_t alignment, bool big)
{
    struct content i;
    struct build b;
    build_init(&b, 3, big);
    b.alignment = alignment;
    build_str(&b, "general.architecture", "test");
    build_u32(&b, "general.alignment", alignment);
    build_num(&b, "odd.bool", GGUF_BOOL, 7);
    build_num(&b, "odd.f32", GGUF_F32, 0x7fc01234);
    build_num(&b, "odd.f64", GGUF_F64, 0xfff0000000000001);
    build_str_n(&b, "odd.text", "\xff\xfe\n\n", 4);
    build_array(&b, "odd.bools", GGUF_BOOL, 2);
    build_item_num(&b, GGUF_BOOL, 2);
    build_item_num(&b, GGUF_BOOL, 1);
    build_array(&b, "odd.texts", GGUF_STRING, 2);
    build_item_str(&b, "\x80");
    build_item_str(&b, "");
    build_tensor(&b, "a", F32, SHAPE(5), NULL, 20);
    i.bytes = build_finish(&b, &i.n);
    return i;
}

/* Write the text of each file in metadata/ back to the file. */
static void write_back(struct tree *t)
{
    const struct tree_image m = {.t = t};
    char *names = image_list(&m, "metadata"), *rest = names, *name;
    unsigned count = 0;
    while ((name = strtok_r(rest, "\n", &rest))) {
        char path[300];
        size_t n;
        (void)snprintf(path, sizeof(path), "metadata/%s", name);
        char *text = image_text(&m, path, &n);
        int r = do_write(t, name, text, n);
        if (r < 0)
            (void)printf("\n%s: %d\n", name, r);
        CU_ASSERT_EQUAL(r, 0);
        free(text);
        count++;
    }
    CU_ASSERT_EQUAL(count, 8);
    free(names);
}

static void check_alignment(uint32_t alignment, bool big)
{
    struct place p;
    struct stat before, after;
    struct tree_options o = {.strategy = EDIT_COPY, .commit = LIVE_COMMIT_CLOSE};
    struct tree *t = NULL;
    struct content odd = odd_model(alignment, big);
    make_place(&p, &odd);
    CU_ASSERT_EQUAL(stat(p.model, &before), 0);
    CU_ASSERT_EQUAL_FATAL(tree_open(p.model, &o, &t, NULL), 0);
    CU_ASSERT_TRUE(tree_writable(t));
    write_back(t);
    CU_ASSERT_EQUAL(tree_finish(t), 0);
    tree_close(t);
    CU_ASSERT_EQUAL(stat(p.model, &after), 0);
    CU_ASSERT_EQUAL(after.st_ino, before.st_ino);
    CU_ASSERT_EQUAL(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
    CU_ASSERT_TRUE(file_is(&p, &odd));
    drop_place(&p);
    free(odd.bytes);
}

static void test_own_text(void)
{
    static const uint32_t alignments[] = {1, 2, 4, 32, 1U << 20, 1U << 21};
    for (size_t i = 0; i < sizeof(alignments) / sizeof(alignments[0]); i++) {
        check_alignment(alignments[i], false);
        check_alignment(alignments[i], true);
    }
}

/* Make a model with the key `some.key\0x`, which equals `some.key` when read as a C string. */
static void make_nul_model(struct place *p, struct content *odd)
{
    struct build b;
    build_init(&b, 3, false);
    build_str(&b, "general.architecture", "test");
    build_raw(&b, "some.key\0x", 10, GGUF_U32, "abcd", 4);
    build_u32(&b, "other.key", 1);
    build_tensor(&b, "a", F32, SHAPE(5), NULL, 20);
    odd->bytes = build_finish(&b, &odd->n);
    make_place(p, odd);
}

static void lists(struct tree *t, const char *want)
{
    const struct tree_image m = {.t = t};
    char *names = image_list(&m, "metadata");
    CU_ASSERT_STRING_EQUAL(names, want);
    free(names);
}

/* `some.key` cannot be created in this model: it is refused before any write, and no other edit
 * fails as a result. */
static void test_equal_up_to_nul(void)
{
    struct content odd;
    struct place p;
    struct tree_options o = {.strategy = EDIT_COPY, .commit = LIVE_COMMIT_SYNC};
    struct tree *t = NULL;
    make_nul_model(&p, &odd);
    CU_ASSERT_EQUAL_FATAL(tree_open(p.model, &o, &t, NULL), 0);
    CU_ASSERT_EQUAL(do_write(t, "other.key", "2\n", 2), 0);
    CU_ASSERT_EQUAL(do_write(t, "some.key:u32", "3\n", 2), -EINVAL);
    CU_ASSERT_EQUAL(do_rename(t, "other.key", "some.key"), -EINVAL);
    CU_ASSERT_EQUAL(do_write(t, "new.key", "4\n", 2), 0);
    CU_ASSERT_EQUAL(do_sync(t), 0);
    lists(t, "general.architecture\nsome.key%00x\nother.key\nnew.key\n");
    CU_ASSERT_EQUAL(tree_finish(t), 0);
    tree_close(t);
    drop_place(&p);
    free(odd.bytes);
}

/* While the alignment exceeds 1 MiB, every other edit is refused at once. */
static void test_alignment_first(void)
{
    struct content odd = odd_model(1U << 21, false);
    struct place p;
    struct tree_options o = {.strategy = EDIT_COPY, .commit = LIVE_COMMIT_SYNC};
    struct tree *t = NULL;
    make_place(&p, &odd);
    CU_ASSERT_EQUAL_FATAL(tree_open(p.model, &o, &t, NULL), 0);
    CU_ASSERT_EQUAL(do_write(t, "odd.text", "x\n", 2), -EFBIG);
    CU_ASSERT_EQUAL(do_rename(t, "odd.text", "odd.name"), -EFBIG);
    CU_ASSERT_EQUAL(do_write(t, "general.alignment", "64\n", 3), 0);
    CU_ASSERT_EQUAL(do_write(t, "odd.text", "x\n", 2), 0);
    CU_ASSERT_EQUAL(do_sync(t), 0);
    CU_ASSERT_EQUAL(tree_finish(t), 0);
    tree_close(t);
    drop_place(&p);
    free(odd.bytes);
}

static CU_TestInfo tests[] = {
    {"each file accepts its own text", test_own_text},
    {"a name that equals another up to a NUL is refused alone", test_equal_up_to_nul},
    {"an alignment over 1 MiB must be lowered before other edits", test_alignment_first},
    CU_TEST_INFO_NULL,
};

CU_MAIN("own_text", tests)

/* SPDX-License-Identifier: MIT */
/* check/check: the report on models that break many rules, and on files that cannot be parsed. */
#include "cu_test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "check/check.h"
#include "build_gguf.h"

/* ---- the number of findings per rule is limited ---- */

static void count(void *arg, const struct check_finding *f)
{
    unsigned *n = arg;
    if (strcmp(f->rule, "key-syntax") != 0)
        return;
    if (++*n > CHECK_MOST)
        CU_ASSERT_STRING_EQUAL(f->what, "5 more of these");
}

TEST("the findings of one rule are limited")
{
    unsigned n = 0;
    char key[16];
    struct build b = build_of(3, false);
    for (int i = 0; i < CHECK_MOST + 5; i++) {
        (void)snprintf(key, sizeof(key), "K.%d", i);
        build_u32(&b, key, 1);
    }
    CLEANUP(parsed_free) struct parsed p = parse_build(&b, 0);
    struct check_model m = {.g = p.g};
    CU_ASSERT_EQUAL(check_rules(&m, count, &n), 0);
    CU_ASSERT_EQUAL(n, CHECK_MOST + 1);
}

/* ---- architectures ---- */

struct wanted {
    unsigned n;
    const char *key;
};

static void required(void *arg, const struct check_finding *f)
{
    struct wanted *w = arg;
    if (strcmp(f->rule, "required") != 0)
        return;
    w->n++;
    CU_ASSERT_TRUE(!w->key || strstr(f->what, w->key));
}

/* Check how many required keys are reported for each architecture if the model has none of them. */
TEST("missing required keys of each architecture are counted")
{
    static const struct {
        const char *arch;
        unsigned n;
    } want[] = {{"llama", 6}, {"mpt", 6},     {"gptneox", 7}, {"gptj", 6},
                {"gpt2", 6},  {"bloom", 6},   {"falcon", 6},  {"mamba", 8},
                {"rwkv", 4},  {"whisper", 9}, {"other", 0}};
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        struct wanted w = {0, want[i].arch};
        struct build b = build_of(3, false);
        build_str(&b, "general.architecture", want[i].arch);
        CLEANUP(parsed_free) struct parsed p = parse_build(&b, 0);
        CU_ASSERT_EQUAL(check_rules(&(struct check_model){.g = p.g}, required, &w), 0);
        CU_ASSERT_EQUAL(w.n, want[i].n);
    }
}

/* ---- faults after which the parser continues ---- */

struct faults {
    unsigned n;
    char all[2048];
};

static void on_fault(void *arg, const struct err *e)
{
    struct faults *f = arg;
    f->n++;
    CU_ASSERT_TRUE(e->where > 0 && strncmp(e->msg + e->where, ": ", 2) == 0);
    (void)strncat(f->all, e->msg, e->where);
    (void)strcat(f->all, "\n");
}

TEST("the parser continues after a fault, and reports every one")
{
    struct faults f = {0};
    struct gguf *g = NULL;
    struct err e = {0};
    size_t n;
    struct build b = build_of(3, false);
    build_text(&b, "a.b:u32=1|general.alignment:u32=24|a.b:u32=2|>t F32 16 64 0|>u F32 16 64 32|"
                   ">v F32 2 8 100|>w Q4_0 31 8 128");
    CLEANUP(free_it) uint8_t *image = build_finish(&b, &n);
    struct source s = source_mem(image, n);
    CU_ASSERT_EQUAL(gguf_parse(&s, 0, &g, &e), -EBADMSG);
    CU_ASSERT_EQUAL_FATAL(gguf_parse_faults(&s, on_fault, &f, &g, &e), 0);
    CU_ASSERT_STRING_EQUAL(f.all, "tensor 3 'w': dimension at byte 207\n"
                                  "key 2 'a.b': name at byte 84\n"
                                  "key 1 'general.alignment': value at byte 72\n"
                                  "tensor 2 'v': offset at byte 186\n"
                                  "tensor 1 'u': offset at byte 153\n");
    CU_ASSERT_EQUAL(g->n_kv, 3);
    CU_ASSERT_EQUAL(g->n_tensors, 4);
    CU_ASSERT_EQUAL(g->alignment, 32);
    CU_ASSERT_EQUAL(g->tensor[3].n_elem, 0);
    gguf_free(g);
    s = source_mem(image, 30); /* the file ends inside a key, so nothing can be read */
    CU_ASSERT_EQUAL(gguf_parse_faults(&s, on_fault, &f, &g, &e), -EBADMSG);
}

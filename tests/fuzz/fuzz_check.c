/* SPDX-License-Identifier: MIT */
/*
 * Treats arbitrary bytes as a model to check: parses them as far as possible, applies all rules,
 * scans all values, and suggests a name. Also treats the bytes as a file name.
 */
#include "fuzz.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check/check.h"
#include "check/filename.h"

/* A finding must be one printable line. */
static void sink(void *arg, const struct check_finding *f)
{
    (void)arg;
    FUZZ_CHECK(f->rule[0] && f->what[0] && f->where);
    for (const char *p = f->what; *p; p++)
        FUZZ_CHECK((unsigned char)*p >= 0x20 && *p != 0x7f);
    for (const char *p = f->where; *p; p++)
        FUZZ_CHECK((unsigned char)*p >= 0x20 && *p != 0x7f);
}

static void on_fault(void *arg, const struct err *e)
{
    unsigned *faults = arg;
    ++*faults;
    FUZZ_CHECK(e->where > 0 && strncmp(e->msg + e->where, ": ", 2) == 0);
}

static void check_name(const struct gguf *g)
{
    CLEANUP(buf_free) struct buf name = BUF_INIT;
    struct file_name f;
    file_name_suggest(g, &name);
    FUZZ_CHECK(buf_error(&name) == 0 && name.len <= 255);
    buf_char(&name, '\0');
    FUZZ_CHECK(file_name_parse((const char *)name.data, &f));
}

static void check_values(const struct gguf *g, const uint8_t *data, size_t size)
{
    struct map m = {.fd = -1, .data = data, .size = size};
    struct scan_result *found = calloc((size_t)g->n_tensors + 1, sizeof(*found));
    FUZZ_CHECK(found && scan_run(g, &m, NULL, found) == -EIO); /* there is no file behind the map */
    free(found);
}

static void check_as_name(const uint8_t *data, size_t size)
{
    char *name = calloc(size + sizeof(".gguf"), 1);
    struct file_name f;
    FUZZ_CHECK(name);
    memcpy(name, data, size);
    (void)file_name_parse(name, &f);
    (void)memcpy(name + strlen(name), ".gguf", sizeof(".gguf"));
    if (file_name_parse(name, &f))
        FUZZ_CHECK(f.part[PART_BASE].at && f.part[PART_SIZE].len && f.part[PART_VERSION].len);
    free(name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct source s = source_mem(data, size);
    struct gguf *g = NULL, *strict = NULL;
    struct err e = {0};
    unsigned faults = 0;
    int r = gguf_parse(&s, 0, &strict, NULL);
    int rf = gguf_parse_faults(&s, on_fault, &faults, &g, &e);
    FUZZ_CHECK(r == 0 ? rf == 0 && faults == 0 : rf < 0 || faults > 0);
    if (g) {
        struct check_model m = {.g = g, .src = &s, .file = "A-7B-v1.0.gguf"};
        FUZZ_CHECK(check_rules(&m, sink, NULL) == 0);
        check_name(g);
        check_values(g, data, size);
    }
    check_as_name(data, size);
    gguf_free(g);
    gguf_free(strict);
    return 0;
}

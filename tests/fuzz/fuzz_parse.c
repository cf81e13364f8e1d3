/* SPDX-License-Identifier: MIT */
/*
 * Treats arbitrary bytes as a model: parses them and, if that succeeds, finds every name, renders
 * every value as text and as JSON, and decodes ranges of every tensor's data. As far as they can be
 * parsed, applies all rules of --check, scans all values, and suggests a name.
 */
#include "fuzz.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "check/check.h"
#include "check/filename.h"
#include "gguf/gguf.h"
#include "text/json.h"
#include "text/text.h"

/* Check that the text has its measured size. */
static void render(void (*write)(struct buf *out, const struct gguf_value *v),
                   const struct gguf_value *v)
{
    struct buf size = BUF_MEASURE;
    CLEANUP(buf_free) struct buf out = BUF_INIT;
    write(&size, v);
    write(&out, v);
    FUZZ_CHECK(buf_error(&size) == 0 && buf_error(&out) == 0);
    FUZZ_CHECK(size.len == out.len);
}

static void check_keys(const struct gguf *g)
{
    uint64_t at = 8 + 2 * (uint64_t)g->fmt.len_width;
    for (uint32_t i = 0; i < g->n_kv; i++) {
        const struct gguf_kv *kv = &g->kv[i];
        struct gguf_value v = gguf_value(g, kv);
        char type[GGUF_TYPE_NAME_MAX];
        FUZZ_CHECK(kv->off == at && kv->end <= g->head_len);
        FUZZ_CHECK(gguf_value_end(&v) == g->head + kv->end);
        FUZZ_CHECK(gguf_find_key(g, gguf_key(g, kv), kv->key_len) == i);
        FUZZ_CHECK(gguf_type_name(&v, type)[0] != '\0');
        render(text_value, &v);
        render(json_value, &v);
        at = kv->end;
    }
}

/* Decode ranges at the beginning, at the end of a block and at the end of the tensor, into aligned
 * and unaligned buffers. */
static void decode(const struct gguf *g, const struct gguf_tensor *t, const uint8_t *data,
                   const struct quant_form *form)
{
    const struct quant_type *type = gguf_type(t);
    const uint64_t bytes = t->n_elem * form->width;
    const uint64_t from[] = {0, 3, (uint64_t)type->block_len * form->width - 1,
                             bytes > 77 ? bytes - 77 : 0};
    uint8_t out[2048 + 1];
    for (size_t i = 0; i < sizeof(from) / sizeof(from[0]); i++) {
        if (from[i] >= bytes)
            continue;
        size_t n = (size_t)min_u64(bytes - from[i], sizeof(out) - 1);
        uint64_t first, last;
        quant_extent(type, form->width, from[i], n, &first, &last);
        FUZZ_CHECK(first < last && last <= t->nbytes);
        quant_read(form, type, g->fmt.big, data + t->off, from[i], n, out + (i & 1));
    }
}

static void check_tensors(const struct gguf *g, const uint8_t *data, size_t size)
{
    FUZZ_CHECK(g->data_off >= g->head_len && g->data_end >= g->data_off);
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensor[i];
        const char *name = gguf_name(g, t);
        FUZZ_CHECK(t->off >= g->data_off && t->off % g->alignment == 0);
        FUZZ_CHECK(t->nbytes == 0 || t->off + t->nbytes <= g->data_end);
        FUZZ_CHECK(gguf_find_tensor(g, name, t->name_len) == i);
        for (uint32_t k = 0; k < t->n_dims; k++)
            FUZZ_CHECK(t->n_elem == 0 || t->n_elem % gguf_dim(g, t, k) == 0);
        if (t->off + t->nbytes > size || !quant_has_values(gguf_type(t), g->fmt.big))
            continue;
        decode(g, t, data, &quant_f32);
        decode(g, t, data, &quant_f16);
        decode(g, t, data, &quant_bf16);
    }
    FUZZ_CHECK(g->data_end <= size || g->anomalies & GGUF_ANOMALY_PARTIAL);
}

/* Parse the bytes; a refusal must have a printable message. */
static int parse(const struct source *s, unsigned flags, struct gguf **ret)
{
    struct err e = {0};
    int r = gguf_parse(s, flags, ret, &e);
    if (r == 0)
        return 0;
    FUZZ_CHECK(r == -EBADMSG || r == -ENODATA);
    FUZZ_CHECK(e.code == r && strstr(e.msg, " at byte ") && !strchr(e.msg, '\n'));
    return r;
}

/* ---- the rules of --check, as far as the bytes can be parsed ---- */

/* A finding must be one printable line. */
static void sink(void *arg, const struct check_finding *f)
{
    (void)arg;
    FUZZ_CHECK(f->rule[0] && f->where);
    fuzz_line(f->what);
}

static void on_fault(void *arg, const struct err *e)
{
    unsigned *faults = arg;
    ++*faults;
    FUZZ_CHECK(e->where > 0 && strncmp(e->msg + e->where, ": ", 2) == 0);
}

static void check_suggestion(const struct gguf *g)
{
    CLEANUP(buf_free) struct buf name = BUF_INIT;
    struct text part[FILE_PARTS];
    file_name_suggest(g, &name);
    FUZZ_CHECK(buf_error(&name) == 0 && name.len <= 255);
    buf_char(&name, '\0');
    FUZZ_CHECK(file_name_parse((const char *)name.data, part));
}

static void check_values(const struct gguf *g, const struct source *s)
{
    struct scan_result *found = calloc((size_t)g->n_tensors + 1, sizeof(*found));
    FUZZ_CHECK(found && scan_run(g, s, NULL, found) == 0);
    free(found);
}

static void check(const struct source *s, int strict)
{
    struct gguf *g = NULL;
    struct err e = {0};
    unsigned faults = 0;
    int r = gguf_parse_faults(s, on_fault, &faults, &g, &e);
    FUZZ_CHECK(strict == 0 ? r == 0 && faults == 0 : r < 0 || faults > 0);
    if (!g)
        return;
    struct check_model m = {.g = g, .src = s, .file = "A-7B-v1.0.gguf"};
    FUZZ_CHECK(check_rules(&m, sink, NULL) == 0);
    check_suggestion(g);
    check_values(g, s);
    gguf_free(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct source s = source_mem(data, size);
    struct gguf *g = NULL, *partial = NULL, *cut = NULL;
    int r = parse(&s, 0, &g), rp = parse(&s, GGUF_PARTIAL, &partial);
    FUZZ_CHECK(rp == (r == -ENODATA ? 0 : r));
    int rc = parse(&s, GGUF_PARTIAL | GGUF_CUT, &cut);
    FUZZ_CHECK(rc == rp || (rc == 0 && cut->anomalies & GGUF_ANOMALY_CUT && cut->n_tensors == 0));
    if (cut)
        check_keys(cut);
    if (partial) {
        check_keys(partial);
        check_tensors(partial, data, size);
    }
    check(&s, r);
    gguf_free(g);
    gguf_free(partial);
    gguf_free(cut);
    return 0;
}

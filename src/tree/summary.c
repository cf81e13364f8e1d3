/* SPDX-License-Identifier: MIT */
/* The file that tells people of the model as a whole: `info`. See files.h. */
#include "tree/files.h"

#include <inttypes.h>
#include <string.h>

#include "check/filename.h"
#include "edit/change.h"

static void label(struct buf *out, const char *name)
{
    buf_printf(out, "%-16s", name);
}

/* A line with a text made safe for a terminal; "-" or nothing where there is none. */
static void text_line(struct buf *out, const char *name, struct text t, bool always)
{
    char shown[SHOW_MAX];
    if (!t.at && !always)
        return;
    label(out, name);
    buf_str(out, t.at ? show(shown, t.at, t.len) : "-");
    buf_char(out, '\n');
}

static void uint_line(struct buf *out, const char *name, const struct gguf *m, const char *key)
{
    uint64_t v;
    if (!fact_arch_uint(m, key, &v))
        return;
    label(out, name);
    buf_printf(out, "%" PRIu64 "\n", v);
}

/* "4.2 GiB", or plain bytes below 1 KiB. */
static void size_text(struct buf *out, uint64_t bytes)
{
    static const char *const unit[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = (double)bytes;
    size_t u = 0;
    for (; v >= 1024 && u < sizeof(unit) / sizeof(unit[0]) - 1; u++)
        v /= 1024;
    buf_printf(out, u ? "%.1f %s" : "%.0f %s", v, unit[u]);
}

static void info_params(const struct gguf *m, struct buf *out)
{
    char count[SIZE_LABEL_MAX];
    struct params p = fact_params(m);
    fact_size_label(&p, count);
    label(out, "parameters:");
    if (p.total < 1000)
        buf_printf(out, "%" PRIu64 "\n", p.total);
    else
        buf_printf(out, "%s (%" PRIu64 ")\n", count, p.total);
}

static void info_types(const struct gguf *m, struct buf *out)
{
    struct share s[SHARES_MAX];
    size_t n = fact_shares(m, s);
    double all = 0;
    for (size_t i = 0; i < n; i++)
        all += (double)s[i].bytes;
    for (size_t i = 0; i < n; i++) {
        label(out, i ? "" : "types:");
        fact_type_name(s[i].first, out);
        buf_printf(out, "  %" PRIu64 " tensor%s, ", s[i].tensors, s[i].tensors == 1 ? "" : "s");
        size_text(out, s[i].bytes);
        buf_printf(out, ", %.1f%%\n", all > 0 ? 100 * (double)s[i].bytes / all : 0);
    }
}

/* "32", "32 (8 of keys and values)"; a model may have another number in each layer. */
static void info_heads(const struct gguf *m, struct buf *out)
{
    uint64_t heads, kv;
    if (fact_arch_key(m, "attention.head_count") == UINT32_MAX)
        return;
    label(out, "heads:");
    if (!fact_arch_uint(m, "attention.head_count", &heads))
        buf_str(out, "by layer");
    else
        buf_printf(out, "%" PRIu64, heads);
    if (fact_arch_uint(m, "attention.head_count_kv", &kv))
        buf_printf(out, " (%" PRIu64 " of keys and values)", kv);
    buf_char(out, '\n');
}

static void info_vocabulary(const struct gguf *m, struct buf *out)
{
    char shown[SHOW_MAX];
    uint64_t tokens;
    struct text model = fact_text(m, "tokenizer.ggml.model");
    struct text pre = fact_text(m, "tokenizer.ggml.pre");
    if (!fact_vocabulary(m, &tokens))
        return;
    label(out, "vocabulary:");
    buf_printf(out, "%" PRIu64 " tokens", tokens);
    if (model.at)
        buf_printf(out, ", tokenizer %s", show(shown, model.at, model.len));
    if (pre.at)
        buf_printf(out, ", %s", show(shown, pre.at, pre.len));
    buf_char(out, '\n');
}

/* The file's name taken apart by the naming convention. */
static void info_file(const char *file, struct buf *out)
{
    char shown[SHOW_MAX];
    struct file_name f;
    text_line(out, "file:", (struct text){file, strlen(file)}, true);
    if (!file_name_parse(file, &f))
        return;
    const char *between = "";
    label(out, "file name says:");
    for (int i = 0; i < FILE_PARTS; i++)
        if (f.part[i].at) {
            buf_printf(out, "%s%s %s", between, file_part_name[i],
                       show(shown, f.part[i].at, f.part[i].len));
            between = ", ";
        }
    buf_char(out, '\n');
}

static void info_layout(const struct gguf *m, struct buf *out)
{
    struct gguf_value v;
    label(out, "alignment:");
    buf_printf(out, "%" PRIu64 "\n", m->alignment);
    label(out, "data offset:");
    buf_printf(out, "%" PRIu64 "\n", m->data_off);
    label(out, "reserve:");
    if (fact_value(m, EDIT_RESERVE_KEY, &v) && v.type == GGUF_STRING)
        size_text(out, v.len);
    else
        buf_str(out, "none");
    buf_char(out, '\n');
}

void info_text(const struct view *v, const char *file, struct buf *out)
{
    const struct gguf *m = v->gen->gguf;
    text_line(out, "name:", fact_text(m, "general.name"), true);
    text_line(out, "architecture:", fact_text(m, "general.architecture"), true);
    info_params(m, out);
    label(out, "size:");
    size_text(out, m->file_size);
    buf_printf(out, " (%" PRIu64 " bytes)\n", m->file_size);
    info_types(m, out);
    uint_line(out, "context length:", m, "context_length");
    uint_line(out, "layers:", m, "block_count");
    uint_line(out, "embedding:", m, "embedding_length");
    info_heads(m, out);
    info_vocabulary(m, out);
    text_line(out, "license:", fact_text(m, "general.license"), false);
    info_file(file, out);
    if (v->gen->shards) {
        label(out, "shards:");
        buf_printf(out, "%zu\n", v->gen->shards->n);
    }
    label(out, "format:");
    buf_printf(out, "GGUF version %u%s, %s-endian\n", m->fmt.version,
               m->fmt.draft ? " (first draft)" : "", m->fmt.big ? "big" : "little");
    label(out, "keys:");
    buf_printf(out, "%" PRIu32 "\n", m->n_kv);
    label(out, "tensors:");
    buf_printf(out, "%" PRIu32 "\n", m->n_tensors);
    info_layout(m, out);
}

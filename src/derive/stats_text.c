/* SPDX-License-Identifier: MIT */
/* Statistics as text: see stats_text.h. */
#include "derive/stats_text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "model/facts.h"
#include "text/number.h"

/* Columns. A double takes at most 24 ("-2.2250738585072014e-308"), a float 15, a count 20. */
enum { NAME = 9, VALUE = 24, COUNT = 20, BAR = 40, FLOAT = 15 };

_Static_assert(9 * (NAME + VALUE + 1) + STATS_BINS * (VALUE + 1 + COUNT + 1 + BAR + 1) ==
                   STATS_TEXT,
               "the size of `stats`");

/* Spaces until `width` bytes have been written since `from`. */
static void pad(struct buf *out, size_t from, size_t width)
{
    while (out->len - from < width)
        buf_char(out, ' ');
}

static void real_line(struct buf *out, const char *name, double v)
{
    size_t from = out->len;
    buf_printf(out, "%-*s", NAME, name);
    text_f64(out, v, &float_names_text);
    pad(out, from, NAME + VALUE);
    buf_char(out, '\n');
}

/* A float as short as it can be. */
static void float_line(struct buf *out, const char *name, float v)
{
    size_t from = out->len;
    buf_printf(out, "%-*s", NAME, name);
    text_f32(out, v, &float_names_text);
    pad(out, from, NAME + VALUE);
    buf_char(out, '\n');
}

static void count_line(struct buf *out, const char *name, uint64_t n)
{
    buf_printf(out, "%-*s%-*" PRIu64 "\n", NAME, name, VALUE, n);
}

static double deviation(const struct moments *m)
{
    return sqrt(m->squares / (double)m->n);
}

/* Any count has a bar; the largest has all of it. */
static size_t bar(uint64_t n, uint64_t most)
{
    size_t ret = (size_t)ceil((double)n / (double)most * BAR);
    return ret < BAR ? ret : BAR;
}

static void bin_lines(struct buf *out, const struct bins *b, float absmax)
{
    uint64_t most = 1;
    for (size_t i = 0; i < STATS_BINS; i++)
        most = max_u64(most, b->count[i]);
    for (size_t i = 0; i < STATS_BINS; i++) {
        size_t from = out->len;
        double edge = (double)absmax * ((double)i - STATS_BINS / 2) / (STATS_BINS / 2); /* exact */
        text_f64(out, edge == 0 ? 0 : edge, &float_names_text);
        pad(out, from, VALUE + 1);
        buf_printf(out, "%*" PRIu64 " ", COUNT, b->count[i]);
        from = out->len;
        for (size_t n = bar(b->count[i], most); n > 0; n--)
            buf_char(out, '#');
        pad(out, from, BAR);
        buf_char(out, '\n');
    }
}

void stats_text(const struct moments *m, const struct bins *b, struct buf *out)
{
    bool any = m->n > 0;
    count_line(out, "elements", m->n + m->nan + m->inf);
    float_line(out, "min", any ? m->min : NAN);
    float_line(out, "max", any ? m->max : NAN);
    real_line(out, "mean", any ? m->mean : NAN);
    real_line(out, "std", any ? deviation(m) : NAN);
    float_line(out, "absmax", any ? moments_absmax(m) : NAN);
    count_line(out, "zeros", m->zeros);
    count_line(out, "nan", m->nan);
    count_line(out, "inf", m->inf);
    bin_lines(out, b, moments_absmax(m));
}

/* ---- stats.tsv ---- */

void stats_head(struct buf *out)
{
    buf_str(out, "name\ttype\telements\tmin\tmax\tmean\tstd\tabsmax\tzeros\tnan\tinf\tshape\n");
}

/* What min, max, mean, std, absmax, zeros, nan and inf take at most, with a tab before each. */
static size_t fields_most(const struct gguf_tensor *t)
{
    return 3 * (1 + FLOAT) + 2 * (1 + VALUE) + 3 * (1 + digits_u64(t->n_elem));
}

static void before_fields(const struct gguf *g, const struct gguf_tensor *t, struct buf *out)
{
    show_all(out, gguf_name(g, t), t->name_len);
    buf_char(out, '\t');
    fact_type_name(t, out);
    buf_printf(out, "\t%" PRIu64, t->n_elem);
}

size_t stats_line_size(const struct gguf *g, const struct gguf_tensor *t)
{
    struct buf m = BUF_MEASURE;
    before_fields(g, t, &m);
    buf_char(&m, '\t');
    fact_shape(g, t, " ", &m);
    return m.len + fields_most(t) + 1;
}

static void fields(const struct moments *m, struct buf *out)
{
    bool any = m->n > 0;
    const float single[] = {m->min, m->max, moments_absmax(m)};
    const double twice[] = {m->mean, any ? deviation(m) : 0};
    for (size_t i = 0; i < 5; i++) {
        buf_char(out, '\t');
        if (i == 2 || i == 3)
            text_f64(out, any ? twice[i - 2] : NAN, &float_names_text);
        else
            text_f32(out, any ? single[i < 2 ? i : 2] : NAN, &float_names_text);
    }
    buf_printf(out, "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64, m->zeros, m->nan, m->inf);
}

void stats_line(const struct gguf *g, const struct gguf_tensor *t, const struct moments *m,
                struct buf *out)
{
    size_t from = out->len, size = stats_line_size(g, t);
    before_fields(g, t, out);
    if (m)
        fields(m, out);
    else
        buf_str(out, "\t\t\t\t\t\t\t\t");
    buf_char(out, '\t');
    fact_shape(g, t, " ", out);
    pad(out, from, size - 1);
    buf_char(out, '\n');
}

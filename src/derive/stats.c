/* SPDX-License-Identifier: MIT */
/* Computes statistics, and writes files with a line per tensor: see stats.h. */
#include "derive/stats.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/facts.h"
#include "text/number.h"

/* Move the finite values to the front and count the others. Returns the number of finite values. */
static size_t leave_finite(struct moments *m, float *x, size_t n)
{
    size_t left = 0;
    if (!HOST_BIG && quant_all_finite((const uint8_t *)x, n)) /* much faster, and usual */
        return n;
    for (size_t i = 0; i < n; i++) {
        m->nan += isnan(x[i]) != 0;
        m->inf += isinf(x[i]) != 0;
        if (isfinite(x[i]))
            x[left++] = x[i];
    }
    return left;
}

/* Sums and extremes are computed in lanes, side by side: value i always goes to lane i % LANES, so
 * every compiler gives the same bits. */
enum { LANES = 16 };

static double first_power(double d)
{
    return d;
}

static double square(double d)
{
    return d * d;
}

static double fourth_power(double d)
{
    return d * d * (d * d);
}

/* Return the sum of power(distance) over the distances from the mean. */
static inline double sum_of(const float *x, size_t n, double mean, double (*power)(double d))
{
    double lane[LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            lane[l] += power((double)x[i + l] - mean);
    for (size_t l = 0; i < n; i++, l++)
        lane[l] += power((double)x[i] - mean);
    for (size_t l = 0; l < LANES; l++)
        sum += lane[l];
    return sum;
}

static void find_extremes(struct moments *m, const float *x, size_t n)
{
    float low[LANES], high[LANES];
    uint32_t zeros[LANES] = {0};
    for (size_t l = 0; l < LANES; l++)
        low[l] = high[l] = x[0];
    for (size_t i = 0; i < n; i += LANES)
        for (size_t l = 0; l < LANES && l < n - i; l++) {
            low[l] = x[i + l] < low[l] ? x[i + l] : low[l];
            high[l] = x[i + l] > high[l] ? x[i + l] : high[l];
            zeros[l] += x[i + l] == 0;
        }
    m->min = m->max = x[0];
    for (size_t l = 0; l < LANES; l++) {
        m->min = low[l] < m->min ? low[l] : m->min;
        m->max = high[l] > m->max ? high[l] : m->max;
        m->zeros += zeros[l];
    }
    m->min += 0.0f; /* -0 becomes 0, so that it does not matter which zero comes first */
    m->max += 0.0f;
}

void moments_add(struct moments *m, float *x, size_t n)
{
    struct moments own = MOMENTS_NONE;
    own.n = leave_finite(&own, x, n);
    if (own.n > 0) {
        find_extremes(&own, x, own.n);
        own.mean = sum_of(x, own.n, 0, first_power) / (double)own.n;
        own.squares = sum_of(x, own.n, own.mean, square);
    }
    moments_join(m, &own);
}

void moments_join(struct moments *m, const struct moments *next)
{
    uint64_t n = m->n + next->n;
    m->nan += next->nan;
    m->inf += next->inf;
    m->zeros += next->zeros;
    if (next->n == 0)
        return;
    double part = (double)next->n / (double)n, apart = next->mean - m->mean;
    m->min = m->n == 0 || next->min < m->min ? next->min : m->min;
    m->max = m->n == 0 || next->max > m->max ? next->max : m->max;
    m->squares += next->squares + apart * apart * (double)m->n * part;
    m->mean += apart * part;
    m->n = n;
}

float moments_absmax(const struct moments *m)
{
    if (m->n == 0)
        return 0;
    return -m->min > m->max ? -m->min : m->max;
}

static double deviation(const struct moments *m)
{
    return sqrt(m->squares / (double)m->n);
}

/* ---- the second pass ---- */

int alive_begin(struct alive *a, const struct gguf *g, const struct gguf_tensor *t)
{
    *a = (struct alive){.columns = t->n_dims > 0 ? gguf_dim(g, t, 0) : 1,
                        .rows = t->n_dims > 1 ? gguf_dim(g, t, 1) : 1};
    if (t->n_elem == 0)
        return 0;
    a->matrices = t->n_elem / a->columns / a->rows;
    if (a->rows > 1 && a->columns > 1) {
        a->row = calloc(a->matrices * (a->rows + a->columns), sizeof(*a->row));
        if (!a->row)
            return -ENOMEM;
        a->column = a->row + a->matrices * a->rows;
    }
    return 0;
}

void alive_free(struct alive *a)
{
    free(a->row);
}

static uint64_t dead(const atomic_uchar *mark, uint64_t n)
{
    uint64_t ret = 0;
    for (uint64_t i = 0; i < n; i++)
        ret += !atomic_load_explicit(&mark[i], memory_order_relaxed);
    return ret;
}

/* Mark the rows and columns of n values; the first has index `at`. */
static void mark_alive(const struct alive *a, const float *x, uint64_t at, size_t n)
{
    uint64_t row = at / a->columns, column = at % a->columns;
    for (size_t i = 0; i < n; row++, column = 0) {
        atomic_uchar *of_columns = a->column + row / a->rows * a->columns;
        bool any = false;
        for (; i < n && column < a->columns; i++, column++) {
            any |= x[i] != 0;
            if (!atomic_load_explicit(&of_columns[column], memory_order_relaxed) && x[i] != 0)
                atomic_store_explicit(&of_columns[column], 1, memory_order_relaxed);
        }
        if (any)
            atomic_store_explicit(&a->row[row], 1, memory_order_relaxed);
    }
}

/* Count values in their bins. An estimate errs by far less than a bin; where it is near an edge, it
 * is the lower bin, and the edge decides. */
static void add_bins(uint64_t *count, const float *x, size_t n, double mean, double std)
{
    const double scale = 4 / std, most = STATS_BINS / 2 - 0.5;
    double edge[STATS_BINS + 1];
    for (int i = 0; i <= STATS_BINS; i++)
        edge[i] = i < STATS_BINS ? mean + std * (i - STATS_BINS / 2) / 4 : INFINITY;
    for (size_t i = 0; i < n; i++) {
        const double away = ((double)x[i] - mean) * scale;
        const double place = away < -most ? -most : away > most ? most : away;
        const int bin = (int)(place + STATS_BINS / 2 - 1e-9);
        count[bin + ((double)x[i] >= edge[bin + 1])]++;
    }
}

void spread_add(struct spread *s, struct alive *a, const struct moments *all, float *x, uint64_t at,
                size_t n)
{
    struct moments others = MOMENTS_NONE;
    const float most = moments_absmax(all);
    for (size_t i = 0; i < n && !s->first; i++)
        s->first = fabsf(x[i]) == most ? at + i + 1 : 0;
    if (a->row)
        mark_alive(a, x, at, n);
    n = leave_finite(&others, x, n);
    if (all->squares > 0)
        add_bins(s->count, x, n, all->mean, deviation(all));
    else
        s->count[STATS_BINS / 2] += n;
    s->fourth += sum_of(x, n, all->mean, fourth_power);
}

void spread_join(struct spread *s, const struct spread *next)
{
    for (size_t i = 0; i < STATS_BINS; i++)
        s->count[i] += next->count[i];
    s->fourth += next->fourth;
    s->first = s->first ? s->first : next->first;
}

/* ---- as text ---- */

/* Widths of columns. A double has at most 24 characters ("-2.2250738585072014e-308"), a float 15, a
 * count 20. */
enum { NAME = 14, VALUE = 28, DOUBLE = 24, COUNT = 20, BAR = 40, FLOAT = 15 };
/* Lines of the histogram: one below -4 deviations, 32 for quarters of a deviation, one above 4. */
enum { LINES = 1 + 32 + 1 };

_Static_assert(15 * (NAME + VALUE + 1) + LINES * (DOUBLE + 1 + COUNT + 1 + BAR + 1) == STATS_TEXT,
               "the size of `stats`");

/* Append spaces until `width` bytes follow `from`, or memory runs out. */
static void pad(struct buf *out, size_t from, size_t width)
{
    while (!out->err && out->len - from < width)
        buf_char(out, ' ');
}

/* Write a line with a value. If `single`, print it as the shortest float. */
static void value_line(struct buf *out, const char *name, double v, bool single)
{
    size_t from = out->len;
    buf_printf(out, "%-*s", NAME, name);
    text_float(out, v, single, &float_names_text);
    pad(out, from, NAME + VALUE);
    buf_char(out, '\n');
}

static void count_line(struct buf *out, const char *name, uint64_t n)
{
    buf_printf(out, "%-*s%-*" PRIu64 "\n", NAME, name, VALUE, n);
}

/* Write the index of value i in NumPy's order (that of `shape`), or "-" if there is no such value
 * or the index is too long. */
static void index_line(struct buf *out, const char *name, const struct gguf *g,
                       const struct gguf_tensor *t, uint64_t i, bool any)
{
    size_t from = out->len;
    buf_printf(out, "%-*s", NAME, name);
    size_t at = out->len;
    if (any)
        fact_index(g, t, i, " ", out);
    if (out->len == at || out->len > from + NAME + VALUE) {
        out->len = at;
        buf_char(out, '-');
    }
    pad(out, from, NAME + VALUE);
    buf_char(out, '\n');
}

/* Return the length of a count's bar. Any count above 0 gets a bar; the largest gets a full one. */
static size_t bar(uint64_t n, uint64_t most)
{
    size_t ret = (size_t)ceil((double)n / (double)most * BAR);
    return ret < BAR ? ret : BAR;
}

static void bin_lines(struct buf *out, const struct moments *m, const struct spread *s)
{
    double std = m->n ? deviation(m) : 0;
    uint64_t most = 1, count[LINES] = {0};
    for (int i = 0; i < STATS_BINS; i++) {
        int line = i - (STATS_BINS - LINES) / 2;
        line = line < 0 ? 0 : line < LINES ? line : LINES - 1;
        count[line] += s->count[i];
        most = max_u64(most, count[line]);
    }
    for (int i = 0; i < LINES; i++) {
        size_t from = out->len;
        double edge = i == 0 ? -INFINITY : m->mean + std * (i - LINES / 2) / 4;
        text_float(out, edge == 0 ? 0 : edge, false, &float_names_text);
        pad(out, from, DOUBLE + 1);
        buf_printf(out, "%*" PRIu64 " ", COUNT, count[i]);
        from = out->len;
        for (size_t n = bar(count[i], most); n > 0; n--)
            buf_char(out, '#');
        pad(out, from, BAR);
        buf_char(out, '\n');
    }
}

void stats_text(const struct gguf *g, const struct gguf_tensor *t, const struct moments *m,
                const struct spread *s, const struct alive *a, struct buf *out)
{
    bool any = m->n > 0;
    double n = (double)m->n, variance = m->squares / n;
    count_line(out, "elements", m->n + m->nan + m->inf);
    value_line(out, "min", any ? (double)m->min : NAN, true);
    value_line(out, "max", any ? (double)m->max : NAN, true);
    value_line(out, "mean", any ? m->mean : NAN, false);
    value_line(out, "std", any ? deviation(m) : NAN, false);
    value_line(out, "rms", any ? sqrt(variance + m->mean * m->mean) : NAN, false);
    value_line(out, "kurtosis", any && variance > 0 ? s->fourth / n / variance / variance - 3 : NAN,
               false);
    value_line(out, "absmax", any ? (double)moments_absmax(m) : NAN, true);
    index_line(out, "absmax_at", g, t, s->first - 1, s->first > 0);
    count_line(out, "beyond_6_std", s->count[0] + s->count[STATS_BINS - 1]);
    count_line(out, "zeros", m->zeros);
    /* Without marks, a matrix is a single row or column, in which each zero is a column or row of
     * zeros. */
    count_line(out, "zero_rows",
               a->row            ? dead(a->row, a->matrices * a->rows)
               : a->columns == 1 ? m->zeros
                                 : any && m->zeros == t->n_elem);
    count_line(out, "zero_columns",
               a->row         ? dead(a->column, a->matrices * a->columns)
               : a->rows == 1 ? m->zeros
                              : any && m->zeros == t->n_elem);
    count_line(out, "nan", m->nan);
    count_line(out, "inf", m->inf);
    bin_lines(out, m, s);
}

/* ---- stats.tsv ---- */

void stats_head(struct buf *out)
{
    buf_str(out, "name\ttype\telements\tshape\tmin\tmax\tmean\tstd\tabsmax\tzeros\tnan\tinf\n");
}

/* Return the maximum length of min, max, mean, std, absmax, zeros, nan and inf, each with a tab
 * before it. */
static size_t fields_most(const struct gguf_tensor *t)
{
    const size_t digits = (size_t)snprintf(NULL, 0, "%" PRIu64, t->n_elem);
    return 3 * (1 + FLOAT) + 2 * (1 + DOUBLE) + 3 * (1 + digits);
}

static void before_fields(const struct gguf *g, const struct gguf_tensor *t, struct buf *out)
{
    show_all(out, gguf_name(g, t), t->name_len);
    buf_char(out, '\t');
    fact_type_name(t, out);
    buf_printf(out, "\t%" PRIu64 "\t", t->n_elem);
    fact_shape(g, t, " ", out);
}

static size_t stats_line_size(const struct gguf *g, const struct gguf_tensor *t)
{
    bool values = quant_has_values(gguf_type(t), g->fmt.big);
    struct buf m = BUF_MEASURE;
    before_fields(g, t, &m);
    return m.len + (values ? fields_most(t) : 8) + 1;
}

void stats_line(const struct gguf *g, const struct gguf_tensor *t, const struct moments *m,
                struct buf *out)
{
    size_t from = out->len, size = stats_line_size(g, t);
    before_fields(g, t, out);
    if (m) {
        bool any = m->n > 0;
        const double shown[] = {(double)m->min, (double)m->max, m->mean, any ? deviation(m) : 0,
                                (double)moments_absmax(m)};
        for (size_t i = 0; i < COUNT(shown); i++) {
            buf_char(out, '\t');
            text_float(out, any ? shown[i] : (double)NAN, i != 2 && i != 3, &float_names_text);
        }
        buf_printf(out, "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64, m->zeros, m->nan, m->inf);
    } else {
        buf_str(out, "\t\t\t\t\t\t\t\t");
    }
    pad(out, from, size - 1);
    buf_char(out, '\n');
}

/* ---- tensors.txt ---- */

/* A role is the set of all tensors whose names differ only in the block's number. */
enum { ROLES_MOST = 256, TYPES_MOST = 8, ROLE_LEN = 64 };

struct role {
    char name[ROLE_LEN];
    struct {
        const struct gguf_tensor *first;
        uint64_t tensors;
    } type[TYPES_MOST];
    uint64_t bytes;
};

static void share(uint64_t bytes, double all, struct buf *out)
{
    buf_printf(out, "%.2f%%", all > 0 ? 100 * (double)bytes / all : 0);
}

/* Write the name of a tensor's role, such as "attn_q" for "blk.7.attn_q.weight". */
static void role_name(const struct gguf *g, const struct gguf_tensor *t, char dst[ROLE_LEN])
{
    static const char weight[] = ".weight";
    CLEANUP(buf_free) struct buf name = BUF_INIT;
    show_all(&name, gguf_name(g, t), t->name_len);
    buf_char(&name, '\0');
    *dst = '\0';
    if (buf_error(&name))
        return;
    (void)snprintf(dst, ROLE_LEN, "%s", name.len > ROLE_LEN ? "(others)" : (const char *)name.data);
    char *block = strstr(dst, "blk."), *end = strstr(dst, weight);
    if (end && end[strlen(weight)] == '\0')
        *end = '\0';
    if (block && (block == dst || block[-1] == '.')) {
        size_t digits = strspn(block + 4, "0123456789");
        if (digits && block[4 + digits] == '.')
            memmove(block, block + 5 + digits, strlen(block + 5 + digits) + 1);
    }
}

/* Count a tensor. If there is no room for another role, count it with the last role. */
static void add_role(struct role *role, size_t *n, const struct gguf *g,
                     const struct gguf_tensor *t)
{
    char name[ROLE_LEN];
    size_t i = 0, k = 0;
    role_name(g, t, name);
    while (i < *n && strcmp(role[i].name, name) != 0)
        i++;
    if (i == ROLES_MOST)
        (void)snprintf(role[--i].name, ROLE_LEN, "(others)");
    else if (i == *n)
        (void)snprintf(role[(*n)++].name, ROLE_LEN, "%s", name);
    while (k < TYPES_MOST - 1 && role[i].type[k].first &&
           role[i].type[k].first->type_id != t->type_id)
        k++;
    role[i].type[k].first = role[i].type[k].first ? role[i].type[k].first : t;
    role[i].type[k].tensors++;
    role[i].bytes += t->nbytes;
}

/* Write a line for each role, such as "ffn_down  16 x Q6_K, 16 x Q4_K  123456  26.10%". */
static void add_roles(const struct gguf *g, double all, struct buf *out)
{
    CLEANUP(buf_free) struct buf lines = BUF_INIT, room = BUF_INIT;
    struct role *role = (struct role *)(void *)buf_extend(&room, ROLES_MOST * sizeof(*role));
    size_t n = 0;
    if (!role) {
        out->err = buf_error(&room);
        return;
    }
    memset(role, 0, ROLES_MOST * sizeof(*role));
    for (uint32_t i = 0; i < g->n_tensors; i++)
        add_role(role, &n, g, &g->tensor[i]);
    buf_str(&lines, "ROLE\tTENSORS\tBYTES\tSHARE\n");
    for (size_t i = 0; i < n; i++) {
        buf_printf(&lines, "%s\t", role[i].name);
        for (size_t k = 0; k < TYPES_MOST && role[i].type[k].first; k++) {
            buf_printf(&lines, "%s%" PRIu64 " x ", k ? ", " : "", role[i].type[k].tensors);
            fact_type_name(role[i].type[k].first, &lines);
        }
        buf_printf(&lines, "\t%" PRIu64 "\t", role[i].bytes);
        share(role[i].bytes, all, &lines);
        buf_char(&lines, '\n');
    }
    buf_table(&lines, "llrr", TABLE_NAME_MOST, out);
}

void table_text(const struct snapshot *g, struct buf *out)
{
    CLEANUP(buf_free) struct buf lines = BUF_INIT;
    double all = 0;
    size_t shard;
    for (uint32_t i = 0; i < g->gguf->n_tensors; i++)
        all += (double)g->gguf->tensor[i].nbytes;
    buf_printf(&lines, "NAME\tTYPE\tSHAPE\tBYTES\tSHARE%s\n", g->shards ? "\tSHARD" : "");
    for (uint32_t i = 0; i < g->gguf->n_tensors; i++) {
        const struct gguf_tensor *t = &g->gguf->tensor[i];
        show_all(&lines, gguf_name(g->gguf, t), t->name_len);
        buf_char(&lines, '\t');
        fact_type_name(t, &lines);
        buf_char(&lines, '\t');
        fact_shape(g->gguf, t, " ", &lines);
        buf_printf(&lines, "\t%" PRIu64 "\t", t->nbytes);
        share(t->nbytes, all, &lines);
        (void)snapshot_offset(g, i, &shard);
        if (g->shards)
            buf_printf(&lines, "\t%zu", g->shards->no[shard] + 1);
        buf_char(&lines, '\n');
    }
    buf_table(&lines, g->shards ? "lllrrr" : "lllrr", TABLE_NAME_MOST, out);
    buf_char(out, '\n');
    add_roles(g->gguf, all, out);
}

/* ---- lines ---- */

void hashes_line(const struct snapshot *g, uint32_t i, const char *hex, struct buf *out)
{
    const struct gguf_tensor *t = &g->gguf->tensor[i];
    size_t shard;
    (void)snapshot_offset(g, i, &shard);
    const char *file = g->shards ? g->shards->name[shard] : g->file;
    buf_str(out, "sha256    ");
    buf_add(out, hex, HASH_HEX);
    buf_str(out, "  ");
    show_all(out, file, strlen(file));
    buf_char(out, ':');
    show_all(out, gguf_name(g->gguf, t), t->name_len);
    buf_char(out, '\n');
}

static size_t line_size(const struct snapshot *g, enum derived what, uint32_t i)
{
    static const char hex[HASH_HEX];
    struct buf m = BUF_MEASURE;
    if (what == DERIVED_MOMENTS)
        return stats_line_size(g->gguf, &g->gguf->tensor[i]);
    hashes_line(g, i, hex, &m);
    return m.len;
}

uint64_t lines_find(const struct snapshot *g, enum derived what, uint64_t off, uint64_t end,
                    uint32_t *first, uint32_t *last, uint64_t *at)
{
    struct buf head = BUF_MEASURE;
    if (what == DERIVED_MOMENTS)
        stats_head(&head);
    uint64_t begin = head.len;
    *first = *last = 0;
    *at = 0;
    for (uint32_t i = 0; i < g->gguf->n_tensors; i++) {
        const uint64_t next = begin + line_size(g, what, i);
        if (next <= off) {
            *first = i + 1;
            *at = next;
        }
        *last = begin < end ? i + 1 : *last;
        begin = next;
    }
    return begin;
}

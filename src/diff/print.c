/* SPDX-License-Identifier: MIT */
/* Finds the differences between sequences, arrays and texts, and prints all differences as text and
 * as JSON: see print.h. */
#include "diff/print.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "model/facts.h"
#include "quant/types.h"

/* ---- sequences ---- */

/* Add a hunk, or extend the last one if that ends where the new one begins. */
static int add_to_hunks(struct hunks *h, struct hunk one)
{
    struct hunk *last = h->n ? &h->of[h->n - 1] : NULL;
    if (last && last->a + last->n_a == one.a && last->b + last->n_b == one.b) {
        last->n_a += one.n_a;
        last->n_b += one.n_b;
        return 0;
    }
    if (array_grow(&h->of, &h->cap, h->n, sizeof(one)) < 0)
        return -ENOMEM;
    h->of[h->n++] = one;
    return 0;
}

int sequence_diff(const uint64_t *a, size_t n_a, const uint64_t *b, size_t n_b, struct hunks *ret)
{
    size_t first = 0;
    int r = 0;
    while (first < n_a && first < n_b && a[first] == b[first])
        first++;
    while (n_a > first && n_b > first && a[n_a - 1] == b[n_b - 1]) {
        n_a--;
        n_b--;
    }
    /* best[i * row + k]: how much is common to what begins at a[first + i] and b[first + k] */
    const size_t n = n_a - first, m = n_b - first, row = m + 1;
    const bool few = n == 0 || m <= SEQUENCE_MOST / n;
    uint16_t *best = few ? calloc((n + 1) * row, sizeof(*best)) : NULL;
    if (few && !best)
        return -ENOMEM;
    for (size_t i = n; few && i-- > 0;)
        for (size_t k = m; k-- > 0;) {
            const uint16_t *at = &best[i * row + k];
            best[i * row + k] = a[first + i] == b[first + k] ? (uint16_t)(at[row + 1] + 1)
                                : at[row] > at[1]            ? at[row]
                                                             : at[1];
        }
    for (size_t i = 0, k = 0; r == 0 && (i < n || k < m);) {
        const bool both = i < n && k < m, same = both && a[first + i] == b[first + k];
        bool in_a = i < n, in_b = k < m;
        if (few && both && !same) {
            in_a = best[(i + 1) * row + k] >= best[i * row + k + 1];
            in_b = !in_a;
        }
        if (!same)
            r = add_to_hunks(ret, (struct hunk){first + i, in_a, first + k, in_b});
        i += in_a;
        k += in_b;
    }
    free(best);
    return r;
}

/* ---- lines ---- */

/* The lines of a text, with their newlines. */
struct lines {
    struct text *of; /* owned */
    uint64_t *hash;  /* owned */
    size_t n;
};

static int lines_split(const struct gguf_value *v, struct lines *ret)
{
    const char *text = (const char *)v->data, *const stop = text + v->len;
    size_t most = 1;
    for (const char *p = text; p < stop; p++)
        most += *p == '\n';
    ret->of = calloc(most, sizeof(*ret->of));
    ret->hash = calloc(most, sizeof(*ret->hash));
    while (ret->of && ret->hash && text < stop) {
        const char *end = memchr(text, '\n', (size_t)(stop - text));
        const size_t len = (size_t)((end ? end + 1 : stop) - text);
        ret->hash[ret->n] = hash_name(text, len);
        ret->of[ret->n++] = (struct text){text, len};
        text += len;
    }
    return ret->of && ret->hash ? 0 : -ENOMEM;
}

/* ---- output ---- */

/* Limits: bytes of a value on one line, bytes of a name in a column, lines around a change, and
 * elements shown in full. */
enum { VALUE_MOST = 64, NAME_MOST = 40, AROUND = 3, WHOLE_MOST = 8 };
struct out {
    const struct diff *d;
    bool colours;
    struct buf *text;
};

/* Return the first side on which the pair's item exists. */
static size_t side_of(const struct pair *p)
{
    return p->no[0] == PAIR_NONE;
}

static struct gguf_value pair_value(const struct diff *d, const struct pair *p, size_t side)
{
    const struct gguf *g = d->side[side]->g;
    return gguf_value(g, &g->kv[p->no[side]]);
}

static struct text pair_title(const struct diff *d, bool keys, const struct pair *p)
{
    return gguf_name_of(d->side[side_of(p)]->g, keys, p->no[side_of(p)]);
}

/* ---- lines of text ---- */

static const struct {
    char sign;
    const char *name, *text; /* in JSON; in the line of counts */
} statuses[] = {[DIFF_SAME] = {' ', "same", "the same"},
                [DIFF_CHANGED] = {'~', "changed", "changed"},
                [DIFF_ONLY_A] = {'-', "only_a", "only in A"},
                [DIFF_ONLY_B] = {'+', "only_b", "only in B"},
                [DIFF_MOVED] = {'>', "moved", "moved"}};

/* Start a line with a sign. The text up to end_line() is printed in the sign's colour. */
static void begin_line(struct out *o, char first)
{
    const char *colour = first == '-' ? "31" : first == '+' ? "32" : first == '~' ? "33" : "36";
    if (o->colours && first != ' ')
        buf_printf(o->text, "\033[%sm", colour);
    buf_char(o->text, first);
}

static void end_line(struct out *o)
{
    buf_str(o->text, o->colours ? "\033[0m\n" : "\n");
}

/* Add a value on one line, cut if it is long. */
static void add_short_value(struct buf *out, const struct gguf_value *v)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    char shown[VALUE_MOST];
    if (v->type == GGUF_ARRAY && (v->count > WHOLE_MOST || v->elem == GGUF_ARRAY)) {
        buf_printf(out, "%" PRIu64 " elements", v->count);
        return;
    }
    if (v->type == GGUF_STRING) /* copy no more of a long string than is shown */
        json_string(&text, v->data, (size_t)min_u64(v->len, VALUE_MOST));
    else
        json_line_value(&text, v);
    if (buf_error(&text))
        out->err = out->err ? out->err : buf_error(&text);
    else
        buf_str(out, show_in(shown, sizeof(shown), text.data, text.len));
}

static bool is_long(const struct gguf_value *v)
{
    return v->type == GGUF_STRING &&
           (v->len > VALUE_MOST - 8 || (v->len && memchr(v->data, '\n', (size_t)v->len)));
}

static void add_text_line(struct out *o, char first, struct text line)
{
    const bool ends = line.at[line.len - 1] == '\n';
    begin_line(o, first);
    show_all(o->text, line.at, line.len - ends);
    end_line(o);
    if (!ends) {
        buf_str(o->text, "\\ no newline at the end");
        end_line(o);
    }
}

/* Add hunks [first, last), which are close enough to be shown as one stretch. */
static void add_stretch(struct out *o, const struct lines *a, const struct lines *b,
                        const struct hunk *h, size_t n)
{
    const struct hunk *last = &h[n - 1];
    size_t before = h->a < AROUND ? h->a : AROUND, at = h->a - before;
    size_t end = last->a + last->n_a, after = a->n - end < AROUND ? a->n - end : AROUND;
    size_t of_b = last->b + last->n_b + after - (h->b - before);
    begin_line(o, '@');
    buf_printf(o->text, "@ -%zu,%zu +%zu,%zu @@", at + 1, end + after - at, h->b - before + 1,
               of_b);
    end_line(o);
    for (size_t i = 0; i < n; i++) {
        for (; at < h[i].a; at++)
            add_text_line(o, ' ', a->of[at]);
        for (; at < h[i].a + h[i].n_a; at++)
            add_text_line(o, '-', a->of[at]);
        for (size_t k = h[i].b; k < h[i].b + h[i].n_b; k++)
            add_text_line(o, '+', b->of[k]);
    }
    for (; at < end + after; at++)
        add_text_line(o, ' ', a->of[at]);
}

/* Add two texts as a unified diff of lines. */
static void add_line_diff(struct out *o, const struct gguf_value *x, const struct gguf_value *y)
{
    struct lines a = {0}, b = {0};
    struct hunks h = {0};
    int r = lines_split(x, &a);
    if (r == 0)
        r = lines_split(y, &b);
    if (r == 0)
        r = sequence_diff(a.hash, a.n, b.hash, b.n, &h);
    for (size_t i = 0, n; r == 0 && i < h.n; i += n) {
        for (n = 1; i + n < h.n &&
                    h.of[i + n].a - (h.of[i + n - 1].a + h.of[i + n - 1].n_a) <= 2 * AROUND;)
            n++;
        add_stretch(o, &a, &b, &h.of[i], n);
    }
    o->text->err = o->text->err ? o->text->err : r;
    free(h.of);
    free(a.of);
    free(a.hash);
    free(b.of);
    free(b.hash);
}

/* Add "12 of 128256 differ, 5 more, first at 5: "<a>" "<b>"", comparing index by index. */
static void add_array_diff(struct out *o, const struct gguf_value *a, const struct gguf_value *b)
{
    struct gguf_walk i = gguf_walk(a), k = gguf_walk(b);
    struct gguf_value item[2], first[2];
    bool has[2] = {false};
    uint64_t differ = 0, at = 0;
    for (uint64_t n = 0; n < max_u64(a->count, b->count); n++) {
        const bool in_a = gguf_next(&i, &item[0]), in_b = gguf_next(&k, &item[1]);
        if (in_a && in_b && value_same(&item[0], &item[1]))
            continue;
        if (!has[0] && !has[1]) {
            memcpy(first, item, sizeof(first));
            has[0] = in_a;
            has[1] = in_b;
            at = n;
        }
        differ += in_a && in_b;
    }
    if (differ)
        buf_printf(o->text, "%" PRIu64 " of %" PRIu64 " differ, ", differ, a->count);
    if (a->count != b->count)
        buf_printf(o->text, "%" PRIu64 " %s, ",
                   max_u64(a->count, b->count) - min_u64(a->count, b->count),
                   a->count < b->count ? "more" : "fewer");
    buf_printf(o->text, "first at %" PRIu64 ":", at);
    for (size_t n = 0; n < 2; n++)
        if (has[n]) {
            buf_char(o->text, ' ');
            add_short_value(o->text, &first[n]);
        }
}

static void add_change(struct out *o, const struct gguf_value *a, const struct gguf_value *b)
{
    char type[2][GGUF_TYPE_NAME_MAX];
    bool retyped = strcmp(gguf_type_name(a, type[0]), gguf_type_name(b, type[1])) != 0;
    bool small = max_u64(a->count, b->count) <= WHOLE_MOST && a->elem != GGUF_ARRAY &&
                 a->elem != GGUF_STRING; /* both have the same element type, unless retyped */
    bool arrays = a->type == GGUF_ARRAY && !retyped && !small;
    if (!retyped && (is_long(a) || is_long(b))) {
        end_line(o);
        add_line_diff(o, a, b);
        return;
    }
    buf_char(o->text, ' ');
    if (arrays) {
        add_array_diff(o, a, b);
    } else {
        buf_printf(o->text, "%s%s", retyped ? type[0] : "", retyped ? " " : "");
        add_short_value(o->text, a);
        buf_printf(o->text, " -> %s%s", retyped ? type[1] : "", retyped ? " " : "");
        add_short_value(o->text, b);
    }
    end_line(o);
}

/* Add one line for all pairs of which only the order differs. */
static void add_moved(struct out *o, const char *what, bool keys, const struct pairs *p)
{
    size_t n = 0, first = 0;
    for (size_t i = p->n; i-- > 0;)
        if (p->of[i].status == DIFF_MOVED) {
            n++;
            first = i;
        }
    if (n == 0)
        return;
    const struct text name = pair_title(o->d, keys, &p->of[first]);
    begin_line(o, statuses[DIFF_MOVED].sign);
    buf_printf(o->text, " %s in another order: %zu, the first is ", what, n);
    show_all(o->text, name.at, name.len);
    end_line(o);
}

static bool is_printed(const struct pair *p)
{
    return p->status != DIFF_SAME && p->status != DIFF_MOVED;
}

static void print_key(struct out *o, const struct pair *p)
{
    const struct text key = pair_title(o->d, true, p);
    struct gguf_value x = pair_value(o->d, p, side_of(p)), y;
    char type[GGUF_TYPE_NAME_MAX];
    begin_line(o, statuses[p->status].sign);
    buf_char(o->text, ' ');
    show_all(o->text, key.at, key.len);
    if (p->status == DIFF_CHANGED) {
        y = pair_value(o->d, p, 1);
        buf_char(o->text, ':');
        add_change(o, &x, &y);
        return;
    }
    buf_printf(o->text, " (%s): ", gguf_type_name(&x, type));
    add_short_value(o->text, &x);
    end_line(o);
}

static void add_counts(struct buf *out, const char *what, const struct pairs *p)
{
    size_t count[DIFF_STATUSES];
    const char *between = " ";
    pairs_count(p, count);
    buf_printf(out, "%s:", what);
    for (size_t i = 1; i <= DIFF_STATUSES; i++) { /* what is the same comes last */
        const size_t k = i % DIFF_STATUSES;
        if (count[k] || k == DIFF_SAME) {
            buf_printf(out, "%s%zu %s", between, count[k], statuses[k].text);
            between = ", ";
        }
    }
    buf_char(out, '\n');
}

/* ---- tensors as text ---- */

/* Add "Q4_K", or "Q4_K -> Q6_K". */
static void add_types(struct buf *out, const struct gguf_tensor *x, const struct gguf_tensor *y)
{
    fact_type_name(x, out);
    if (x->type_id != y->type_id) {
        buf_str(out, " -> ");
        fact_type_name(y, out);
    }
}

/* Add the last cells of a line, each preceded by a tab. */
static void add_numbers(struct buf *out, const struct gguf *a, const struct tensor_diff *d,
                        const struct gguf_tensor *x)
{
    double cosine = diff_cosine(&d->sum);
    buf_printf(out, "\t%.3g\t", diff_error(&d->sum));
    if (isnan(cosine))
        buf_char(out, '-');
    else
        buf_printf(out, "%.6f", cosine);
    if (d->sum.max > 0) {
        buf_printf(out, "\t%.3g at ", d->sum.max);
        fact_index(a, x, d->max_at, ",", out);
    } else {
        buf_str(out, "\tnone");
    }
    /* Quantising changes nearly all values, so the count is not worth a column. */
    uint64_t differ = d->sum.differ + d->apart;
    if (differ < x->n_elem / 2)
        buf_printf(out, ", %" PRIu64 " value%s", differ, differ == 1 ? "" : "s");
    if (d->nan[0] || d->nan[1])
        buf_printf(out, ", NaN %" PRIu64 " and %" PRIu64, d->nan[0], d->nan[1]);
    if (d->inf[0] || d->inf[1])
        buf_printf(out, ", infinite %" PRIu64 " and %" PRIu64, d->inf[0], d->inf[1]);
}

static void print_tensor(struct buf *out, const struct diff *d, size_t i)
{
    const struct pair *p = &d->tensors.of[i];
    const struct tensor_diff *f = &d->of[i];
    const size_t side = side_of(p);
    const struct gguf *g = d->side[side]->g;
    const struct gguf_tensor *x = pair_tensor(d, p, side);
    const bool both = p->no[0] != PAIR_NONE && p->no[1] != PAIR_NONE;
    const struct gguf_tensor *y = both ? pair_tensor(d, p, 1) : x;
    const struct text name = pair_title(d, false, p);
    buf_printf(out, "%c ", statuses[p->status].sign);
    show_all(out, name.at, name.len);
    buf_char(out, '\t');
    add_types(out, x, y);
    if (!both || f->shape) {
        buf_str(out, both ? "  shape " : "  ");
        fact_shape(g, x, " ", out);
    }
    if (f->shape) {
        buf_str(out, " -> ");
        fact_shape(d->side[1]->g, y, " ", out);
    } else if (f->measured) {
        add_numbers(out, g, f, x);
    } else if (f->bytes) {
        buf_str(out, "  the bytes differ");
    }
    buf_char(out, '\n');
}

/* ---- a summary by types ---- */

/* Tensors of one type in A and one in B whose values were compared. */
struct total {
    size_t tensors;
    struct quant_distance sum;
};

static bool is_measured(const struct diff *d, size_t i)
{
    return d->tensors.of[i].status == DIFF_CHANGED && d->of[i].measured;
}

static struct total *total_of(struct total (*all)[QUANT_N_TYPES], const struct diff *d, size_t i)
{
    const struct pair *p = &d->tensors.of[i];
    return &all[pair_tensor(d, p, 0)->type_id][pair_tensor(d, p, 1)->type_id];
}

/* Add "Q4_K -> Q6_K: 32 tensors, error 0.031" for each kind of change, in the tensors' order. */
static void add_totals(struct out *o)
{
    const struct diff *d = o->d;
    struct total(*all)[QUANT_N_TYPES] = calloc(QUANT_N_TYPES, sizeof(*all));
    for (size_t i = 0; i < d->tensors.n && all; i++)
        if (is_measured(d, i)) {
            struct total *t = total_of(all, d, i);
            t->tensors++;
            t->sum.squares += d->of[i].sum.squares;
            t->sum.squares_a += d->of[i].sum.squares_a;
        }
    for (size_t i = 0; i < d->tensors.n && all; i++) {
        struct total *t = is_measured(d, i) ? total_of(all, d, i) : NULL;
        if (!t || !t->tensors)
            continue;
        add_types(o->text, pair_tensor(d, &d->tensors.of[i], 0),
                  pair_tensor(d, &d->tensors.of[i], 1));
        buf_printf(o->text, ": %zu tensor%s, error %.3g\n", t->tensors, t->tensors == 1 ? "" : "s",
                   diff_error(&t->sum));
        t->tensors = 0; /* it is said */
    }
    o->text->err = all ? o->text->err : -ENOMEM;
    free(all);
}

static void add_tensors(struct out *o)
{
    CLEANUP(buf_free) struct buf lines = BUF_INIT, table = BUF_INIT;
    bool measured = false;
    for (size_t i = 0; i < o->d->tensors.n && !measured; i++)
        measured = is_measured(o->d, i);
    if (measured)
        buf_str(&lines, "  tensor\ttype\terror\tcosine\tgreatest difference\n");
    for (size_t i = 0; i < o->d->tensors.n; i++)
        if (is_printed(&o->d->tensors.of[i]))
            print_tensor(&lines, o->d, i);
    buf_table(&lines, "llrrl", NAME_MOST + 2, &table);
    o->text->err = o->text->err ? o->text->err : buf_error(&table);
    const char *p = buf_text(&table), *end = buf_error(&table) ? p : buf_text_end(&table);
    for (const char *stop; p < end; p = stop + 1) {
        stop = memchr(p, '\n', (size_t)(end - p));
        begin_line(o, *p);
        buf_add(o->text, p + 1, (size_t)(stop - p - 1));
        end_line(o);
    }
    add_moved(o, "tensors", false, &o->d->tensors);
    add_totals(o);
    add_counts(o->text, "tensors", &o->d->tensors);
}

void diff_text(const struct diff *d, bool colours, struct buf *text)
{
    struct out o = {.d = d, .colours = colours, .text = text};
    buf_str(text, "--- ");
    show_all(text, d->side[0]->label, strlen(d->side[0]->label));
    buf_str(text, "\n+++ ");
    show_all(text, d->side[1]->label, strlen(d->side[1]->label));
    buf_char(text, '\n');
    for (size_t i = 0; i < d->keys.n; i++)
        if (is_printed(&d->keys.of[i]))
            print_key(&o, &d->keys.of[i]);
    add_moved(&o, "keys", true, &d->keys);
    if (d->opt->keys)
        add_counts(text, "keys", &d->keys);
    if (d->opt->tensors)
        add_tensors(&o);
}

/* ---- JSON ---- */

/* Begin an entry of a list, with its name and status. */
static void begin_entry(struct json *j, struct text name, enum diff_status s)
{
    json_begin(j, NULL, "{");
    json_string(json_item(j, "name"), name.at, name.len);
    json_text(j, "status", statuses[s].name);
}

static void json_key(const struct diff *d, struct json *j, const struct pair *p)
{
    char type[GGUF_TYPE_NAME_MAX];
    begin_entry(j, pair_title(d, true, p), p->status);
    for (size_t k = 0; k < 2; k++)
        if (p->no[k] != PAIR_NONE) {
            const struct gguf_value v = pair_value(d, p, k);
            json_text(j, k ? "type_b" : "type_a", gguf_type_name(&v, type));
            json_value(json_item(j, k ? "value_b" : "value_a"), &v);
        }
    json_end(j);
}

static void json_number(struct json *j, const char *name, double x)
{
    if (isfinite(x))
        buf_printf(json_item(j, name), "%.12g", x);
    else
        json_text(j, name, NULL);
}

static void json_count(struct json *j, const char *name, uint64_t n)
{
    buf_printf(json_item(j, name), "%" PRIu64, n);
}

static void json_numbers(const struct diff *of, struct json *j, const struct tensor_diff *d,
                         const struct gguf_tensor *t)
{
    json_number(j, "error", diff_error(&d->sum));
    json_number(j, "cosine", diff_cosine(&d->sum));
    json_number(j, "max", d->sum.max);
    json_begin(j, "max_at", "[");
    if (d->sum.max > 0)
        fact_index(of->side[0]->g, t, d->max_at, ", ", j->out);
    json_end(j);
    json_count(j, "values", d->sum.differ + d->apart);
    json_count(j, "nan_a", d->nan[0]);
    json_count(j, "nan_b", d->nan[1]);
    json_count(j, "inf_a", d->inf[0]);
    json_count(j, "inf_b", d->inf[1]);
}

static void json_tensor(const struct diff *d, struct json *j, size_t i)
{
    const struct pair *p = &d->tensors.of[i];
    const struct tensor_diff *f = &d->of[i];
    begin_entry(j, pair_title(d, false, p), p->status);
    for (size_t k = 0; k < 2; k++)
        if (p->no[k] != PAIR_NONE) {
            buf_char(json_item(j, k ? "type_b" : "type_a"), '"');
            fact_type_name(pair_tensor(d, p, k), j->out);
            buf_char(j->out, '"');
            json_begin(j, k ? "shape_b" : "shape_a", "[");
            fact_shape(d->side[k]->g, pair_tensor(d, p, k), ", ", j->out);
            json_end(j);
        }
    if (f->measured)
        json_numbers(d, j, f, pair_tensor(d, p, 0));
    json_end(j);
}

void diff_json(const struct diff *d, bool all, struct json *j)
{
    json_begin(j, NULL, "{");
    json_text(j, "a", d->side[0]->label);
    json_text(j, "b", d->side[1]->label);
    buf_str(json_item(j, "same"), diff_is_same(d) ? "true" : "false");
    json_begin(j, "keys", "[\n");
    for (size_t i = 0; i < d->keys.n; i++)
        if (all || d->keys.of[i].status != DIFF_SAME)
            json_key(d, j, &d->keys.of[i]);
    json_end(j);
    json_begin(j, "tensors", "[\n");
    for (size_t i = 0; i < d->tensors.n; i++)
        if (all || d->tensors.of[i].status != DIFF_SAME)
            json_tensor(d, j, i);
    json_end(j);
    json_end(j);
}

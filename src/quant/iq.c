/* SPDX-License-Identifier: MIT */
/*
 * The IQ types of one, two and three bits, in blocks of 256 elements, and their encoders' search
 * for scales and for points of a book.
 *
 * A block has a scale d, and each of its groups a small integer l; the group's scale is
 * s = d * (2l + 1). A unit of 8 values (IQ3: 4) is a point of the book times s, with its own signs
 * or, in IQ1, shifted as a whole. For a given s, the cost of a point is the sum over its values of
 *
 *     w * (x - p)^2 - w * x^2  =  p * (p * w - 2 * w * x)        p = s * value of the point
 *
 * which is the sum of the costs of its two halves. Only 81 (IQ3: 64) halves exist. Books are sorted
 * by second half. Among all points with the same second half, the point with the best first half
 * wins:
 *
 *     second half   h0                     h1                     h2
 *     first halves  a  b  c  d  e  f       a  c  d  g  ...        ...
 *                   the least of these     the least of these
 *                    + what h0 costs        + what h1 costs       the least of these sums
 *
 * This requires one comparison per point, for WIDE units side by side. Because all points are
 * compared, each unit gets the best point in the book for its s.
 *
 * Where only seven of eight signs are stored, the number of minus signs is even. If an odd number
 * of values are negative, the value for which a wrong sign costs least gets the wrong sign. Halves
 * with such a value have separate (odd) costs.
 *
 * First each group is fitted as if the book contained every point. The largest scale found
 * determines d, and each group tries values of l close to its scale. Then d is fitted to the
 * points. Values and weights are scaled to at most 2, so that no product is infinite. Lanes never
 * interact, and sums are taken in the order of the units, so vectors of any width produce the same
 * bits.
 */
#include "quant/codebook.h"
#include "quant/pack.h"
#include "quant/wide.h"

/* Signs are free, or the number of minus signs is even in each unit or in each pair of units. In
 * IQ1, units are shifted by 1/8 instead: each unit separately, or all units of a group alike. */
enum point_signs { POINT_FREE, POINT_EVEN, POINT_EVEN_PAIR, POINT_MOVED, POINT_MOVED_GROUP };
#define POINT_SHIFT 0.125f

struct point_form {
    unsigned points; /* number of points in the book */
    unsigned n;      /* values per unit: 8 or 4 */
    unsigned group;  /* number of units that share l */
    /* The largest l. Values of l within `span` of the nearest l are tried. */
    unsigned last, span;
    enum point_signs signs;
    unsigned levels; /* number of levels: 3, or 8 for units of 4 values */
    float level[8];  /* ascending: magnitudes or, in IQ1, the values that are shifted */
    /* The book: the bytes of each point, and how level numbers are extracted from them. */
    const uint64_t *of8;
    const uint32_t *of4;
    unsigned add, at;
};

enum { POINTS_MOST = 2048, UNITS_MOST = 64, HALVES_MOST = 81 };

/* A book split into halves. */
struct point_book {
    uint8_t low[POINTS_MOST];        /* the first half of each point */
    uint16_t first[HALVES_MOST + 1]; /* the first point with each second half */
};

/* A block's values, arranged as units side by side, and the results for each unit. */
struct point_block {
    float x[8][UNITS_MOST], w[8][UNITS_MOST]; /* x: magnitudes, except in IQ1 */
    float s[UNITS_MOST];                      /* the scale to try for each unit */
    float cost[2][UNITS_MOST]; /* costs of the two ways: even and odd, or up and down */
    /* One of the values in the unit (EVEN_PAIR: in the two units) must get the wrong sign. */
    uint8_t odd[UNITS_MOST];
    uint8_t way[UNITS_MOST];   /* the chosen way: an index into cost[] */
    uint8_t minus[UNITS_MOST]; /* one bit per value, set if it is below zero */
    uint8_t l[UNITS_MOST];     /* l of each group */
    uint16_t point[UNITS_MOST];
};

/* Return true if the two ways of a unit are up and down rather than even and odd. */
FIXED bool is_moved(struct point_form f)
{
    return f.signs >= POINT_MOVED;
}

FIXED bool is_even(struct point_form f)
{
    return f.signs == POINT_EVEN || f.signs == POINT_EVEN_PAIR;
}

/* Return four bytes with digits from 0 to 2, or the lower two bytes with digits from 0 to 7, as one
 * number whose first digit is the least significant. */
FIXED unsigned half_number(struct point_form f, uint32_t digits)
{
    return f.n == 8 ? digits * 0x0103091b >> 24 : (digits & 255) + 8 * (digits >> 8 & 255);
}

/* Return the level numbers of a point, one per byte. */
FIXED uint64_t digits_of(struct point_form f, unsigned point)
{
    const uint64_t codes = f.n == 8 ? f.of8[point] : f.of4[point];
    return ((codes >> f.at & BYTES8(7)) + BYTES8(f.add)) & BYTES8(f.n == 8 ? 3 : 7);
}

FIXED void make_book(struct point_form f, struct point_book *b)
{
    const unsigned halves = f.n == 8 ? 81 : 64;
    unsigned h = 0;
    b->first[0] = 0;
    for (unsigned k = 0; k < f.points; k++) {
        const uint64_t digits = digits_of(f, k);
        const unsigned high = half_number(f, (uint32_t)(digits >> 4 * f.n));
        b->low[k] = (uint8_t)half_number(f, (uint32_t)digits);
        while (h < high)
            b->first[++h] = (uint16_t)k;
    }
    while (h < halves)
        b->first[++h] = (uint16_t)f.points;
}

/* ---- vectors ---- */

static inline floats choose(words mask, floats yes, floats no)
{
    return (floats)((mask & (words)yes) | (~mask & (words)no));
}

static inline float lane_of(const floats *v, unsigned i)
{
    float ret;
    memcpy(&ret, (const uint8_t *)v + i * sizeof(ret), sizeof(ret));
    return ret;
}

/* ---- costs ---- */

/* The costs of parts of a unit with the right signs, and with one wrong sign. */
struct part_costs {
    floats even[HALVES_MOST], odd[HALVES_MOST];
};

/* Compute the costs of the levels of one value. */
FIXED void value_costs(struct point_form f, floats x, floats w, floats s, floats shift,
                       floats *even, floats *odd)
{
    const floats xw = 2 * (w * x);
    for (unsigned v = 0; v < f.levels; v++) {
        const floats p = s * (is_moved(f) ? f.level[v] + shift : all_wide(f.level[v])), pw = p * w;
        even[v] = p * (pw - xw);
        if (is_even(f))
            odd[v] = p * (pw + xw);
    }
}

/* Combine the costs of n first parts and n second parts into the costs of the whole. */
FIXED void join_costs(struct point_form f, unsigned n, floats even[2][9], floats odd[2][9],
                      floats *whole, floats *whole_odd)
{
    for (unsigned b = 0; b < n; b++)
        for (unsigned a = 0; a < n; a++) {
            whole[b * n + a] = even[0][a] + even[1][b];
            if (is_even(f))
                whole_odd[b * n + a] = least_of(odd[0][a] + even[1][b], even[0][a] + odd[1][b]);
        }
}

/* Compute the costs of the half that begins with value `from`, for WIDE units starting at
 * `unit`. */
FIXED void half_costs(struct point_form f, const struct point_block *b, unsigned unit,
                      unsigned from, floats shift, struct part_costs *ret)
{
    floats even[4][9], odd[4][9], pair[2][9], pair_odd[2][9];
    const floats s = wide_at(b->s + unit);
    for (unsigned i = 0; i < f.n / 2; i++)
        value_costs(f, wide_at(b->x[from + i] + unit), wide_at(b->w[from + i] + unit), s, shift,
                    even[i], odd[i]);
    if (f.n == 4) {
        join_costs(f, 8, even, odd, ret->even, ret->odd);
        return;
    }
    for (unsigned i = 0; i < 2; i++)
        join_costs(f, 3, even + 2 * i, odd + 2 * i, pair[i], pair_odd[i]);
    join_costs(f, 9, pair, pair_odd, ret->even, ret->odd);
}

struct unit_costs {
    struct part_costs low, high;
};

/* Find the lowest costs, even and odd, among all points with this second half. */
FIXED void run_costs(struct point_form f, const struct point_book *book, const struct unit_costs *c,
                     unsigned h, floats ret[2])
{
    const unsigned end = book->first[h + 1];
    floats even = all_wide(FLT_MAX), odd = even, other = even;
    unsigned k = book->first[h];
    /* Track two minima, so that a comparison need not wait for the previous one. */
    for (; f.n == 8 && !is_even(f) && k + 1 < end; k += 2) {
        even = least_of(c->low.even[book->low[k]], even);
        other = least_of(c->low.even[book->low[k + 1]], other);
    }
    for (; k < end; k++) {
        even = least_of(c->low.even[book->low[k]], even);
        if (is_even(f))
            odd = least_of(c->low.odd[book->low[k]], odd);
    }
    even = least_of(other, even);
    ret[0] = even + c->high.even[h];
    ret[1] = is_even(f) ? least_of(even + c->high.odd[h], odd + c->high.even[h]) : ret[0];
}

/* Compute the costs of the best points for the scales b->s, for both ways. */
FIXED void try_scales(struct point_form f, const struct point_book *book, struct point_block *b)
{
    struct unit_costs c;
    for (unsigned u = 0; u < 256 / f.n; u += WIDE)
        for (unsigned way = 0; way < (is_moved(f) ? 2 : 1); way++) {
            const floats shift = all_wide(way ? -POINT_SHIFT : POINT_SHIFT);
            floats best[2] = {all_wide(FLT_MAX), all_wide(FLT_MAX)}, run[2];
            half_costs(f, b, u, 0, shift, &c.low);
            half_costs(f, b, u, f.n / 2, shift, &c.high);
            for (unsigned h = 0; h < (f.n == 8 ? 81 : 64); h++) {
                run_costs(f, book, &c, h, run);
                best[0] = least_of(run[0], best[0]);
                best[1] = least_of(run[1], best[1]);
            }
            put_wide(b->cost[way] + u, best[0]);
            if (is_even(f))
                put_wide(b->cost[1] + u, best[1]);
        }
}

/* Find the best point for one unit among those with this second half. */
FIXED uint16_t find_point(const struct point_book *book, const struct unit_costs *c, unsigned h,
                          unsigned lane, bool odd)
{
    const float even_high = lane_of(&c->high.even[h], lane);
    const float odd_high = odd ? lane_of(&c->high.odd[h], lane) : 0;
    unsigned best = book->first[h];
    float least = FLT_MAX;
    for (unsigned k = best; k < book->first[h + 1]; k++) {
        float sum = lane_of(&c->low.even[book->low[k]], lane) + (odd ? odd_high : even_high);
        if (odd) {
            const float other = lane_of(&c->low.odd[book->low[k]], lane) + even_high;
            sum = other < sum ? other : sum;
        }
        best = sum < least ? k : best;
        least = sum < least ? sum : least;
    }
    return (uint16_t)best;
}

/* Find the best points for the scales b->s and the ways b->way. */
FIXED void find_points(struct point_form f, const struct point_book *book, struct point_block *b)
{
    struct unit_costs c;
    for (unsigned u = 0; u < 256 / f.n; u += WIDE) {
        const words way = bytes_at(b->way + u) != 0;
        const floats shift = choose(way, all_wide(-POINT_SHIFT), all_wide(POINT_SHIFT));
        floats best = all_wide(FLT_MAX), run[2];
        words at = {0};
        half_costs(f, b, u, 0, shift, &c.low);
        half_costs(f, b, u, f.n / 2, shift, &c.high);
        for (unsigned h = 0; h < (f.n == 8 ? 81 : 64); h++) {
            run_costs(f, book, &c, h, run);
            const floats sum = is_even(f) ? choose(way, run[1], run[0]) : run[0];
            const words less = sum < best;
            at = (less & ((words){0} + (int32_t)h)) | (~less & at);
            best = least_of(sum, best);
        }
        for (unsigned i = 0; i < WIDE; i++)
            b->point[u + i] = find_point(book, &c, (unsigned)at[i], i, is_even(f) && b->way[u + i]);
    }
}

/* ---- groups ---- */

/* Compute the cost of a group from the costs of its units, and choose the way of each unit. */
FIXED float group_cost(struct point_form f, const struct point_block *b, unsigned first,
                       uint8_t *way)
{
    float sum = 0, moved = 0;
    for (unsigned i = 0; i < f.group; i++) {
        const unsigned u = first + i;
        const float even = b->cost[0][u], odd = f.signs == POINT_FREE ? even : b->cost[1][u];
        if (f.signs == POINT_EVEN_PAIR && i % 2 == 0) {
            const float one = odd + b->cost[0][u + 1], other = even + b->cost[1][u + 1];
            way[i] = b->odd[u] && one <= other;
            way[i + 1] = b->odd[u] && !way[i];
        } else if (f.signs != POINT_EVEN_PAIR) {
            way[i] = f.signs == POINT_EVEN ? b->odd[u] : f.signs == POINT_MOVED && odd < even;
        }
        sum += way[i] ? odd : even;
        moved += odd;
    }
    if (f.signs == POINT_MOVED_GROUP && moved < sum) {
        memset(way, 1, f.group);
        return moved;
    }
    return sum;
}

/* Choose the cheapest l near b->s for each group, and set b->s to the scale for that l. */
FIXED void choose_l(struct point_form f, const struct point_book *book, struct point_block *b,
                    float d)
{
    const unsigned units = 256 / f.n;
    float best[UNITS_MOST], nearest[UNITS_MOST];
    uint8_t way[UNITS_MOST];
    for (unsigned u = 0; u < units; u += f.group) {
        best[u] = FLT_MAX;
        nearest[u] = nearest_of((b->s[u] / d - 1) / 2, 0, (float)f.last);
    }
    for (int t = -(int)f.span; t <= (int)f.span; t++) {
        for (unsigned u = 0; u < units; u++)
            b->s[u] =
                d *
                (2 * nearest_of(nearest[u / f.group * f.group] + (float)t, 0, (float)f.last) + 1);
        try_scales(f, book, b);
        for (unsigned u = 0; u < units; u += f.group) {
            const float cost = group_cost(f, b, u, way);
            if (!(cost < best[u]))
                continue;
            best[u] = cost;
            b->l[u / f.group] = (uint8_t)nearest_of(nearest[u] + (float)t, 0, (float)f.last);
            memcpy(b->way + u, way, f.group);
        }
    }
    for (unsigned u = 0; u < units; u++)
        b->s[u] = d * (float)(2 * b->l[u / f.group] + 1);
}

/* For each unit, sum up w * x * v and w * v * v, where v is the level nearest to x at the scale
 * part * b->s. */
FIXED void level_sums(struct point_form f, const struct point_block *b, float part, float shift,
                      float *xl, float *ll)
{
    for (unsigned u = 0; u < 256 / f.n; u += WIDE) {
        const floats s = wide_at(b->s + u) * part;
        floats sum_xl = {0}, sum_ll = {0};
        for (unsigned i = 0; i < f.n; i++) {
            const floats x = wide_at(b->x[i] + u), w = wide_at(b->w[i] + u);
            floats v = all_wide(f.level[0] + shift);
            for (unsigned k = 0; k + 1 < f.levels; k++) {
                const floats step = all_wide(f.level[k + 1] - f.level[k]);
                const words above = x > s * (0.5f * (f.level[k] + f.level[k + 1]) + shift);
                v += (floats)(above & (words)step);
            }
            sum_xl += w * x * v;
            sum_ll += w * v * v;
        }
        put_wide(xl + u, sum_xl);
        put_wide(ll + u, sum_ll);
    }
}

/* Set b->s to a scale for each group, as if the book contained every point. Returns the largest
 * scale. */
FIXED float start_scales(struct point_form f, struct point_block *b)
{
    const unsigned units = 256 / f.n, tries = 12;
    float gain[UNITS_MOST] = {0}, best[UNITS_MOST] = {0}, xl[UNITS_MOST], ll[UNITS_MOST], found = 0;
    for (unsigned u = 0; u < units; u += f.group) { /* start with the largest value in the group */
        float top = 0;
        for (unsigned k = u; k < u + f.group; k++)
            for (unsigned i = 0; i < f.n; i++)
                top = fabsf(b->x[i][k]) > top ? fabsf(b->x[i][k]) : top;
        for (unsigned k = u; k < u + f.group; k++)
            b->s[k] = top;
    }
    for (unsigned t = 0; t < (is_moved(f) ? 2 : 1) * tries; t++) {
        const float try = (float)(t % tries), shift = !is_moved(f) ? 0
                                                      : t < tries  ? POINT_SHIFT
                                                                   : -POINT_SHIFT;
        const float reach = is_moved(f) ? 0.9f + 0.2f *
        try : f
            .level[f.levels - 1] * (0.7f + 0.07f * try);
        level_sums(f, b, 1 / reach, shift, xl, ll);
        for (unsigned u = 0; u < units; u += f.group) {
            float x = 0, l = 0;
            for (unsigned k = u; k < u + f.group; k++) {
                x += xl[k];
                l += ll[k];
            }
            if (x > 0 && l > 0 && x * x > gain[u] * l) {
                gain[u] = x * x / l;
                best[u] = x / l;
            }
        }
    }
    for (unsigned u = 0; u < units; u++) {
        b->s[u] = best[u / f.group * f.group];
        found = b->s[u] > found ? b->s[u] : found;
    }
    return found;
}

/* ---- blocks ---- */

/* Load 256 values as units side by side, multiplied by `up`. No weight becomes zero. */
FIXED void spread_units(struct point_form f, const float *restrict x, const float *restrict weight,
                        float up, struct point_block *b)
{
    const float most = weight ? top_magnitude(weight, 256) : 0;
    for (unsigned u = 0; u < 256 / f.n; u++) {
        unsigned minus = 0;
        for (unsigned i = 0; i < f.n; i++) {
            const unsigned k = u * f.n + i;
            const float v = x[k] * up;
            minus |= (unsigned)(v < 0) << i;
            b->x[i][u] = is_moved(f) ? v : fabsf(v);
            b->w[i][u] = most > 0 ? weight[k] / most + 0x1p-20f : 1;
        }
        b->minus[u] = (uint8_t)minus;
    }
    for (unsigned u = 0; u < 256 / f.n; u++) {
        const unsigned other = f.signs == POINT_EVEN_PAIR ? b->minus[u ^ 1] : 0;
        b->odd[u] = is_even(f) && __builtin_parity(b->minus[u] ^ other);
    }
}

/* The sums of w * x * k * v and of w * (k * v)^2 over the block, where k = 2l + 1. */
struct point_sums {
    float xl, ll;
};

/* Choose the points and signs of all units. */
FIXED struct point_sums take_points(struct point_form f, const struct point_book *book,
                                    struct point_block *b)
{
    struct point_sums sums = {0, 0};
    find_points(f, book, b);
    for (unsigned u = 0; u < 256 / f.n; u++) {
        const uint64_t digits = digits_of(f, b->point[u]);
        const float k = (float)(2 * b->l[u / f.group] + 1);
        const float shift = !is_moved(f) ? 0 : b->way[u] ? -POINT_SHIFT : POINT_SHIFT;
        unsigned cheap = 0;
        float least = FLT_MAX, xl = 0, ll = 0;
        for (unsigned i = 0; i < f.n; i++) {
            const float v = f.level[digits >> 8 * i & 7] + shift, w = b->w[i][u],
                        xv = w * b->x[i][u] * v;
            xl += xv;
            ll += w * v * v;
            cheap = xv < least ? i : cheap;
            least = xv < least ? xv : least;
        }
        if (is_even(f) && b->way[u]) { /* the value with the wrong sign */
            xl -= 2 * least;
            b->minus[u] ^= (uint8_t)(1 << cheap);
        }
        sums.xl += k * xl;
        sums.ll += k * k * ll;
    }
    return sums;
}

/* Return the cost of the block with this d, relative to storing zeros. */
static inline float block_cost(struct point_sums s, float d)
{
    return d * (d * s.ll - 2 * s.xl);
}

/* Find points for 256 values, and store d as binary16 at `half`. If d is 0, all of *b is zero
 * too. Returns false if d would be infinite or a value is not finite. */
FIXED bool fit_points(struct point_form f, const struct point_book *book, const float *restrict x,
                      const float *restrict weight, struct point_block *b, uint8_t *half)
{
    const float top = top_magnitude(x, 256);
    uint8_t fitted[2];
    if (!(top < 0x1p32f))
        return false;
    const bool tiny = top < 0x1p-30f; /* far below the values that the smallest d yields */
    const uint32_t exponent = tiny ? 127 : f32_bits(top) >> 23;
    const float up = f32_from_bits((254 - exponent) << 23), down = f32_from_bits(exponent << 23);
    spread_units(f, x, weight, up, b);
    const float start = tiny ? 0 : start_scales(f, b) / (float)(2 * f.last + 1) * down;
    if (!put_half(half, start < 0x1p-24f ? 0x1p-24f : start))
        return false;
    const float d = half_at(half) * up;
    if (start > 0) {
        choose_l(f, book, b, d);
        const struct point_sums sums = take_points(f, book, b);
        if (put_half(fitted, sums.xl / sums.ll * down) &&
            block_cost(sums, half_at(fitted) * up) < block_cost(sums, d))
            memcpy(half, fitted, 2);
        if (block_cost(sums, half_at(half) * up) < 0)
            return true;
    }
    memset(half, 0, 2);
    memset(b, 0, sizeof(*b));
    return true;
}

/* Store the l of every group in n bytes, two per byte. */
static inline void put_scales(uint8_t *to, const struct point_block *b, unsigned n)
{
    for (unsigned k = 0; k < n; k++)
        to[k] = (uint8_t)(b->l[2 * k] | b->l[2 * k + 1] << 4);
}

/* Define a type's encoder, given its form. The type's put_T() stores the result in the fields of a
 * block. */
#define POINT_ENCODER(T, form)                                                                    \
    ENCODES(T)                                                                                    \
    {                                                                                             \
        struct point_book book;                                                                   \
        struct point_block found;                                                                 \
        make_book(form, &book);                                                                   \
        for (size_t i = 0; i < n; i++) {                                                          \
            uint8_t half[2];                                                                      \
            if (!fit_points(form, &book, src + i * T##_LEN, weight ? weight + i * T##_LEN : NULL, \
                            &found, half))                                                        \
                return i;                                                                         \
            put_##T(&found, half, dst + i * T##_BYTES);                                           \
        }                                                                                         \
        return n;                                                                                 \
    }

/*
 * ---- one bit ----
 *
 * Eight elements are an entry from a book of 2048 (codes -1, 0, 1), and are all shifted by +1/8 or
 * -1/8.
 *
 *     IQ1_S   d:half  qs[32]  qh[8]:u16         y = (d * (2s + 1)) * (code +- 1/8)
 *     IQ1_M   qs[32]  qh[16]  scales[4]:u16     as IQ1_S; d has no field of its own
 *
 * The index of entry l in a group of 32 consists of a byte of qs (the low bits) and three bits of
 * qh:
 *
 *     IQ1_S: qh[g], the word of group g               IQ1_M: qh[k], entries 2k and 2k + 1
 *      15  14    12 11   9 8    6 5    3 2    0          7  6      4  3  2      0
 *     +---+--------+------+------+------+------+       +---+--------+---+--------+
 *     | - | scale  | l=3  | l=2  | l=1  | l=0  |       | - | 2k + 1 | - |   2k   |
 *     +---+--------+------+------+------+------+       +---+--------+---+--------+
 *
 *     IQ1_M: scales[k], each for 16 elements
 *      15        12 11    9 8     6 5     3 2     0
 *     +------------+-------+-------+-------+-------+
 *     | nibble k   | 4k+3  | 4k+2  | 4k+1  |  4k   |   nibble k of d: bits 4k to 4k + 3
 *     | of d       |       |       |       |       |
 *     +------------+-------+-------+-------+-------+
 *
 * A set bit in a place marked - moves the entry down, a clear one up.
 */
enum { IQ1S_QS = 2, IQ1S_QH = 34, IQ1M_QS = 0, IQ1M_QH = 32, IQ1M_SCALES = 48 };
static_assert(IQ1S_QH + 8 * 2 == IQ1_S_BYTES, "IQ1_S");
static_assert(IQ1M_SCALES + 4 * 2 == IQ1_M_BYTES, "IQ1_M");

/* Return -1/8 if the flag (0 or 1) is set, otherwise 1/8. The flag becomes the sign bit, because a
 * branch would be unpredictable. */
static inline float iq1_shift(unsigned flag)
{
    return f32_from_bits(0x3e000000 | flag << 31);
}

FIXED void block_IQ1_S(const uint8_t *restrict b, float *restrict y)
{
    float d = half_at(b);
    for (size_t g = 0; g < 8; g++) {
        unsigned w = get_u16(b + IQ1S_QH + 2 * g, false);
        float scale = d * (float)(int)(2 * (w >> 12 & 7) + 1), shift = iq1_shift(w >> 15);
        for (size_t l = 0; l < 4; l++) {
            unsigned index = b[IQ1S_QS + 4 * g + l] | (w >> 3 * l & 7) << 8;
            put8_shifted(y + 32 * g + 8 * l, iq1s_grid[index], shift, scale);
        }
    }
}
DECODER(IQ1_S)

/* The levels 0, 1 and 2 are the codes -1, 0 and 1. */
#define IQ1_LEVELS \
    .points = 2048, .n = 8, .last = 7, .levels = 3, .level = {-1, 0, 1}, .of8 = iq1s_grid, .add = 1
static const struct point_form iq1s_form = {
    .group = 4, .span = 1, .signs = POINT_MOVED_GROUP, IQ1_LEVELS};

static inline void put_IQ1_S(const struct point_block *p, const uint8_t d[2], uint8_t *restrict b)
{
    memcpy(b, d, 2);
    for (unsigned g = 0; g < 8; g++) {
        unsigned w = (unsigned)(p->way[4 * g] << 15 | p->l[g] << 12);
        for (unsigned l = 0; l < 4; l++) {
            b[IQ1S_QS + 4 * g + l] = (uint8_t)p->point[4 * g + l];
            w |= (unsigned)p->point[4 * g + l] >> 8 << 3 * l;
        }
        put_u16(b + IQ1S_QH + 2 * g, (uint16_t)w, false);
    }
}
POINT_ENCODER(IQ1_S, iq1s_form)

/* Extract the four 3-bit scales from the word w, each into a byte. */
static inline uint32_t iq1_m_fields(unsigned w)
{
    return (w & 7) | (w << 5 & 0x700) | (w << 10 & 0x70000) | (w << 15 & 0x7000000);
}

static inline void iq1_m_scales(float scale[16], const uint8_t *scales)
{
    unsigned bits = 0; /* of d */
    for (unsigned k = 0; k < 4; k++)
        bits |= (unsigned)(get_u16(scales + 2 * k, false) >> 12) << 4 * k;
    uint8_t half[2];
    put_u16(half, (uint16_t)bits, false);
    const float d = half_at(half);
    for (unsigned h = 0; h < 16; h += 8) {
        const uint8_t *two = scales + h / 2;
        const uint64_t s = iq1_m_fields(get_u16(two, false)) |
                           (uint64_t)iq1_m_fields(get_u16(two + 2, false)) << 32;
        put8(scale + h, s << 1 | BYTES8(1), d);
    }
}

FIXED void block_IQ1_M(const uint8_t *restrict b, float *restrict y)
{
    float scale[16];
    iq1_m_scales(scale, b + IQ1M_SCALES);
    for (size_t h = 0; h < 16; h++) /* half groups: 16 elements, two entries */
        for (size_t l = 0; l < 2; l++) {
            const unsigned n = b[IQ1M_QH + h] >> 4 * l, index = b[IQ1M_QS + 2 * h + l] | (n & 7)
                                                                                             << 8;
            put8_shifted(y + 16 * h + 8 * l, iq1s_grid[index], iq1_shift(n >> 3 & 1), scale[h]);
        }
}
DECODER(IQ1_M)

static const struct point_form iq1m_form = {
    .group = 2, .span = 1, .signs = POINT_MOVED, IQ1_LEVELS};

static inline void put_IQ1_M(const struct point_block *p, const uint8_t d[2], uint8_t *restrict b)
{
    memset(b + IQ1M_QH, 0, 16);
    for (unsigned u = 0; u < 32; u++) {
        b[IQ1M_QS + u] = (uint8_t)p->point[u];
        b[IQ1M_QH + u / 2] |= (uint8_t)((p->point[u] >> 8 | p->way[u] << 3) << 4 * (u % 2));
    }
    for (unsigned k = 0; k < 4; k++) {
        unsigned w = (get_u16(d, false) >> 4 * k & 15u) << 12;
        for (unsigned h = 0; h < 4; h++)
            w |= (unsigned)p->l[4 * k + h] << 3 * h;
        put_u16(b + IQ1M_SCALES + 2 * k, (uint16_t)w, false);
    }
}
POINT_ENCODER(IQ1_M, iq1m_form)

/*
 * ---- two bits ----
 *
 * Groups have 32 elements. Eight elements are an entry from a code book (magnitudes 8, 25, 43) with
 * eight signs.
 *
 *     IQ2_XXS   d:half  8 x { index[4]  a:u32 }                   book of 256
 *     IQ2_XS    d:half  qs[32]:u16  scales[8]                     book of 512
 *     IQ2_S     d:half  qs[32]  signs[32]  qh[8]  scales[8]       book of 1024
 *
 *     y = +-(((d * (0.5 + s)) * 0.25) * magnitude)
 *
 *     IQ2_XXS: a; signs of entry l               IQ2_XS: qs[k]         IQ2_S: qh[g], top bits
 *      31   28 27  21 20  14 13   7 6    0        15     9 8     0      7   6 5   4 3   2 1   0
 *     +-------+------+------+------+------+      +--------+-------+    +-----+-----+-----+-----+
 *     | scale | l=3  | l=2  | l=1  | l=0  |      | signs  | index |    | l=3 | l=2 | l=1 | l=0 |
 *     +-------+------+------+------+------+      +--------+-------+    +-----+-----+-----+-----+
 *
 * Seven sign bits stand for eight; the eighth makes the number of set bits even. In scales[g], the
 * low nibble is the scale of the first 16 elements in group g, the high nibble that of the last 16.
 */
enum { IQ2XXS_GROUPS = 2 };
enum { IQ2XS_QS = 2, IQ2XS_SCALES = 66 };
enum { IQ2S_QS = 2, IQ2S_SIGNS = 34, IQ2S_QH = 66, IQ2S_SCALES = 74 };
static_assert(IQ2XXS_GROUPS + 8 * 8 == IQ2_XXS_BYTES, "IQ2_XXS");
static_assert(IQ2XS_SCALES + 8 == IQ2_XS_BYTES, "IQ2_XS");
static_assert(IQ2S_SCALES + 8 == IQ2_S_BYTES, "IQ2_S");

FIXED void block_IQ2_XXS(const uint8_t *restrict b, float *restrict y)
{
    float d = half_at(b);
    for (size_t g = 0; g < 8; g++) {
        const uint8_t *index = b + IQ2XXS_GROUPS + 8 * g;
        uint32_t a = get_u32(index + 4, false);
        float scale = (d * (0.5f + (float)(int)(a >> 28))) * 0.25f;
        for (size_t l = 0; l < 4; l++) {
            const unsigned minus = even_signs(a >> 7 * l & 127);
            put8_signed(y + 32 * g + 8 * l, iq2xxs_grid[index[l]], minus, scale);
        }
    }
}
DECODER(IQ2_XXS)

/* Bits 4 and 5 of each of the levels 8, 25 and 43 give its number. */
#define IQ2_LEVELS .last = 15, .span = 3, .levels = 3, .level = {1, 3.125f, 5.375f}, .at = 4
static const struct point_form iq2xxs_form = {
    .points = 256, .n = 8, .group = 4, .signs = POINT_EVEN, .of8 = iq2xxs_grid, IQ2_LEVELS};

static inline void put_IQ2_XXS(const struct point_block *p, const uint8_t d[2], uint8_t *restrict b)
{
    memcpy(b, d, 2);
    for (unsigned g = 0; g < 8; g++) {
        uint8_t *index = b + IQ2XXS_GROUPS + 8 * g;
        uint32_t a = (uint32_t)p->l[g] << 28;
        for (unsigned l = 0; l < 4; l++) {
            index[l] = (uint8_t)p->point[4 * g + l];
            a |= (uint32_t)(p->minus[4 * g + l] & 127) << 7 * l;
        }
        put_u32(index + 4, a, false);
    }
}
POINT_ENCODER(IQ2_XXS, iq2xxs_form)

/* Read scales[8] into two rows: the scales of the first halves of groups 0 to 7, and those of
 * the second halves. All results are exact. */
static inline void iq2_scales(float scale[2][8], const uint8_t *scales, float d)
{
    put8_shifted(scale[0], fields8(scales, 0, 15), 0.5f, d * 0.25f);
    put8_shifted(scale[1], fields8(scales, 4, 15), 0.5f, d * 0.25f);
}

FIXED void block_IQ2_XS(const uint8_t *restrict b, float *restrict y)
{
    float scale[2][8];
    iq2_scales(scale, b + IQ2XS_SCALES, half_at(b));
    for (size_t g = 0; g < 8; g++)
        for (size_t l = 0; l < 4; l++) {
            const unsigned w = get_u16(b + IQ2XS_QS + 8 * g + 2 * l, false);
            put8_signed(y + 32 * g + 8 * l, iq2xs_grid[w & 511], even_signs(w >> 9),
                        scale[l / 2][g]);
        }
}
DECODER(IQ2_XS)

static const struct point_form iq2xs_form = {
    .points = 512, .n = 8, .group = 2, .signs = POINT_EVEN, .of8 = iq2xs_grid, IQ2_LEVELS};

static inline void put_IQ2_XS(const struct point_block *p, const uint8_t d[2], uint8_t *restrict b)
{
    memcpy(b, d, 2);
    for (unsigned u = 0; u < 32; u++) {
        const unsigned w = p->point[u] | (unsigned)(p->minus[u] & 127) << 9;
        put_u16(b + IQ2XS_QS + 2 * u, (uint16_t)w, false);
    }
    put_scales(b + IQ2XS_SCALES, p, 8);
}
POINT_ENCODER(IQ2_XS, iq2xs_form)

FIXED void block_IQ2_S(const uint8_t *restrict b, float *restrict y)
{
    float scale[2][8];
    iq2_scales(scale, b + IQ2S_SCALES, half_at(b));
    for (size_t g = 0; g < 8; g++) {
        const unsigned top = (unsigned)b[IQ2S_QH + g] << 8;
        for (size_t l = 0; l < 4; l++) {
            const unsigned index = b[IQ2S_QS + 4 * g + l] | (top >> 2 * l & 0x300);
            put8_signed(y + 32 * g + 8 * l, iq2s_grid[index], b[IQ2S_SIGNS + 4 * g + l],
                        scale[l / 2][g]);
        }
    }
}
DECODER(IQ2_S)

static const struct point_form iq2s_form = {
    .points = 1024, .n = 8, .group = 2, .signs = POINT_FREE, .of8 = iq2s_grid, IQ2_LEVELS};

static inline void put_IQ2_S(const struct point_block *p, const uint8_t d[2], uint8_t *restrict b)
{
    memcpy(b, d, 2);
    memcpy(b + IQ2S_SIGNS, p->minus, 32);
    memset(b + IQ2S_QH, 0, 8);
    for (unsigned u = 0; u < 32; u++) {
        b[IQ2S_QS + u] = (uint8_t)p->point[u];
        b[IQ2S_QH + u / 4] |= (uint8_t)(p->point[u] >> 8 << 2 * (u % 4));
    }
    put_scales(b + IQ2S_SCALES, p, 8);
}
POINT_ENCODER(IQ2_S, iq2s_form)

/*
 * ---- three bits ----
 *
 * Groups have 32 elements. Four elements are an entry from a code book of magnitudes, and eight
 * elements share a byte of signs.
 *
 *     IQ3_XXS   d:half  qs[64]  a[8]:u32                          book of 256
 *     IQ3_S     d:half  qs[64]  qh[8]  signs[32]  scales[4]       book of 512
 *
 *     IQ3_XXS   y = +-(((d * (0.5 + s)) * 0.5) * magnitude)
 *     IQ3_S     y = +-((d * (1 + 2s)) * magnitude)
 *
 *     IQ3_XXS: a[g]; signs of 8 elements         IQ3_S: qh[g], ninth bits   IQ3_S: scales[k]
 *      31   28 27  21 20  14 13   7 6    0        7   6         1   0      7     4 3     0
 *     +-------+------+------+------+------+      +---+---+- - -+---+---+  +--------+--------+
 *     | scale | l=3  | l=2  | l=1  | l=0  |      | entry 7 ... entry 0 |  | g=2k+1 |  g=2k  |
 *     +-------+------+------+------+------+      +---+---+- - -+---+---+  +--------+--------+
 *
 * The seven sign bits of IQ3_XXS stand for eight, as in IQ2_XXS.
 */
enum {
    IQ3XXS_QS = 2,
    IQ3XXS_A = 66,
    IQ3S_QS = 2,
    IQ3S_QH = 66,
    IQ3S_SIGNS = 74,
    IQ3S_SCALES = 106
};
static_assert(IQ3XXS_A + 8 * 4 == IQ3_XXS_BYTES, "IQ3_XXS");
static_assert(IQ3S_SCALES + 4 == IQ3_S_BYTES, "IQ3_S");

/* Join the eight codes of two entries. With AVX2, they are joined in a vector register, where
 * they will be used. */
static inline uint64_t join_words(uint32_t first, uint32_t second)
{
#ifdef __AVX2__
    const __m128i low = _mm_cvtsi32_si128((int)first);
    return (uint64_t)_mm_cvtsi128_si64(_mm_insert_epi32(low, (int)second, 1));
#else
    return first | (uint64_t)second << 32;
#endif
}

FIXED void block_IQ3_XXS(const uint8_t *restrict b, float *restrict y)
{
    float d = half_at(b);
    for (size_t g = 0; g < 8; g++) {
        uint32_t a = get_u32(b + IQ3XXS_A + 4 * g, false);
        float scale = (d * (0.5f + (float)(int)(a >> 28))) * 0.5f;
        for (size_t l = 0; l < 4; l++) {
            const uint8_t *qs = b + IQ3XXS_QS + 8 * g + 2 * l;
            const unsigned minus = even_signs(a >> 7 * l & 127);
            uint64_t q = join_words(iq3xxs_grid[qs[0]], iq3xxs_grid[qs[1]]);
            put8_signed(y + 32 * g + 8 * l, q, minus, scale);
        }
    }
}
DECODER(IQ3_XXS)

#define IQ3_LEVELS(top) \
    .n = 4, .group = 8, .last = 15, .span = 3, .levels = 8, .level = {1, 3, 5, 7, 9, 11, 13, top}
static const struct point_form iq3xxs_form = {
    .points = 256, .signs = POINT_EVEN_PAIR, .of4 = iq3xxs_grid, .at = 3, IQ3_LEVELS(15.5f)};

/* Return the signs of the eight values in two units. */
static inline uint8_t two_signs(const struct point_block *p, unsigned k)
{
    return (uint8_t)(p->minus[2 * k] | p->minus[2 * k + 1] << 4);
}

static inline void put_IQ3_XXS(const struct point_block *p, const uint8_t d[2], uint8_t *restrict b)
{
    memcpy(b, d, 2);
    for (unsigned u = 0; u < 64; u++)
        b[IQ3XXS_QS + u] = (uint8_t)p->point[u];
    for (unsigned g = 0; g < 8; g++) {
        uint32_t a = (uint32_t)p->l[g] << 28;
        for (unsigned l = 0; l < 4; l++)
            a |= (uint32_t)(two_signs(p, 4 * g + l) & 127) << 7 * l;
        put_u32(b + IQ3XXS_A + 4 * g, a, false);
    }
}
POINT_ENCODER(IQ3_XXS, iq3xxs_form)

FIXED void block_IQ3_S(const uint8_t *restrict b, float *restrict y)
{
    const float d = half_at(b);
    uint32_t index[64];
    for (unsigned k = 0; k < 64; k += WIDE) {
        const unsigned ninth = get_u16(b + IQ3S_QH + k / 16 * 2, false);
        put_words(index + k, bytes_at(b + IQ3S_QS + k) | spread_wide(ninth, k % 16, 8));
    }
    for (size_t g = 0; g < 8; g++) {
        const unsigned s = b[IQ3S_SCALES + g / 2] >> 4 * (g % 2) & 15;
        const float scale = d * (float)(int)(1 + 2 * s);
        for (size_t l = 0; l < 4; l++) {
            const uint32_t *two = index + 8 * g + 2 * l;
            const uint64_t q = join_words(iq3s_grid[two[0]], iq3s_grid[two[1]]);
            put8_signed(y + 32 * g + 8 * l, q, b[IQ3S_SIGNS + 4 * g + l], scale);
        }
    }
}
DECODER(IQ3_S)

static const struct point_form iq3s_form = {
    .points = 512, .signs = POINT_FREE, .of4 = iq3s_grid, .at = 1, IQ3_LEVELS(15)};

static inline void put_IQ3_S(const struct point_block *p, const uint8_t d[2], uint8_t *restrict b)
{
    memcpy(b, d, 2);
    memset(b + IQ3S_QH, 0, 8);
    for (unsigned u = 0; u < 64; u++) {
        b[IQ3S_QS + u] = (uint8_t)p->point[u];
        b[IQ3S_QH + u / 8] |= (uint8_t)(p->point[u] >> 8 << u % 8);
    }
    for (unsigned k = 0; k < 32; k++)
        b[IQ3S_SIGNS + k] = two_signs(p, k);
    put_scales(b + IQ3S_SCALES, p, 4);
}
POINT_ENCODER(IQ3_S, iq3s_form)

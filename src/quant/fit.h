/* SPDX-License-Identifier: MIT */
/*
 * Searches for the scale (and minimum) of a group of values, for the encoders.
 *
 * The largest value divided by the largest code is rarely the best scale: a slightly smaller or
 * larger scale puts the other values closer to codes. Several ways of rounding the group are
 * therefore tried. For given codes, least squares finds the best scale, which may differ from the
 * scale that produced them. The attempt with the smallest error wins. Large values weigh more,
 * because they affect a model's output more.
 *
 * The search returns the scale of the best codes. The encoder rounds it to a scale that the block
 * can store, and computes the codes again. Without importances, the results equal those of ggml's
 * quantisers, to the last bit. Importances, if given, replace the weights, and the stored scales
 * are refitted to all codes.
 *
 * Sums over a group are named after their factors: w is a weight, x a value, l a code; xl is the
 * sum of w * x * l, and so on.
 */
#ifndef QUANT_FIT_H
#define QUANT_FIT_H

#include "quant/pack.h"

/*
 * ---- groups side by side ----
 *
 * A group is summed in the order of its values, as in ggml, so its sums cannot be split, but the
 * groups in a block are independent. A vector has one value from each of LANES groups:
 *
 *     values in memory                         v[0]  v[1]        v[n-1]
 *     group 0:  x0 x1 ... x(n-1)      lane 0    x0    x1   ...   x(n-1)
 *     group 1:  y0 y1 ... y(n-1)      lane 1    y0    y1   ...   y(n-1)
 *
 * Lanes never interact, so their number does not change a bit of the result. Vectors are as wide as
 * the set's registers, so that all compilers pass them in registers.
 */
#ifdef __AVX2__
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t masks
    __attribute__((vector_size(4 * LANES))); /* the result of a comparison: -1 or 0 */

/* Return `yes` where the mask is set, `no` elsewhere. */
static inline lanes pick(masks mask, lanes yes, lanes no)
{
#ifdef __AVX2__
    return (lanes)_mm256_blendv_ps((__m256)no, (__m256)yes, (__m256)mask);
#else
    return (lanes)((mask & (masks)yes) | (~mask & (masks)no));
#endif
}

static inline lanes all_lanes(float x)
{
    return (lanes){0} + x;
}

static inline bool any_lane(masks mask)
{
#ifdef __AVX2__
    return _mm256_movemask_ps((__m256)mask) != 0;
#else
    int32_t any = 0;
    for (unsigned g = 0; g < LANES; g++)
        any |= mask[g];
    return any != 0;
#endif
}

static inline lanes magnitudes(lanes x)
{
    return (lanes)((masks)x & 0x7fffffff);
}

/* Clamp v to [least, most]. A NaN becomes `least`. */
static inline lanes clamp(lanes v, float least, float most)
{
    const lanes a = all_lanes(least), b = all_lanes(most);
#ifdef __AVX2__
    return (lanes)_mm256_min_ps(_mm256_max_ps((__m256)v, (__m256)a), (__m256)b);
#elif defined(__SSE2__)
    return (lanes)_mm_min_ps(_mm_max_ps((__m128)v, (__m128)a), (__m128)b);
#else
    v = pick(v > a, v, a);
    return pick(v < b, v, b);
#endif
}

/* Return the nearest integer from `least` to `most` as a float, with ties to even. Around 1.5 *
 * 2^23, all floats are integers, so the addition rounds. */
static inline lanes nearest(lanes v, float least, float most)
{
    return (clamp(v, least, most) + 0x1.8p23f) - 0x1.8p23f;
}

/* Load LANES groups of n values each. */
static inline void side_by_side(lanes *restrict to, const float *restrict x, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        lanes v = {0};
        for (unsigned g = 0; g < LANES; g++)
            v[g] = x[g * n + i];
        to[i] = v;
    }
}

static inline void put_lanes(float *to, lanes x)
{
    memcpy(to, &x, sizeof(x));
}

/* Store LANES groups of n codes as their distances from `least`. */
static inline void put_codes(uint8_t *restrict to, const lanes *restrict code, unsigned n,
                             float least)
{
    for (unsigned g = 0; g < LANES; g++)
        for (unsigned i = 0; i < n; i++)
            to[g * n + i] = (uint8_t)(code[i][g] - least);
}

/* Return the value with the largest magnitude in each group, or the first of several. */
static inline lanes top_values(const lanes *x, unsigned n)
{
    lanes top = x[0];
    for (unsigned i = 1; i < n; i++)
        top = pick(magnitudes(x[i]) > magnitudes(top), x[i], top);
    return top;
}

/* ---- searches ---- */

/* A group whose largest magnitude is below this is stored as zeros. */
#define FIT_NOTHING 1e-15f

/*
 * Values this large are refused before they are summed. The limit is over ten times the largest
 * value that any scale can produce, and small enough for all sums to be finite. Products of sums
 * may still be infinite; in that case the first attempt wins.
 */
#define FIT_LIMIT 0x1p32f

/* Maximum number of groups in a block. */
enum { FIT_GROUPS = 16 };

/* Codes from 0 to `last`, with x = scale * code + low and low <= 0. Attempt t, counted from 0,
 * spreads the range of values over last + from + step * t codes. */
struct min_form {
    unsigned n; /* values per group */
    float last, from, step;
    unsigned tries;
    /* True: squared errors are summed, weighted by root mean square + |x|. False: magnitudes of
     * errors are summed, weighted by |x|. */
    bool squares;
    bool free; /* low may be positive */
};

/* Return the form for a search with importances. */
FIXED struct min_form weighed_form(struct min_form f)
{
    f.from = -0.9f;
    f.step = 0.05f;
    f.tries = 37;
    f.squares = true;
    return f;
}

struct min_fits {
    float scale[FIT_GROUPS], min[FIT_GROUPS]; /* min = -low */
};

/* Everything about LANES groups that does not depend on codes, such as the values' weights. */
struct min_groups {
    lanes x[32], w[32], sum_w, sum_x;
};

FIXED void min_weigh(struct min_form f, struct min_groups *v, const float *weight)
{
    lanes sum = {0}, zero = {0};
    if (weight)
        side_by_side(v->w, weight, f.n);
    for (unsigned i = 0; i < f.n && f.squares && !weight; i++)
        sum += v->x[i] * v->x[i];
    for (unsigned g = 0; g < LANES && f.squares && !weight; g++)
        sum[g] = sqrtf(sum[g] / 32);
    v->sum_w = v->sum_x = zero;
    for (unsigned i = 0; i < f.n; i++) {
        v->w[i] = weight ? v->w[i] : sum + magnitudes(v->x[i]);
        v->sum_w += v->w[i];
        v->sum_x += v->w[i] * v->x[i];
    }
}

FIXED void min_codes(struct min_form f, const struct min_groups *v, lanes low, lanes k, lanes *code)
{
    for (unsigned i = 0; i < f.n; i++)
        code[i] = nearest(k * (v->x[i] - low), 0, f.last);
}

FIXED lanes min_error(struct min_form f, const struct min_groups *v, const lanes *code, lanes scale,
                      lanes low)
{
    lanes sum = {0};
    for (unsigned i = 0; i < f.n; i++) {
        const lanes off = scale * code[i] + low - v->x[i];
        sum += v->w[i] * (f.squares ? off * off : magnitudes(off));
    }
    return sum;
}

/* Solve the least squares problem for given codes. Unless f.free is set, a low above zero is
 * replaced by zero. Returns the lanes that have a solution. */
FIXED masks min_solve(struct min_form f, const struct min_groups *v, const lanes *code,
                      lanes *scale, lanes *low)
{
    lanes sum_l = {0}, sum_ll = {0}, sum_xl = {0}, zero = {0};
    for (unsigned i = 0; i < f.n; i++) {
        const lanes wl = v->w[i] * code[i];
        sum_l += wl;
        sum_ll += wl * code[i];
        sum_xl += wl * v->x[i];
    }
    const lanes det = v->sum_w * sum_ll - sum_l * sum_l;
    const lanes s = (v->sum_w * sum_xl - v->sum_x * sum_l) / det;
    const lanes o = (sum_ll * v->sum_x - sum_l * sum_xl) / det;
    *scale = f.free ? s : pick(o > zero, sum_xl / sum_ll, s);
    *low = f.free ? o : pick(o > zero, zero, o);
    return det > zero;
}

/* Find the smallest and the largest value. Unless f.free is set, low is at most zero. */
FIXED void min_range(struct min_form f, const struct min_groups *v, lanes *low, lanes *high)
{
    lanes zero = {0}, a = f.free ? v->x[0] : zero, b = v->x[0];
    for (unsigned i = 0; i < f.n; i++) {
        a = pick(v->x[i] < a, v->x[i], a);
        b = pick(v->x[i] > b, v->x[i], b);
    }
    *low = a;
    *high = b;
}

/*
 * Write the scales and minima of LANES groups to ret, starting at group `at`, and the codes to
 * `codes`. The first attempt uses the range as is. The form's attempts follow; the range of each
 * starts at the low of the best one so far.
 */
FIXED void fit_min(struct min_form f, const float *values, const float *weight,
                   struct min_fits *ret, unsigned at, uint8_t *codes)
{
    struct min_groups v;
    lanes code[32], low, high, s, o;
    side_by_side(v.x, values, f.n);
    min_weigh(f, &v, weight);
    min_range(f, &v, &low, &high);
    lanes k = f.last / (high - low), scale = 1 / k, offset = low, best_k = k, best_low = low;
    min_codes(f, &v, low, k, code);
    lanes best = min_error(f, &v, code, scale, low);
    for (unsigned t = 0; t < f.tries; t++) {
        k = ((f.from + f.step * (float)t) + f.last) / (high - low);
        min_codes(f, &v, low, k, code);
        masks better = min_solve(f, &v, code, &s, &o);
        const lanes error = min_error(f, &v, code, s, o);
        better &= error < best;
        best = pick(better, error, best);
        best_k = pick(better, k, best_k);
        best_low = pick(better, low, best_low);
        scale = pick(better, s, scale);
        offset = pick(better, o, offset);
        low = pick(better, o, low);
    }
    min_codes(f, &v, best_low, best_k, code);
    put_codes(codes, code, f.n, 0);
    put_lanes(ret->scale + at, scale);
    put_lanes(ret->min + at, -offset);
}

/*
 * Codes on both sides of zero, with x = scale * code. The error of the best scale for given codes
 * is sum(w * x * x) - gain, where gain = xl * xl / ll; the larger the gain, the better. Both sides
 * of a comparison are multiplied by ll to avoid the division.
 */
struct best {
    lanes scale, gain;
};

static inline struct best best_first(lanes xl, lanes ll)
{
    const lanes zero = {0}, scale = pick(ll > zero, xl / ll, zero);
    return (struct best){scale, scale * xl};
}

/* Keep the new scale in the lanes where it is better. Returns those lanes. */
static inline masks best_next(struct best *b, lanes xl, lanes ll)
{
    const lanes zero = {0}, scale = xl / ll;
    const masks better = (ll > zero) & (xl * xl > b->gain * ll);
    b->scale = pick(better, scale, b->scale);
    b->gain = pick(better, scale * xl, b->gain);
    return better;
}

/* Return the lanes of groups whose values all count as zeros. Such a group gets the scale 0 and
 * the lowest codes. */
static inline masks all_zeros(lanes top)
{
    return magnitudes(top) < all_lanes(FIT_NOTHING);
}

/* Codes range from -`zero` to `zero` - 1, for groups of n values. Attempts after the first move the
 * top value by at most `tries` / 10 of a code. */
struct even_form {
    unsigned n;
    float zero;
    int tries;
};

/* Multiply the values by k, and compute the sums for the resulting codes. */
FIXED void even_sums(struct even_form f, const lanes *x, const lanes *w, lanes k, lanes *xl,
                     lanes *ll)
{
    lanes sum_xl = {0}, sum_ll = {0};
    for (unsigned i = 0; i < f.n; i++) {
        const lanes l = nearest(k * x[i], -f.zero, f.zero - 1);
        sum_xl += w[i] * x[i] * l;
        sum_ll += w[i] * l * l;
    }
    *xl = sum_xl;
    *ll = sum_ll;
}

/*
 * Find scales and codes for LANES groups. First try the scale that puts the top value at the lowest
 * code, then scales around that one. With importances, also try the scales that put the top value
 * at the opposite end, if there are so few codes that this matters.
 */
FIXED void fit_even(struct even_form f, const float *values, const float *weight, float *scales,
                    uint8_t *codes)
{
    lanes x[32], w[32], code[32], xl, ll, zero = {0};
    side_by_side(x, values, f.n);
    const lanes top = top_values(x, f.n);
    if (weight)
        side_by_side(w, weight, f.n);
    for (unsigned i = 0; i < f.n && !weight; i++)
        w[i] = x[i] * x[i];
    lanes best_k = -f.zero / top;
    even_sums(f, x, w, best_k, &xl, &ll);
    struct best best = best_first(xl, ll);
    for (int side = -1; side <= (weight && f.zero <= 16 ? 1 : -1); side += 2)
        for (int t = -f.tries; t <= f.tries; t++) {
            const lanes k = (float)side * (f.zero + 0.1f * (float)t) / top;
            if (t == 0 && side < 0)
                continue;
            even_sums(f, x, w, k, &xl, &ll);
            best_k = pick(best_next(&best, xl, ll), k, best_k);
        }
    for (unsigned i = 0; i < f.n; i++)
        code[i] =
            pick(all_zeros(top), all_lanes(-f.zero), nearest(best_k * x[i], -f.zero, f.zero - 1));
    put_codes(codes, code, f.n, -f.zero);
    put_lanes(scales, pick(all_zeros(top), zero, best.scale));
}

/* LANES groups of 16 values, and the sums over their codes. */
struct passing {
    lanes x[16], w[16], code[16], xl, ll;
};

/* Perform one step of fit_passes(): recompute code i from the best scale for the other codes, and
 * keep the new code if the gain grows. Returns the lanes where it is kept. */
static inline masks pass_code(struct passing *p, unsigned i)
{
    const lanes zero = {0}, x = p->x[i], w = p->w[i], code = p->code[i];
    lanes xl = p->xl - w * x * code, ll = p->ll - w * code * code;
    const lanes l = nearest(x * ll / xl, -4, 3);
    masks move = (xl > zero) & (l != code);
    xl += w * x * l;
    ll += w * l * l;
    move &= (ll > zero) & (xl * xl * p->ll > p->xl * p->xl * ll);
    p->code[i] = pick(move, l, code);
    p->xl = pick(move, xl, p->xl);
    p->ll = pick(move, ll, p->ll);
    return move;
}

/*
 * Find scales and codes (-4 to 3) for 2 * LANES groups of 16 values in Q3_K. The search begins with
 * the top value at -4 and makes up to five passes in which codes may change. Each step depends on
 * the previous one in its group, but not on other groups.
 */
static inline void fit_passes(const float *values, float *scales, uint8_t *codes)
{
    struct passing p[2];
    lanes top[2], zero = {0};
    for (unsigned k = 0; k < 2; k++) {
        struct passing *q = &p[k];
        side_by_side(q->x, values + k * LANES * 16, 16);
        top[k] = top_values(q->x, 16);
        q->xl = q->ll = zero;
        for (unsigned i = 0; i < 16; i++) {
            q->w[i] = q->x[i] * q->x[i];
            q->code[i] = nearest(-4 / top[k] * q->x[i], -4, 3);
            q->xl += q->w[i] * q->x[i] * q->code[i];
            q->ll += q->w[i] * q->code[i] * q->code[i];
        }
    }
    masks moved = {-1};
    for (unsigned pass = 0; pass < 5 && any_lane(moved); pass++) {
        moved = (masks){0};
        for (unsigned i = 0; i < 16; i++) {
            const masks first = pass_code(&p[0], i), second = pass_code(&p[1], i);
            moved |= first | second;
        }
    }
    for (unsigned k = 0; k < 2; k++) {
        for (unsigned i = 0; i < 16; i++)
            p[k].code[i] = pick(all_zeros(top[k]), all_lanes(-4), p[k].code[i]);
        put_codes(codes + k * LANES * 16, p[k].code, 16, -4);
        put_lanes(scales + k * LANES,
                  pick(all_zeros(top[k]), zero, best_first(p[k].xl, p[k].ll).scale));
    }
}

/*
 * Turn the importances of n values into weights above 0 and at most slightly above 1, so that even
 * an unimportant value stays close to its old value. If all importances are zero, all values count
 * equally. NULL means no importances.
 */
static inline const float *weigh(float *room, const float *weight, unsigned n)
{
    if (!weight)
        return NULL;
    const float top = top_magnitude(weight, n);
    for (unsigned i = 0; i < n; i++)
        room[i] = (top > 0 ? weight[i] / top : 0) + 0x1p-20f;
    return room;
}

/* Up to LANES blocks of 32 values that are searched side by side: values, weights if there are
 * importances (both padded with zeros), and the results. */
struct fit_side {
    float x[LANES * 32], w[LANES * 32], scale[LANES];
    struct min_fits min;
    uint8_t code[LANES * 32];
    size_t n;
};

static inline void take_side(struct fit_side *s, const float *restrict x,
                             const float *restrict weight, size_t n)
{
    s->n = n < LANES ? n : LANES;
    memset(s->x, 0, sizeof(s->x));
    memset(s->w, 0, sizeof(s->w));
    memcpy(s->x, x, s->n * 32 * sizeof(float));
    for (size_t i = 0; weight && i < s->n; i++)
        (void)weigh(s->w + 32 * i, weight + 32 * i, 32);
}

/* Magnitudes below this are subnormal in binary16, and have fewer significant bits. */
#define HALF_LEAST 0x1p-14f

/* Return d or, if its magnitude is above 0 but too small for binary16, the smallest binary16
 * above 0, with the sign of d. */
static inline float at_least_half(float d)
{
    return d != 0 && fabsf(d) < 0x1p-24f ? copysignf(0x1p-24f, d) : d;
}

/* Return the scale with the largest magnitude among n groups, or the first of several. */
static inline float top_scale(const float *scale, unsigned n)
{
    float top = 0;
    for (unsigned g = 0; g < n; g++)
        top = fabsf(scale[g]) > fabsf(top) ? scale[g] : top;
    return top;
}

#endif

/* SPDX-License-Identifier: MIT */
/*
 * The searches of the encoders: which scale (and minimum) fits the values of a group best, each
 * value weighed by its size. Several ways to round the group to codes are tried; for the codes of
 * each the best scale follows by least squares, and the one with the smallest error is taken. What
 * is found is that of ggml's quantisers, to the last bit; the block's encoder then rounds it to what
 * the block can store and makes the codes anew.
 *
 * Sums over a group: w weight, x value, l code; W = sum of w, XL = sum of w * x * l, and so on.
 */
#ifndef QUANT_FIT_H
#define QUANT_FIT_H

#include "quant/lanes.h"

/* Groups whose largest magnitude is below this are zeros. */
#define FIT_NOTHING 1e-15f

/*
 * Values from here on are refused before any sum is taken of them: twenty times as much as the
 * largest scales give, and little enough that no sum of weights becomes infinite.
 */
#define FIT_LIMIT 0x1p32f

/* The most groups in a block. */
enum { FIT_GROUPS = 16 };

/* Codes from 0 to `last`, x = scale * code + low, low <= 0. */
struct min_form {
    unsigned n; /* values in a group */
    float last;
    float from;     /* the first of the steps by which the range is stretched, in codes */
    unsigned steps; /* tenths of a code after it */
    bool squares;   /* squared errors and weights that do not vanish; else |error| and |x| */
};

struct min_fits {
    float scale[FIT_GROUPS], min[FIT_GROUPS]; /* min = -low */
    /* How the codes of the best fit were made: (x - low) * k to the nearest. */
    float k[FIT_GROUPS], low[FIT_GROUPS];
};

FIXED void min_weights(struct min_form f, const lanes *x, lanes *w)
{
    lanes sum = {0};
    for (unsigned i = 0; i < f.n && f.squares; i++)
        sum += x[i] * x[i];
    for (unsigned g = 0; g < LANES && f.squares; g++)
        sum[g] = sqrtf(sum[g] / 32);
    for (unsigned i = 0; i < f.n; i++)
        w[i] = sum + magnitudes(x[i]);
}

FIXED lanes min_error(struct min_form f, const lanes *x, const lanes *w, const lanes *code,
                      lanes scale, lanes low)
{
    lanes sum = {0};
    for (unsigned i = 0; i < f.n; i++) {
        const lanes off = scale * code[i] + low - x[i];
        sum += w[i] * (f.squares ? off * off : magnitudes(off));
    }
    return sum;
}

/* Least squares for given codes; a low above zero is taken as zero. Valid where *solved is set. */
FIXED void min_solve(struct min_form f, const lanes *x, const lanes *w, const lanes *code,
                     lanes *scale, lanes *low, masks *solved)
{
    lanes sum_w = {0}, sum_x = {0}, sum_l = {0}, sum_ll = {0}, sum_xl = {0};
    for (unsigned i = 0; i < f.n; i++) {
        const lanes wl = w[i] * code[i];
        sum_w += w[i];
        sum_x += w[i] * x[i];
        sum_l += wl;
        sum_ll += wl * code[i];
        sum_xl += wl * x[i];
    }
    const lanes det = sum_w * sum_ll - sum_l * sum_l, zero = {0};
    const lanes s = (sum_w * sum_xl - sum_x * sum_l) / det;
    const lanes o = (sum_ll * sum_x - sum_l * sum_xl) / det;
    *scale = pick(o > zero, sum_xl / sum_ll, s);
    *low = pick(o > zero, zero, o);
    *solved = det > zero;
}

/* LANES groups at x, to ret from group `at` on. */
FIXED void fit_min(struct min_form f, const float *values, struct min_fits *ret, unsigned at)
{
    lanes x[32], w[32], code[32], zero = {0};
    side_by_side(x, values, f.n);
    min_weights(f, x, w);
    lanes low = zero, high = x[0];
    for (unsigned i = 0; i < f.n; i++) {
        low = pick(x[i] < low, x[i], low);
        high = pick(x[i] > high, x[i], high);
    }
    lanes k = f.last / (high - low), scale = 1 / k, offset = low, best_k = k, best_low = low;
    for (unsigned i = 0; i < f.n; i++)
        code[i] = nearest(k * (x[i] - low), 0, f.last);
    lanes best = min_error(f, x, w, code, scale, low);
    for (unsigned t = 0; t <= f.steps; t++) {
        lanes s, o;
        masks better;
        k = ((f.from + 0.1f * (float)t) + f.last) / (high - low);
        for (unsigned i = 0; i < f.n; i++)
            code[i] = nearest(k * (x[i] - low), 0, f.last);
        min_solve(f, x, w, code, &s, &o, &better);
        const lanes error = min_error(f, x, w, code, s, o);
        better &= error < best;
        best = pick(better, error, best);
        best_k = pick(better, k, best_k);
        best_low = pick(better, low, best_low);
        scale = pick(better, s, scale);
        offset = pick(better, o, offset);
        low = pick(better, o, low);
    }
    put_lanes(ret->scale + at, scale);
    put_lanes(ret->min + at, -offset);
    put_lanes(ret->k + at, best_k);
    put_lanes(ret->low + at, best_low);
}

/* Codes on both sides of zero, x = scale * code; k: how the codes were made, 0 where all are zeros. */
struct fits {
    float scale[FIT_GROUPS], k[FIT_GROUPS];
};

/* The best scale so far: its gain is how much of the values' squares it explains. */
struct best {
    lanes scale, gain, k;
};

static inline void best_first(struct best *b, lanes k, lanes xl, lanes ll)
{
    const lanes zero = {0};
    b->k = k;
    b->scale = pick(ll > zero, xl / ll, zero);
    b->gain = b->scale * xl;
}

static inline void best_next(struct best *b, lanes k, lanes xl, lanes ll)
{
    const lanes zero = {0};
    const masks better = (ll > zero) & (xl * xl > b->gain * ll);
    const lanes scale = xl / ll;
    b->k = pick(better, k, b->k);
    b->scale = pick(better, scale, b->scale);
    b->gain = pick(better, scale * xl, b->gain);
}

/* Groups of zeros have neither scale nor codes. */
static inline void best_put(const struct best *b, lanes top, struct fits *ret, unsigned at)
{
    const masks nothing = magnitudes(top) < all_lanes(FIT_NOTHING);
    const lanes zero = {0};
    put_lanes(ret->scale + at, pick(nothing, zero, b->scale));
    put_lanes(ret->k + at, pick(nothing, zero, b->k));
}

/* What codes of 16 values, made with k, amount to. */
static inline void even_sums(const lanes *x, const lanes *w, lanes k, lanes *xl, lanes *ll)
{
    lanes sum_xl = {0}, sum_ll = {0};
    for (unsigned i = 0; i < 16; i++) {
        const lanes l = nearest(k * x[i], -32, 31);
        sum_xl += w[i] * x[i] * l;
        sum_ll += w[i] * l * l;
    }
    *xl = sum_xl;
    *ll = sum_ll;
}

/* Q6_K: groups of 16, codes -32 to 31, the top value at -32 first, then up to 0.9 around it. */
static inline void fit_even(const float *values, struct fits *ret, unsigned at)
{
    lanes x[16], w[16], xl, ll;
    struct best best;
    side_by_side(x, values, 16);
    const lanes top = top_values(x, 16);
    for (unsigned i = 0; i < 16; i++)
        w[i] = x[i] * x[i];
    even_sums(x, w, -32 / top, &xl, &ll);
    best_first(&best, -32 / top, xl, ll);
    for (int t = -9; t <= 9; t++) {
        const lanes k = -(32 + 0.1f * (float)t) / top;
        if (t == 0)
            continue;
        even_sums(x, w, k, &xl, &ll);
        best_next(&best, k, xl, ll);
    }
    best_put(&best, top, ret, at);
}

/* One pass of fit_passes() over the codes: each moves if that makes the fit better. */
static inline masks fit_pass(const lanes *x, const lanes *w, lanes *code, lanes *sum_xl,
                             lanes *sum_ll)
{
    const lanes zero = {0};
    masks moved = {0};
    for (unsigned i = 0; i < 16; i++) {
        lanes xl = *sum_xl - w[i] * x[i] * code[i], ll = *sum_ll - w[i] * code[i] * code[i];
        const lanes l = nearest(x[i] * ll / xl, -4, 3);
        masks move = (xl > zero) & (l != code[i]);
        xl += w[i] * x[i] * l;
        ll += w[i] * l * l;
        move &= (ll > zero) & (xl * xl * *sum_ll > *sum_xl * *sum_xl * ll);
        code[i] = pick(move, l, code[i]);
        *sum_xl = pick(move, xl, *sum_xl);
        *sum_ll = pick(move, ll, *sum_ll);
        moved |= move;
    }
    return moved;
}

/* Q3_K: groups of 16, codes -4 to 3, the top value at -4; then codes move. Codes of zeros are -4. */
static inline void fit_passes(const float *values, struct fits *ret, lanes code[16], unsigned at)
{
    lanes x[16], w[16], xl = {0}, ll = {0};
    struct best best;
    side_by_side(x, values, 16);
    const lanes top = top_values(x, 16), k = -4 / top;
    for (unsigned i = 0; i < 16; i++) {
        w[i] = x[i] * x[i];
        code[i] = nearest(k * x[i], -4, 3);
        xl += w[i] * x[i] * code[i];
        ll += w[i] * code[i] * code[i];
    }
    for (unsigned pass = 0; pass < 5; pass++)
        if (!any_lane(fit_pass(x, w, code, &xl, &ll)))
            break;
    best_first(&best, k, xl, ll);
    best_put(&best, top, ret, at);
    const masks nothing = magnitudes(top) < all_lanes(FIT_NOTHING);
    for (unsigned i = 0; i < 16; i++)
        code[i] = pick(nothing, all_lanes(-4), code[i]);
}

/* The scale of largest magnitude of n groups, of several the first. */
static inline float top_scale(const struct fits *f, unsigned n)
{
    float top = 0;
    for (unsigned g = 0; g < n; g++)
        top = fabsf(f->scale[g]) > fabsf(top) ? f->scale[g] : top;
    return top;
}

#endif

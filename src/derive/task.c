/* SPDX-License-Identifier: MIT */
/* One result of one tensor: see task.h. */
#include "derive/task.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "derive/floats.h"

/* Bytes hashed, and values measured, in a unit: some milliseconds. Values: whole stretches. */
#define HASHED ((uint64_t)8 << 20)
#define MEASURED ((uint64_t)1024 * STATS_STRETCH)
/* Each unit has a result of its own until all are joined: 20 MiB at most. */
#define UNITS_MOST ((uint64_t)1 << 16)

static const struct gguf_tensor *tensor_of(const struct task *t)
{
    return &t->view.snap->gguf->tensor[t->tensor];
}

static uint64_t parts(uint64_t n, uint64_t size)
{
    return n / size + (n % size != 0);
}

/* ---- hashes ---- */

static int begin_hash(struct task *t)
{
    t->serial = true;
    t->units = max_u64(1, parts(tensor_of(t)->nbytes, HASHED));
    t->digest = digest_new();
    return t->digest ? 0 : -ENOMEM;
}

/* ---- statistics ---- */

/* Values of a unit. */
static uint64_t measured(const struct task *t)
{
    uint64_t stretches = parts(parts(tensor_of(t)->n_elem, STATS_STRETCH), UNITS_MOST);
    return max_u64(MEASURED, stretches * STATS_STRETCH);
}

static uint64_t measured_units(const struct task *t)
{
    return parts(tensor_of(t)->n_elem, measured(t));
}

static int begin_moments(struct task *t)
{
    t->phase = 0;
    t->units = measured_units(t);
    t->part = calloc(t->units + 1, sizeof(*t->part));
    return t->part ? 0 : -ENOMEM;
}

static int begin_spread(struct task *t)
{
    t->phase = 1;
    t->units = measured_units(t);
    t->spread = calloc(t->units + 1, sizeof(*t->spread));
    return t->spread ? alive_begin(&t->alive, t->view.snap->gguf, tensor_of(t)) : -ENOMEM;
}

static int begin_picture(struct task *t)
{
    t->picture = picture_of(t->view.snap->gguf, tensor_of(t));
    t->units = picture_units(&t->picture);
    t->pixel = malloc((size_t)t->picture.height * t->picture.width * sizeof(*t->pixel));
    return t->pixel ? 0 : -ENOMEM;
}

int task_begin(struct task *t, const struct moments *known)
{
    if (store_there(t->view.store, t->tensor, tensor_of(t)->nbytes) < tensor_of(t)->nbytes)
        return -EIO;
    if (known)
        t->moments = *known;
    switch (t->what) {
    case DERIVED_SHA256:
        return begin_hash(t);
    case DERIVED_MOMENTS:
        return begin_moments(t);
    case DERIVED_STATS:
        return known ? begin_spread(t) : begin_moments(t);
    case DERIVED_PICTURE:
        return begin_picture(t);
    }
    return -EINVAL;
}

/* ---- units ---- */

struct unit {
    struct task *t;
    const struct quant_type *type;
    bool big;
    const uint8_t *data; /* of the tensor */
    uint64_t no;
    float *room;
};

static void hash_unit(const struct unit *u)
{
    uint64_t first = u->no * HASHED, n = min_u64(HASHED, tensor_of(u->t)->nbytes - first);
    digest_add(u->t->digest, u->data + first, (size_t)n);
}

/* A unit of statistics measures values [*first, *end). */
static void unit_values(const struct task *t, uint64_t unit, uint64_t *first, uint64_t *end)
{
    uint64_t size = measured(t);
    *first = unit * size;
    *end = min_u64(*first + size, tensor_of(t)->n_elem);
}

static void measure_unit(const struct unit *u)
{
    uint64_t at, end;
    for (unit_values(u->t, u->no, &at, &end); at < end; at += STATS_STRETCH) {
        size_t n = (size_t)min_u64(STATS_STRETCH, end - at);
        floats_read(u->type, u->big, u->data, at, n, u->room);
        if (u->t->phase == 0)
            moments_add(&u->t->part[u->no], u->room, n);
        else
            spread_add(&u->t->spread[u->no], &u->t->alive, &u->t->moments, u->room, at, n);
    }
}

static int run(void *arg)
{
    const struct unit *u = arg;
    switch (u->t->what) {
    case DERIVED_SHA256:
        hash_unit(u);
        break;
    case DERIVED_MOMENTS:
    case DERIVED_STATS:
        measure_unit(u);
        break;
    case DERIVED_PICTURE:
        picture_pixels(&u->t->picture, u->type, u->big, u->data, u->no, u->room, u->t->pixel);
        break;
    }
    return 0;
}

/* Bytes [*first, *end) of the tensor are those that a unit reads. */
static void unit_bytes(const struct unit *u, uint64_t *first, uint64_t *end)
{
    const struct task *t = u->t;
    if (t->what == DERIVED_SHA256) {
        *first = u->no * HASHED;
        *end = min_u64(*first + HASHED, tensor_of(t)->nbytes);
        return;
    }
    if (t->what == DERIVED_PICTURE)
        picture_values(&t->picture, u->no, first, end);
    else
        unit_values(t, u->no, first, end);
    quant_extent(u->type, sizeof(float), *first * sizeof(float),
                 (size_t)(*end - *first) * sizeof(float), first, end);
}

/* A page that was cut in two reads as zeros: the length is looked at afterwards. */
int task_unit(struct task *t, uint64_t unit, float room[TASK_ROOM])
{
    const struct gguf_tensor *tensor = tensor_of(t);
    struct unit u = {.t = t,
                     .type = gguf_type(tensor),
                     .big = t->view.snap->gguf->fmt.big,
                     .no = unit,
                     .room = room};
    uint64_t first, end;
    uint8_t *copy;
    unit_bytes(&u, &first, &end);
    int r = store_bytes(t->view.store, t->tensor, first, end, tensor->nbytes, &copy, &u.data);
    if (r < 0)
        return r;
    u.data = (const uint8_t *)((uintptr_t)u.data - (uintptr_t)first); /* others are not touched */
    r = map_guard(run, &u);
    free(copy);
    return r < 0 ? r : store_check(t->view.store, t->tensor, first, end);
}

/* ---- phases ---- */

static int end_moments(struct task *t)
{
    t->moments = MOMENTS_NONE;
    for (uint64_t i = 0; i < t->units; i++)
        moments_join(&t->moments, &t->part[i]);
    if (t->what == DERIVED_MOMENTS)
        return 0;
    int r = begin_spread(t);
    return r < 0 ? r : 1;
}

static int end_spread(struct task *t)
{
    struct spread all = {0};
    for (uint64_t i = 0; i < t->units; i++)
        spread_join(&all, &t->spread[i]);
    stats_text(t->view.snap->gguf, tensor_of(t), &t->moments, &all, &t->alive, &t->bytes);
    return buf_error(&t->bytes);
}

int task_phase(struct task *t)
{
    switch (t->what) {
    case DERIVED_SHA256:
        return digest_end(t->digest, t->hash);
    case DERIVED_MOMENTS:
    case DERIVED_STATS:
        return t->phase == 0 ? end_moments(t) : end_spread(t);
    case DERIVED_PICTURE:
        picture_png(&t->picture, t->pixel, &t->bytes);
        return buf_error(&t->bytes);
    }
    return -EINVAL;
}

int task_keep(struct task *t, struct kept *k)
{
    int r = 0;
    switch (t->what) {
    case DERIVED_SHA256:
        return kept_put_sha256(k, t->key, t->hash);
    case DERIVED_MOMENTS:
        return kept_put_moments(k, t->key, &t->moments);
    case DERIVED_STATS:
        r = kept_put_moments(k, t->key, &t->moments);
        break;
    case DERIVED_PICTURE:
        break;
    }
    return r < 0 ? r : kept_put_blob(k, t->key, t->what, &t->bytes);
}

void task_free(struct task *t)
{
    digest_free(t->digest);
    free(t->part);
    free(t->spread);
    alive_free(&t->alive);
    free(t->pixel);
    buf_free(&t->bytes);
    view_free(&t->view);
    free(t);
}

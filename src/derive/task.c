/* SPDX-License-Identifier: MIT */
/* Computes one result of one tensor: see task.h. */
#include "derive/task.h"

#include <errno.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "base/pool.h"
#include "derive/stats.h"
#include "derive/picture.h"

#ifdef GGUFS_LIBCRYPTO
#include <openssl/crypto.h>
#include <openssl/evp.h>
#else
typedef void EVP_MD_CTX;
#endif

/* Numbers of bytes hashed and of values measured per unit, which takes some milliseconds. Values
 * are measured in whole stretches. */
#define HASHED ((uint64_t)8 << 20)
#define MEASURED ((uint64_t)1024 * STATS_STRETCH)
/* Each unit keeps its own result until all are joined; these take at most 20 MiB in all. */
#define UNITS_MOST ((uint64_t)1 << 16)

/* Number of values for which each thread has room. */
enum { ROOM = 4096 };
_Static_assert((int)ROOM >= (int)PICTURE_ROOM && (int)ROOM >= (int)STATS_STRETCH, "room for all");

struct unit;

/* A pass over all values of the tensor. */
struct pass {
    struct task *t;
    const struct gguf_tensor *tensor;
    const struct quant_type *type;
    bool big;
    void (*look)(const struct unit *u); /* runs under map_guard() */
    uint64_t measured;                  /* number of values measured per unit */
    EVP_MD_CTX *digest;                 /* for a hash */
    bool failed;                        /* the library reported a failure */
    struct moments *part;               /* owned; one per unit */
    struct spread *spread;              /* owned; one per unit */
    struct alive alive;
    struct picture picture;
    float *pixel; /* owned; see picture_pixels() */
};

struct unit {
    struct pass *p;
    uint64_t no, first, end; /* number of the unit; range of its values, or of bytes to hash */
    const uint8_t *data;     /* data of the tensor */
    float *room;
};

static uint64_t parts(uint64_t n, uint64_t size)
{
    return n / size + (n % size != 0);
}

static void measure(const struct unit *u)
{
    struct pass *p = u->p;
    for (uint64_t at = u->first; at < u->end; at += STATS_STRETCH) {
        size_t n = (size_t)min_u64(STATS_STRETCH, u->end - at);
        floats_read(p->type, p->big, u->data, at, n, u->room);
        if (p->spread)
            spread_add(&p->spread[u->no], &p->alive, &p->t->moments, u->room, at, n);
        else
            moments_add(&p->part[u->no], u->room, n);
    }
}

static void draw(const struct unit *u)
{
    const struct pass *p = u->p;
    picture_pixels(&p->picture, p->type, p->big, u->data, u->no, u->room, p->pixel);
}

static int look(void *arg)
{
    const struct unit *u = arg;
    u->p->look(u);
    return 0;
}

/* Run a unit. A page partly beyond the end of a truncated file reads as zeros, so the length is
 * checked afterwards. */
static int do_unit(void *arg, uint64_t no, void *room)
{
    struct pass *p = arg;
    const struct task *t = p->t;
    const uint64_t size = p->digest ? HASHED : p->measured;
    const uint64_t all = p->digest ? p->tensor->nbytes : p->tensor->n_elem;
    struct unit u = {p, no, no * size, min_u64((no + 1) * size, all), NULL, room};
    if (p->pixel)
        picture_values(&p->picture, no, &u.first, &u.end);
    uint64_t first = u.first, end = u.end;
    uint8_t *copy;
    if (!p->digest)
        quant_extent(p->type, sizeof(float), first * sizeof(float),
                     (size_t)(end - first) * sizeof(float), &first, &end);
    int r = store_bytes(t->view.store, t->tensor, first, end, p->tensor->nbytes, &copy, &u.data);
    if (r < 0)
        return r;
    /* Point to where byte 0 would be; only bytes [first, end) are accessed. */
    u.data = (const uint8_t *)((uintptr_t)u.data - (uintptr_t)first);
    r = map_guard(look, &u);
    free(copy);
    return r < 0 ? r : store_check(t->view.store, t->tensor, first, end);
}

static int run(struct pass *p, uint64_t n)
{
    const struct units_watch watch = {.cancel = p->t->stop};
    struct units u = {.n = n, .unit = do_unit, .arg = p, .room = ROOM * sizeof(float)};
    return units_run(&u, &watch);
}

#ifdef GGUFS_LIBCRYPTO

const char *task_hash_library(void)
{
    return OpenSSL_version(OPENSSL_VERSION);
}

/* Hash a unit's bytes. Must not allocate memory or take a lock. */
static void hash(const struct unit *u)
{
    u->p->failed |=
        EVP_DigestUpdate(u->p->digest, u->data + u->first, (size_t)(u->end - u->first)) != 1;
}

static int run_hash(struct pass *p)
{
    uint8_t got[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    const uint64_t n = max_u64(1, parts(p->tensor->nbytes, HASHED));
    p->look = hash;
    p->digest = EVP_MD_CTX_new();
    int r = p->digest && EVP_DigestInit_ex(p->digest, EVP_sha256(), NULL) == 1 ? 0 : -ENOMEM;
    for (uint64_t i = 0; r == 0 && i < n; i++)
        r = p->t->stop && atomic_load(p->t->stop) ? -EINTR : do_unit(p, i, NULL);
    if (r == 0 && (EVP_DigestFinal_ex(p->digest, got, &len) != 1 || p->failed))
        r = -EIO;
    for (unsigned i = 0; i < len; i++)
        buf_printf(&p->t->bytes, "%02x", got[i]);
    buf_char(&p->t->bytes, '\n');
    EVP_MD_CTX_free(p->digest);
    return r;
}

#else

const char *task_hash_library(void)
{
    return NULL;
}

static int run_hash(struct pass *p)
{
    (void)p;
    return -EIO;
}

#endif

static int run_moments(struct pass *p, uint64_t n)
{
    p->part = calloc(n + 1, sizeof(*p->part));
    int r = p->part ? run(p, n) : -ENOMEM;
    p->t->moments = MOMENTS_NONE;
    for (uint64_t i = 0; r == 0 && i < n; i++)
        moments_join(&p->t->moments, &p->part[i]);
    p->t->measured = r == 0;
    return r;
}

static int run_spread(struct pass *p, uint64_t n)
{
    struct spread all = {0};
    const struct gguf *g = p->t->view.snap->gguf;
    p->spread = calloc(n + 1, sizeof(*p->spread));
    int r = p->spread ? alive_begin(&p->alive, g, p->tensor) : -ENOMEM;
    if (r == 0)
        r = run(p, n);
    for (uint64_t i = 0; r == 0 && i < n; i++)
        spread_join(&all, &p->spread[i]);
    if (r == 0)
        stats_text(g, p->tensor, &p->t->moments, &all, &p->alive, &p->t->bytes);
    return r;
}

static int run_stats(struct pass *p)
{
    const uint64_t n_elem = p->tensor->n_elem;
    const uint64_t stretches = parts(parts(n_elem, STATS_STRETCH), UNITS_MOST);
    p->measured = max_u64(MEASURED, stretches * STATS_STRETCH);
    p->look = measure;
    const uint64_t n = parts(n_elem, p->measured);
    int r = p->t->measured ? 0 : run_moments(p, n);
    if (p->t->what == DERIVED_MOMENTS)
        buf_add(&p->t->bytes, &p->t->moments, sizeof(p->t->moments));
    return r < 0 || p->t->what == DERIVED_MOMENTS ? r : run_spread(p, n);
}

static int run_picture(struct pass *p)
{
    p->picture = picture_of(p->t->view.snap->gguf, p->tensor);
    p->look = draw;
    p->pixel = malloc((size_t)p->picture.height * p->picture.width * sizeof(*p->pixel));
    int r = p->pixel ? run(p, picture_units(&p->picture)) : -ENOMEM;
    if (r == 0)
        picture_png(&p->picture, p->pixel, &p->t->bytes);
    return r;
}

int task_run(struct task *t)
{
    const struct gguf *g = t->view.snap->gguf;
    const struct gguf_tensor *tensor = &g->tensor[t->tensor];
    struct pass p = {.t = t, .tensor = tensor, .type = gguf_type(tensor), .big = g->fmt.big};
    int r = -EIO;
    if (store_there(t->view.store, t->tensor, tensor->nbytes) == tensor->nbytes)
        r = t->what == DERIVED_SHA256    ? run_hash(&p)
            : t->what == DERIVED_PICTURE ? run_picture(&p)
                                         : run_stats(&p);
    free(p.part);
    free(p.spread);
    alive_free(&p.alive);
    free(p.pixel);
    return r < 0 ? r : buf_error(&t->bytes);
}

/* SPDX-License-Identifier: MIT */
/*
 * A model as a plain list of tensors in memory. Tests apply each operation to this list and to a
 * change to the model's file, and compare the results.
 */
#ifndef TESTS_LIB_WORLD_H
#define TESTS_LIB_WORLD_H

#include "edit/change.h"
#include "model_dir.h"

enum { Q8_0 = 8, UNKNOWN = 200, MOST = 40 };

struct world_tensor {
    char name[64];
    struct tensor_shape shape;
    uint8_t *bytes;
    size_t n;
};

struct world {
    struct world_tensor t[MOST];
    size_t n;
};

struct kind {
    uint8_t version;
    bool big;
    uint32_t alignment;
};

#define WORLD_KINDS 6
extern const struct kind world_kinds[WORLD_KINDS];

/* Seed for random data. */
extern uint64_t world_state;
uint32_t world_draw(uint32_t n);
struct tensor_shape world_shape(void);

struct world world_make(void);
struct world world_copy(const struct world *w);
void world_free(struct world *w);
void world_drop(struct world_tensor *t);

/* True if the file has exactly the tensors of w, and a regular layout. */
bool world_shown(const uint8_t *file, size_t n, const struct world *w);
/* Make a directory with a random model. */
void world_setup(struct fixture *x, const struct kind *k, struct world *w);

/* Fill t with random bytes, and make the change add t or, if `set`, replace the old tensor with
 * t. */
int world_put(struct edit_change *c, struct world_tensor *t, bool set);
void world_add(struct edit_change *c, struct world *w);
/* Apply a random operation to the change and to w. */
void world_edit(struct edit_change *c, struct world *w);

#endif

/* SPDX-License-Identifier: MIT */
/* A model file of given bytes in a folder of its own, and what is there later. */
#ifndef TESTS_LIB_PLACE_H
#define TESTS_LIB_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct content {
    uint8_t *bytes;
    size_t n;
};

struct place {
    char folder[64], model[96];
    int dir;
};

/* In memory, where that can be. */
void make_place(struct place *p, const struct content *i);
void drop_place(struct place *p);

/* Files in the folder. */
int files_in(const struct place *p);
/* The model's bytes; free() them. */
struct content file_now(const struct place *p);
/* What model.gguf shows of these bytes: without the reserve. free() them. */
struct content as_shown(const struct content *file);
bool same(const struct content *a, const struct content *b);
bool file_is(const struct place *p, const struct content *want);

#endif

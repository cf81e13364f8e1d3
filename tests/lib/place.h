/* SPDX-License-Identifier: MIT */
/* A model file of given bytes in its own directory, and its later content. */
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

/* In memory, if possible. */
void make_place(struct place *p, const struct content *i);
void drop_place(struct place *p);

/* The number of files in the directory. */
int files_in(const struct place *p);
/* The model's bytes; free() them. */
struct content file_now(const struct place *p);
/* The bytes of model.gguf for this file: without the reserve. free() them. */
struct content as_shown(const struct content *file);
bool same(const struct content *a, const struct content *b);
bool file_is(const struct place *p, const struct content *want);

#endif

/* SPDX-License-Identifier: MIT */
/* A model file with given bytes, in its own directory. */
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

/* Make the directory and the file, in memory if possible. */
void make_place(struct place *p, const struct content *i);
void drop_place(struct place *p);

/* Return the number of files in the directory. */
int files_in(const struct place *p);
/* Return the model's current bytes, which the caller frees. */
struct content file_now(const struct place *p);
/* Return the bytes that model.gguf shows for this file, which omit the reserve. The caller frees
 * them. */
struct content as_shown(const struct content *file);
bool same(const struct content *a, const struct content *b);
bool file_is(const struct place *p, const struct content *want);

#endif

/* SPDX-License-Identifier: MIT */
/* A second parser of GGUF files, for keys and tensors only. It shares no code with the program's
 * parser. */
#ifndef TESTS_SIM_READER_H
#define TESTS_SIM_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct read_key {
    char name[48];
    uint32_t type;
    const uint8_t *value; /* a string's bytes, without the length */
    uint64_t n;
};

struct read_tensor {
    char name[65];
    uint32_t type, n_dims;
    uint64_t dim[4], off; /* off: the data's offset in the file */
};

struct read_model {
    struct read_key key[64];
    struct read_tensor tensor[64];
    unsigned keys, tensors;
};

/* Parses version 3, little-endian. Returns NULL on success, or what is wrong with the file. */
const char *read_model(const uint8_t *bytes, size_t n, struct read_model *ret);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * A model in its files, without a mount: its header, and a check of all of it. Any file of a split model may be given;
 * model/split.h explains how the others are found. A header that an interrupted edit still has to write is applied in
 * memory.
 */
#ifndef CHECK_FILE_H
#define CHECK_FILE_H

#include "check/check.h"

struct header {
    struct gguf *g;   /* owned; of a split model merged */
    size_t shards;    /* files of a split model; 0: it is not split */
    uint64_t missing; /* bytes of tensor data that are not in the files */
};

/* Read nothing but headers, which must be complete. 0, or -errno with the line that a mount would print. */
int header_open(const char *path, struct header *ret, struct err *e);
void header_free(struct header *h);
/* Bytes of tensor data that are not in the file. */
uint64_t header_missing(const struct gguf *g);

struct check_options {
    bool values; /* also check every value of every tensor */
    /* Ids of rules whose findings are left out, with commas between, or NULL; not those that make a model unusable. */
    const char *ignore;
    /*
     * Reports the bytes of tensors already checked. Called by any thread, one at a time. May be
     * NULL.
     */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
};

/*
 * Check the model at `path`: open it, parse it as far as possible, apply all rules. Of a split model that
 * means all its files: each by the rules about files, and merged by those about models. Symbolic links are followed,
 * but the name is checked as in the path. Unusable means that a mount
 * refuses the model. The sink gets the reason as an error of the rule "structure", or "split" if
 * the files do not fit together. A finding is labelled with the path of its file; a finding about a
 * whole split model with the path of the first file.
 */
enum check_outcome check_file(const char *path, const struct check_options *o, check_sink *sink,
                              void *arg);

#endif

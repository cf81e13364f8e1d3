/* SPDX-License-Identifier: MIT */
/*
 * A model read from its files, without a mount: its header, and a check of the whole. Any file of a split model may
 * be given; model/split.h explains how the others are found. A header that an interrupted edit still has to write is
 * applied in memory.
 */
#ifndef CHECK_FILE_H
#define CHECK_FILE_H

#include "check/check.h"

struct header {
    struct gguf *g;   /* owned; merged if the model is split */
    size_t shards;    /* files of a split model; 0: not split */
    uint64_t missing; /* bytes of tensor data that are not in the files */
};

/* Read only the headers, which must be complete. 0, or -errno with the line that a mount would print. */
int header_open(const char *path, struct header *ret, struct err *e);
void header_free(struct header *h);
/* Bytes of tensor data that are not in the file. */
uint64_t header_missing(const struct gguf *g);

struct check_options {
    bool values; /* also check every value of every tensor */
    /*
     * Ids of rules whose findings are left out, separated by commas, or NULL. Findings that make a model unusable are
     * never left out.
     */
    const char *ignore;
    /* Reports how many bytes of tensors were checked. Called by any thread, one at a time. May be NULL. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
};

/*
 * Check the model at `path`: open it, parse it as far as possible, apply all rules. For a split model that means all
 * its files: each with the rules about files, then merged with those about models. Symbolic links are followed, but
 * the name checked is the one in the path. Unusable means that a mount would refuse the model; the sink gets the
 * reason as an error of the rule "structure", or "split" if the files do not fit together. A finding is labelled with
 * the path of its file; a finding about a whole split model, with the path of the first file.
 */
enum check_outcome check_file(const char *path, const struct check_options *o, check_sink *sink,
                              void *arg);

#endif

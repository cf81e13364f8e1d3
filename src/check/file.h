/* SPDX-License-Identifier: MIT */
/*
 * Reads and checks a model without a mount. Any file of a split model may be given;
 * model/snapshot.h explains how the others are found. An interrupted edit is applied to the header in memory.
 */
#ifndef CHECK_FILE_H
#define CHECK_FILE_H

#include "check/check.h"

struct header {
    struct gguf *g;   /* owned; merged if the model is split */
    size_t shards;    /* number of files of a split model; 0: not split */
    uint64_t missing; /* number of bytes of tensor data missing from the files */
};

/* Read only the headers, which must be complete. Returns 0, or -errno with the message that a mount
 * would print. */
int header_open(const char *path, struct header *ret, struct err *e);
void header_free(struct header *h);
/* Return the number of bytes of tensor data missing from the file. */
uint64_t header_missing(const struct gguf *g);

struct check_options {
    bool values; /* also check every value of every tensor */
    /*
     * Ids of rules to ignore, separated by commas, or NULL. Findings that make a model unusable are
     * always reported.
     */
    const char *ignore;
    /* Reports the number of tensor bytes checked. Any thread may call it, but only one at a time.
     * May be NULL. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
};

/*
 * Check the model at `path`: open it, parse it as far as possible, and apply all rules. The rules
 * about files check each file of a split model, the rules about models the merged model. Symbolic
 * links are followed, but the name checked is that in the path. The outcome is "unusable" if a
 * mount would refuse the model; the sink gets the reason as an error of the rule "structure", or
 * "split" if the files do not fit together. A finding is labelled with the path of its file; a
 * finding about a whole split model, with the path of the first file.
 */
enum check_outcome check_file(const char *path, const struct check_options *o, check_sink *sink,
                              void *arg);

#endif

/* SPDX-License-Identifier: MIT */
/* A file to be checked, opened and parsed as far as possible; private to the check layer. */
#ifndef CHECK_PART_H
#define CHECK_PART_H

#include "check/rule.h"
#include "edit/open.h"

struct part {
    struct model_file m; /* its path is its name in findings */
    struct gguf *g;      /* owned; NULL: it could not be parsed */
    bool faults;         /* the parser found some and reported them */
};

/*
 * Open and parse the file at `path`, following symbolic links. Each fault is reported through `structure`. 0: no faults; else -errno. Free *ret in either case.
 * *e holds an error that could not be reported as a fault; code 0: all were reported.
 */
int part_open(const char *path, struct checker *structure, struct part *ret, struct err *e);
void part_free(struct part *p);

/* Report a line "WHERE: WHY" as an error. */
void tell_err(struct checker *c, const struct err *e);

#endif

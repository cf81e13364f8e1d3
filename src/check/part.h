/* SPDX-License-Identifier: MIT */
/* A file to be checked, opened and parsed as far as it goes; private to the check layer. */
#ifndef CHECK_PART_H
#define CHECK_PART_H

#include "check/rule.h"
#include "edit/recover.h"

struct part {
    char *path; /* owned: what findings call it */
    struct edit_file file;
    struct edit_overlay overlay; /* what an interrupted edit still has to write */
    struct source src;           /* the file, with that applied */
    struct gguf *g;              /* owned; NULL: nothing could be made of it */
    bool faults;                 /* the parser found some, and they were told */
};

/*
 * The file at `path`, which passes to the part; its symbolic links are followed. Each fault is told
 * through `structure`. 0 if there is none; else -errno, and *ret is to be freed all the same. What
 * could not be told as a fault is in *e; a code of 0 there: all were told.
 */
int part_open(char *path, struct checker *structure, struct part *ret, struct err *e);
/* The same without parsing: the part has no model. 0, or -errno with a line; to be freed in any case. */
int part_open_file(char *path, struct part *ret, struct err *e);
void part_free(struct part *p);

/* The path without folders. */
const char *part_name(const char *path);
/* Tell a line "WHERE: WHY" as an error. */
void tell_err(struct checker *c, const struct err *e);

#endif

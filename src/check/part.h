/* SPDX-License-Identifier: MIT */
/* A file to be checked, opened and parsed as far as possible; private to the check layer. */
#ifndef CHECK_PART_H
#define CHECK_PART_H

#include "check/rule.h"
#include "edit/recover.h"

struct part {
    char *path; /* owned: its name in findings */
    struct edit_file file;
    struct edit_overlay overlay; /* the bytes that an interrupted edit still has to write */
    struct source src;           /* the file, with that applied */
    struct gguf *g;              /* owned; NULL: it could not be parsed */
    bool faults;                 /* the parser found some and reported them */
};

/*
 * Open and parse the file at `path`, following symbolic links; the part takes ownership of `path`.
 * Each fault is reported through `structure`. 0: no faults; else -errno. Free *ret in either case.
 * *e holds an error that could not be reported as a fault; code 0: all were reported.
 */
int part_open(char *path, struct checker *structure, struct part *ret, struct err *e);
/*
 * The same without parsing: the part has no model. 0, or -errno with a line; free it in either
 * case.
 */
int part_open_file(char *path, struct part *ret, struct err *e);
void part_free(struct part *p);

/* The path without folders. */
const char *part_name(const char *path);
/* Report a line "WHERE: WHY" as an error. */
void tell_err(struct checker *c, const struct err *e);

#endif

/* SPDX-License-Identifier: MIT */
/* Parses the command line of a mount, ggufs [options] MODEL MOUNTPOINT. Holds the table of all
 * options, which is generated from scripts/packaging/options.tsv, as are --help and the
 * completions. */
#ifndef MOUNT_OPTIONS_H
#define MOUNT_OPTIONS_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "mount/option_table.h"
#include "shelf/shelf.h"

/* ---- the table ---- */

enum option_kind { KIND_OPTION, KIND_COMMAND, KIND_FLAG, KIND_MOUNT, KIND_FUSE, KIND_FSTAB };
#define OF_KIND(kind) (1u << (kind))

struct option_row {
    enum option_id id; /* shared by rows with the same name */
    enum option_kind kind;
    unsigned takes;       /* a command's options, as a set of OPTION_IN_SET() */
    unsigned least, most; /* minimum and maximum number of a command's operands */
    const char *name;     /* including the dashes */
    /* What follows "=": words separated by "|", or a description in capitals; NULL: no value. */
    const char *values;
    /* The value if the option is not given; for an option that takes no value, the value that it
     * stands for. May be NULL. */
    const char *fallback;
    const char *wants; /* description of a command's operand; NULL: no operand */
};

/* The bit that represents a row of KIND_OPTION. */
#define OPTION_IN_SET(row) (1u << option_place(row))
size_t option_place(const struct option_row *row);

/* Return the row that an argument names and whose kind is in `kinds` (a set of OF_KIND()). If there
 * are two such rows, returns the one that takes a value if the argument contains "=", and otherwise
 * the one that takes none. *value is the text after "=", or NULL. */
const struct option_row *option_find(const char *arg, unsigned kinds, const char **value);
/* Return the row that was most likely meant, or NULL if no row is close. Rows of KIND_OPTION must
 * be in `takes`. */
const struct option_row *option_nearest(const char *arg, unsigned kinds, unsigned takes);
/* Return the index of a word among the row's values, or -1. */
int option_word(const struct option_row *row, const char *word);

/* ---- a mount ---- */

struct mnt_options {
    struct tree_options tree;
    char *model;      /* owned; NULL if not given */
    char *mountpoint; /* owned; NULL if not given; absolute once the mount exists */
    /* The value of each option, by id: owned; "" if the option takes no value, NULL if it is not
     * given. */
    char *given[OPTION_IDS];
    struct fuse_args args;        /* the arguments left for libfuse */
    struct fuse_cmdline_opts cmd; /* foreground, threads, --help ... */
    unsigned readahead;           /* in KiB */
    unsigned idle;                /* seconds without open files before unmounting; 0: never */
    struct imatrix *importances;  /* owned; NULL if not given */
    struct err err;               /* why parsing failed */
};

/* Parse the arguments. Returns 0, or -errno with a message in o->err. Free `o` in both cases. */
int mnt_options_parse(int argc, char **argv, struct mnt_options *o);
/* Add the remaining options for libfuse: fsname, subtype, default_permissions, and ro or rw.
 * Returns 0 or -ENOMEM. */
int mnt_options_finish(struct mnt_options *o, const struct shelf *s);
void mnt_options_free(struct mnt_options *o);

#endif

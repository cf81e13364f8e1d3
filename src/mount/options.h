/* SPDX-License-Identifier: MIT */
/*
 * Parses the command line of a mount: ggufs [options] MODEL MOUNTPOINT, from a user, mount(8) or
 * fstab. Holds the table of all options (scripts/packaging/options.tsv), from which --help and the
 * completions are also made.
 */
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
    enum option_id id; /* shared by rows of one name */
    enum option_kind kind;
    unsigned takes;       /* for a command: its options, a set of OPTION_IN_SET() */
    unsigned least, most; /* numbers of operands of a command */
    const char *name;     /* with its dashes */
    /* After "=": words separated by "|", or a description in capitals; NULL: no value. */
    const char *values;
    /* The value if the option is not given or, for an option without values, the value that it
     * stands for; or NULL. */
    const char *fallback;
    const char *wants; /* description of a command's operand; NULL: no operand */
};

/* The bit of a row of KIND_OPTION. */
#define OPTION_IN_SET(row) (1u << option_place(row))
size_t option_place(const struct option_row *row);

/*
 * Return the row that an argument names, if it is one of the kinds (a set of OF_KIND()): the row
 * that takes a value if the argument has one after "=" (*value; else NULL). If there is only a row
 * that differs in this respect, return that row.
 */
const struct option_row *option_find(const char *arg, unsigned kinds, const char **value);
/* Return the row that was most likely meant; for KIND_OPTION only of those in `takes`. Returns NULL
 * if none is close. */
const struct option_row *option_nearest(const char *arg, unsigned kinds, unsigned takes);
/* Return the index of a word among the row's values, or -1. */
int option_word(const struct option_row *row, const char *word);
/* Append all values, as "auto, close or sync". */
void option_words(const struct option_row *row, struct buf *out);

/* ---- a mount ---- */

struct mnt_options {
    struct tree_options tree;
    char *model;      /* owned; NULL if not given */
    char *mountpoint; /* owned; NULL if not given. Absolute after the mount */
    /* Value of each given option, by id, "" if it takes none; owned, NULL if not given. */
    char *given[OPTION_IDS];
    struct fuse_args args;        /* left for libfuse */
    struct fuse_cmdline_opts cmd; /* foreground, threads ... */
    bool help, version;
    unsigned readahead;          /* in KiB */
    unsigned idle;               /* in seconds; 0: the mount stays */
    struct imatrix *importances; /* owned; NULL if not given */
    struct err err;              /* why parsing failed */
};

/*
 * Parse the arguments. Returns 0, or -EINVAL with a message in o->err that names the option, and
 * the most similar one. The last of `ro` and `rw` counts, as in mount(8). Free `o` in both cases.
 */
int mnt_options_parse(int argc, char **argv, struct mnt_options *o);
/* Add the other options for libfuse: fsname, subtype, default_permissions, ro or rw. Returns 0 or
 * -ENOMEM. */
int mnt_options_finish(struct mnt_options *o, const struct shelf *s);
void mnt_options_free(struct mnt_options *o);

#endif

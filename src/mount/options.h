/* SPDX-License-Identifier: MIT */
/*
 * The command line of a mount: ggufs [options] MODEL MOUNTPOINT, from a user, mount(8) or fstab;
 * and the one table of options (scripts/packaging/options.tsv), from which --help and the
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
    unsigned takes;       /* for a command: the options it takes, a set of OPTION_IN_SET() */
    unsigned least, most; /* how many operands a command takes */
    const char *name;     /* with its dashes */
    /* After "=": words separated by "|", or a description in capitals; NULL: none. */
    const char *values;
    /* The value if the option is not given; without values: what the option stands for; or NULL. */
    const char *fallback;
    const char *wants; /* description of a command's operand; NULL: it takes none */
};

/* For a row of KIND_OPTION. */
#define OPTION_IN_SET(row) (1u << option_place(row))
size_t option_place(const struct option_row *row);

/*
 * The row that an argument names, if it is one of the kinds (a set of OF_KIND()): the one that
 * takes a value if the argument has one after "=" (*value; else NULL). If there is only a row that
 * differs in this respect, that one.
 */
const struct option_row *option_find(const char *arg, unsigned kinds, const char **value);
/* The row that was most likely meant; for KIND_OPTION only those in `takes`. NULL: none is close. */
const struct option_row *option_nearest(const char *arg, unsigned kinds, unsigned takes);
/* The index of a word among the row's values; -1: it is not one of them. */
int option_word(const struct option_row *row, const char *word);
/* All of them, as "auto, close or sync". */
void option_words(const struct option_row *row, struct buf *out);

/* ---- a mount ---- */

struct mnt_options {
    struct tree_options tree;
    char *model;      /* owned; NULL if not given */
    char *mountpoint; /* owned; NULL if not given. Absolute once mounted */
    /* Each given option, by id: its value, "" if it takes none; owned, NULL if not given. */
    char *given[OPTION_IDS];
    struct fuse_args args;        /* left for libfuse */
    struct fuse_cmdline_opts cmd; /* foreground, threads ... */
    bool help, version;
    unsigned readahead;          /* KiB */
    unsigned idle;               /* seconds; 0: the mount stays */
    struct imatrix *importances; /* owned; NULL if not given */
    struct err err;              /* why parsing failed */
};

/*
 * Parse. 0, or -EINVAL with a line in o->err that names the option, and the most similar one. The
 * last of `ro` and `rw` counts, as in mount(8). Free `o` in both cases.
 */
int mnt_options_parse(int argc, char **argv, struct mnt_options *o);
/* Add the other options for libfuse: fsname, subtype, default_permissions, ro or rw. 0, -ENOMEM. */
int mnt_options_finish(struct mnt_options *o, const struct shelf *s);
void mnt_options_free(struct mnt_options *o);

#endif

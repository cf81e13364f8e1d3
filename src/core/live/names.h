/* SPDX-License-Identifier: MIT */
/*
 * Tells what a new name in metadata/ means: a key, a helper file of an editor, or neither. Pure
 * functions. Names are file names (text/name.h), not empty and at most TREE_NAME_MAX bytes long.
 *
 * Threads: any.
 */
#ifndef LIVE_NAMES_H
#define LIVE_NAMES_H

#include <stdbool.h>

enum name_class {
    NAME_KEY,     /* a valid key */
    NAME_HELPER,  /* lives in memory and never becomes a key */
    NAME_INVALID, /* neither; refused with EINVAL */
};

/* How the name comes to be. */
enum name_way {
    NAME_CREATED, /* or a helper is renamed to it */
    NAME_MKSTEMP, /* created as mkstemp(3) does: exclusively, with mode 0600 */
    NAME_ASIDE,   /* a key is renamed to it */
};

/* Tells whether a key has or had a file name. */
struct name_keys {
    bool (*has)(const void *of, const char *name);
    const void *of;
};

/*
 * Classify a name that no key has or had. A helper's name begins with "." or "#", or ends in "~";
 * or it has no dot, and consists of digits or is one that mkstemp(3) made; or it is a key's name
 * with a suffix: .tmp .new .swp, or six letters or digits and .bck; or, if a key is renamed to it,
 * .bak .orig .old .save.
 */
enum name_class name_classify(const char *name, enum name_way way, const struct name_keys *keys);

/* True if nobody expects a helper with this name to last. */
bool name_is_fleeting(const char *name);

/* True for a key's name followed by six letters or digits, perhaps after a dot: programs (Qt,
 * BusyBox) rename such a file over the key. */
bool name_is_temporary(const char *name, const struct name_keys *keys);

#endif

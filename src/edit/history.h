/* SPDX-License-Identifier: MIT */
/*
 * The history of a model: its keys as they were before edits, kept in files of the user's state
 * folder (history_place.h), so that mistakes can be taken back.
 *
 *     r = history_open(&h, &sys_libc, home, "/real/path/m.gguf", HISTORY_KEEP, &e);
 *     r = history_save(&h, &record, keys, &e);           a state, before an edit is written
 *     r = history_update(&h, &record, &e);               what became of the edit
 *     r = history_prune(&h, &record, &e);                what is too much, after it
 *     r = history_list(&h, &list, &e);                   oldest first
 *     r = history_read_listed(&h, &list.name[i], &record, &keys, &e);
 *     history_close(&h);
 *
 * A state is one file (history_state.h), named by a hash of the model's path, its number, its time
 * and its size, all in hex: HASH-NUMBER-TIME-SIZE. So one listing of the folder shows what has to be
 * dropped. The path itself is in the file and checked.
 *
 * Invariants:
 *  H1. A state appears whole: written and synced under another name, renamed, the folder synced.
 *  H2. Numbers of a model rise, and none is used twice: where the last file of a model goes, an empty
 *      file keeps the largest number so dropped of all models, as a floor for new ones.
 *  H3. After history_prune() a model has at most `keep` states (HISTORY_KEEP_SAME: no more than before
 *      its newest), and all models at most HISTORY_BYTES_MAX; the oldest go first. Each counts as the
 *      blocks that it takes, so that names are bounded too. What is not pruned, because the process was
 *      killed, is so with the next state.
 *  H4. Files that are not this user's regular files with one name are not read, and none but files
 *      with names of ours is removed.
 *  H5. What changes the set of files holds the folder's lock. A folder that was removed is made anew with
 *      the next state; what looks and updates finds nothing until then.
 *
 * Threads: one at a time.
 */
#ifndef EDIT_HISTORY_H
#define EDIT_HISTORY_H

#include <limits.h>

#include "edit/history_place.h"
#include "edit/history_state.h"

#define HISTORY_KEEP 20       /* states of a model, by default */
#define HISTORY_KEEP_MAX 1000 /* more than anybody reads */
/* As many as there are, at least HISTORY_KEEP: for a caller that does not have the user's number. */
#define HISTORY_KEEP_SAME UINT_MAX
#define HISTORY_BYTES_MAX ((uint64_t)256 << 20)
#define HISTORY_PATIENCE 2000 /* milliseconds */
#define HISTORY_BLOCK 4096    /* what the smallest file takes on most file systems */

struct history {
    const struct sys *sys;
    struct history_place place;
    char *model; /* owned: the model's real path */
    uint64_t hash;
    unsigned keep;
    unsigned patience; /* milliseconds to wait for the folder's lock; 0: any time */
    bool begun;        /* a state: the folder is locked */
    int fd;            /* its file, which has no name of a state yet; else -1 */
};

/* What the name of a state says. */
struct history_name {
    uint64_t hash; /* of the model's path; 0: the floor of numbers */
    uint64_t number;
    uint64_t time; /* of the first edit, seconds since 1970 */
    uint64_t size; /* bytes of the file */
};

/* The states of a model, oldest first. */
struct history_list {
    struct history_name *name; /* owned */
    size_t n, cap;
};

#define HISTORY_LIST_INIT ((struct history_list){0})

/*
 * home: history_home(). Nothing is made yet. Close it in any case. 0, -ENOMEM, -errno of the folders
 * above.
 */
int history_open(struct history *h, const struct sys *sys, const char *home, const char *model,
                 unsigned keep, struct err *e);
void history_close(struct history *h);

/*
 * Keep a state of a model's keys, in two steps: the keys are written before it is known what the edit
 * makes of them. The record's number and what follows from path and keys are set by the first, which
 * needs its `begin`; its other fields are the caller's until the second, which makes the state durable.
 * In between the folder is locked: that has to be short. 0; -EFBIG (over HISTORY_BYTES_MAX), -EPERM (the
 * folder), -errno: nothing is begun any more.
 */
int history_begin(struct history *h, struct history_record *r, const struct gguf *keys,
                  struct err *e);
int history_finish(struct history *h, const struct history_record *r, struct err *e);
/* Give up what is begun, if anything is. */
void history_drop(struct history *h);
/* Both steps. */
int history_save(struct history *h, struct history_record *r, const struct gguf *keys,
                 struct err *e);
/* Drop what is too much (H3), but never this state, which was saved last. 0, -errno: what is left is
 * dropped with the next. */
int history_prune(struct history *h, const struct history_record *r, struct err *e);
/*
 * Write the record of a state anew. Durable after history_sync() of it. 0; -ENOENT (the state is gone,
 * dropped or cleared), -errno.
 */
int history_update(struct history *h, const struct history_record *r, struct err *e);
int history_sync(struct history *h, const struct history_record *r, struct err *e);

/* No history at all is an empty list. 0, -errno. */
int history_list(struct history *h, struct history_list *ret, struct err *e);
void history_list_free(struct history_list *l);

/*
 * A state of a list, which may have gone since, or one by its number, for which the folder is listed. keys
 * NULL: the record alone. -ENOENT, -EBADMSG, -ESTALE, -EPERM, -EFBIG, -errno.
 */
int history_read_listed(struct history *h, const struct history_name *n, struct history_record *ret,
                        struct gguf **keys, struct err *e);
int history_read(struct history *h, uint64_t number, struct history_record *ret, struct gguf **keys,
                 struct err *e);

/* Forget the model's states. *n: how many they were. 0; -EAGAIN (another process has the lock for
 * HISTORY_PATIENCE), -errno. */
int history_clear(struct history *h, size_t *n, struct err *e);

#endif

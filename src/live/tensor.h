/* SPDX-License-Identifier: MIT */
/*
 * Which tensors the model has, with all edits accepted, and what is known of their folders.
 *
 * Threads: all functions are called with the lock of `struct live`.
 */
#ifndef LIVE_TENSOR_H
#define LIVE_TENSOR_H

#include "live/core.h"

struct tensor_now {
    const char *name; /* of the model, the change or `text` */
    size_t len;
    char text[TREE_NAME_MAX + 1];
    uint32_t old;    /* its place in the base; EDIT_NONE: it is new */
    uint32_t number; /* IDS_NONE: it is new, and batch_freshen() gives it one */
};

/* The tensor of a folder's name, also if it is doomed. -ENOENT. */
int tensor_find(const struct live *l, const char *file, struct tensor_now *ret);
/* The same by its number, of a tensor that the newest snapshot has, or the base. */
int tensor_of_number(const struct live *l, uint32_t number, struct tensor_now *ret);
/* The number of one that was in the making and was added with this content; IDS_NONE. */
uint32_t tensor_made(const struct live *l, const struct tensor_content *k);
/* Remove it from the model: as edit_tensor_remove(). Where it stood is kept. */
int tensor_drop(struct live *l, const char *name, size_t n, struct err *e);
/* False: the change leaves the model without any tensor. */
bool tensors_left(const struct live *l);
/* Its folder. NULL: no memory. */
struct folder *tensor_folder(struct live *l, uint32_t number);
/* An edit was refused: for the log and for user.gguf.error. f may be NULL. Returns e->code. */
int tensor_refused(struct live *l, struct folder *f, const char *name, size_t n,
                   const struct err *e);

/* Edits were given up: which tensors are there follows from what is stored now. */
void tensors_follow(struct live *l);
/* Drafts that were begun from what a batch gave its tensors can be accepted no more. */
void tensors_lost(struct live *l, const struct batch *b);
/* A batch was not written: the tensors that it names show why. */
void tensors_failed(struct live *l, const struct batch *b, const struct err *e);

/* It was written: what it removed is gone for good. Returns a list for view_drafts_end(), without the lock. */
struct view_draft *tensors_landed(struct live *l, const struct batch *b);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * A built image in a temporary file, opened as a tree, for tests of the tree without a mount; and
 * edits of a tree. Functions return 0 or the first -errno, and release everything that they hold.
 *
 *     struct tree_image m = image_open(&b, &(struct tree_options){0});   asserts that it opens
 *     n = image_bytes(&m, "tensors/w/raw", 0, 100, bytes);
 *     image_close(&m);
 *
 * The file is unlinked once it is open; `fd` can still change it behind the tree's back.
 */
#ifndef TESTS_LIB_TREE_IMAGE_H
#define TESTS_LIB_TREE_IMAGE_H

#include <semaphore.h>

#include "build_gguf.h"
#include "tree/folder.h"
#include "tree/attr.h"

struct tree_image {
    struct tree *t;
    uint8_t *image; /* owned: the file's original bytes */
    size_t size;
    int fd; /* owned: the file, read-write */
};

/* Permission bits of the model file. */
#define IMAGE_MODE 0640

/* Finish the build and open it. Failure is fatal. */
struct tree_image image_open(struct build *b, const struct tree_options *o);
/* Open a file of n bytes as a tree. Returns the result of tree_open(), and sets *m if it is 0. */
int image_try(const void *bytes, size_t n, const struct tree_options *o, struct tree_image *m,
              struct err *e);
void image_close(struct tree_image *m);
/* Open the model at a path as a tree. Failure is fatal. */
struct tree *image_tree(const char *path, const struct tree_options *o);

/* Return the node at a path of names, or 0 if it does not exist. "" is the root. */
uint64_t image_node(const struct tree_image *m, const char *path);
struct stat image_stat(const struct tree_image *m, const char *path);
/* Make one read of up to n bytes. Returns the number of bytes read, or -errno of the lookup, the
 * open or the read. */
ssize_t image_bytes(const struct tree_image *m, const char *path, uint64_t off, size_t n,
                    void *dst);
/* Call tree_readdir() on a directory that is opened for this one entry. */
int image_readdir(const struct tree_image *m, uint64_t dir, uint64_t *cookie, bool attrs,
                  char name[TREE_NAME_MAX + 1], struct tree_entry *e);
/* Return the names in a directory except "." and "..", each followed by a newline; NUL-terminated.
 * The caller frees them. */
char *image_list(const struct tree_image *m, const char *path);
/* Read a whole file, NUL-terminated; *n is its length. The caller frees it. */
char *image_text(const struct tree_image *m, const char *path, size_t *n);
/* Check that it has this text. */
void image_shows(const struct tree_image *m, const char *path, const char *want);

/* ---- edits: with requests like the kernel's, which are waited for ---- */

/* The wait of a call that may be parked: r = tree_waited(&w, tree_flush(f, tree_wait(&w))). The
 * wait's request is w itself. */
struct tree_wait {
    struct live_wait wait; /* must come first */
    sem_t answered;
    int result;
};
/* Seconds; enough for any call on a busy machine. */
enum { WAIT_MOST = 60 };
struct live_wait *tree_wait(struct tree_wait *w);
int tree_waited(struct tree_wait *w, int r);

/* Do what "echo TEXT > metadata/NAME" does, for n bytes. NAME may be KEY:TYPE. */
int do_write(struct tree *t, const char *name, const void *text, size_t n);
/* Do what rm, mv, and setfattr -n user.gguf.type -v TYPE do. */
int do_unlink(struct tree *t, const char *name);
int do_rename(struct tree *t, const char *from, const char *to);
int do_retype(struct tree *t, const char *name, const char *type);
/* Do what "sync metadata" does. */
int do_sync(struct tree *t);

#endif

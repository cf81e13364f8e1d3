/* SPDX-License-Identifier: MIT */
/*
 * The files of metadata/ while it can be edited: keys, and helpers that live in memory.
 *
 * A file's number (its inode, less INO_KEYS) is given once and means the same name for the life of
 * the mount. Of most keys there is nothing but the number: an object, struct kfile, is made only
 * for those that are written, renamed, removed or of which an editor made a helper.
 *
 * States of a kfile, and what leads from one to another:
 *   KEY      shown as the newest generation has it, or as its draft is   accept() -> KEY
 *   NEW      created, nothing accepted yet: there while it is open       accept() -> KEY, else GONE
 *   REMOVED  hidden; the removal is not yet part of a generation         create() -> KEY (open)
 *   AWAY     a key that was renamed to a helper: hidden, but kept        create() -> KEY (open)
 *   GONE     in no generation; its type and place are remembered         create() -> NEW
 *   HELPER, LINK   in memory only                                        unlink() -> DEAD
 *   ASIDE    a helper that was renamed over a key, which is not on disk  written -> DEAD,
 *            yet: hidden                                                 failed -> HELPER
 *   DEAD     has no name any more; freed when nobody knows it any more
 *
 * Threads: everything is protected by the tree's lock.
 */
#ifndef TREE_KEYS_H
#define TREE_KEYS_H

#include <time.h>

#include "base/buf.h"
#include "tree/gen.h"
#include "tree/name.h"

enum kfile_state {
    KFILE_KEY,
    KFILE_NEW,
    KFILE_REMOVED,
    KFILE_AWAY,
    KFILE_GONE,
    KFILE_HELPER,
    KFILE_LINK,
    KFILE_ASIDE,
    KFILE_DEAD,
};

/*
 * The text of a file that is being written, shared by all who write it; its writers own it. It
 * follows the file through renames, as an open file does, from key to helper and back. If the file
 * is removed, or another takes its name, what is written to it changes nothing any more.
 */
struct draft {
    struct buf text;
    struct kfile *of; /* the file whose draft it is; NULL: that is no more */
    unsigned writers; /* handles that are open for writing */
    bool written;     /* by write(2), not only truncated */
    bool dirty;       /* something was written since the last accept() */
    bool closed;      /* the last that was seen of it is a flush, as close(2) sends it */
    bool whole;       /* written from the beginning on, without a hole: its start can be judged */
    int refused;      /* 0, or why a write was refused: such a draft changes nothing */
    unsigned losses;  /* of the writer, when it was accepted last */
    bool typed;       /* opened as KEY:TYPE */
    uint32_t type, elem;
    uint32_t was;   /* the file that it was renamed from, while that is not on disk; or KV_NONE */
    bool in_flight; /* the rename is being written */
};

#define KV_NONE UINT32_MAX

/* Bytes of a value's text, and of all helpers together: more than any tokenizer's array has. */
#define TEXT_MAX ((uint64_t)1 << 30)

struct kfile {
    uint32_t id;
    enum kfile_state state;
    char *file; /* owned: file name */
    char *key;  /* owned: the key; NULL for helpers */
    size_t key_len;
    uint64_t hash;      /* of the file name */
    struct kfile *next; /* in the same bucket */
    struct timespec mtime;
    char *error;         /* owned: why the last write was refused, NULL if it was not */
    struct buf content;  /* HELPER: bytes, unless it has a draft; LINK: target */
    struct draft *draft; /* NULL unless it is open for writing */
    struct kfile *moved; /* GONE: the key that it was renamed to, for who has it open still */
    struct kfile *away;  /* HELPER: the key that was renamed to it */
    bool in_flight;      /* ASIDE: the key is being written */
    unsigned opens;      /* handles */
    uint64_t lookups;    /* references of the kernel */
    /* What is remembered of a key that is gone, or a retyping tells for a moment. */
    bool typed;
    uint32_t type, elem;
    char *after; /* owned: the key behind which it stood; NULL: at the end */
    size_t after_len;
};

struct keys {
    uint32_t n; /* numbers given */
    size_t cap;
    struct kfile **file; /* owned, by number; NULL: an untouched key */
    uint32_t *kv;        /* owned, by number: the key's in the newest generation, or KV_NONE */
    uint32_t *id;        /* owned, by number in the newest generation */
    uint32_t *spare;     /* owned: what id will be in the next; room for cap_id, as in id */
    size_t cap_id;
    struct kfile **bucket; /* owned: kfiles with a name, by hash */
    size_t buckets;        /* a power of two */
    size_t named;          /* kfiles in buckets */
    uint64_t helper_bytes; /* of all helpers */
};

/* Number the keys of the first generation. 0, -ENOMEM. */
int keys_init(struct keys *k, const struct gguf *g);
void keys_free(struct keys *k);

/* From generation `old` to `now`: who is where. 0, -ENOMEM (nothing changed; never on the way
 * back to a generation that has been the newest). */
int keys_follow(struct keys *k, const struct gguf *old, const struct gguf *now);

/* The kfile with this name, in any state but DEAD; NULL if there is none. */
struct kfile *keys_named(const struct keys *k, const char *file);
/* The number that a visible file name has, KV_NONE if there is none. */
uint32_t keys_find(const struct keys *k, const struct gen *g, const char *file);
/* True if number i is listed. */
bool keys_visible(const struct keys *k, uint32_t i);

/* The kfile of number i (a key of the generation), made if there is none. NULL: no memory. */
struct kfile *keys_touch(struct keys *k, const struct gen *g, uint32_t i);
/* A new kfile with a new number, without references. NULL: no memory. */
struct kfile *keys_add(struct keys *k, const char *file, enum kfile_state state);
/* Another name for a helper. 0, -ENOMEM. */
int keys_rename(struct keys *k, struct kfile *f, const char *file);
/* Take away the name of a helper or a key that never was: DEAD; freed now or later. */
void keys_kill(struct keys *k, struct kfile *f);
/* Before a new file is made: end the helper of this name that stands aside, if there is one. */
void keys_clear(struct keys *k, const char *file);
/* Renames that are not on disk, helpers that stand aside and drafts: they are in flight now. */
void keys_take_off(struct keys *k);
/* Those in flight, or those that are not: they were written, or given up, and all is as before. */
void keys_land(struct keys *k, bool in_flight, bool written);
/* Free a DEAD kfile that nobody knows any more. */
void keys_reap(struct keys *k, struct kfile *f);

/* True if one helper may be `len` bytes instead of `was` (0: a new one): all together have room. */
bool keys_have_room(const struct keys *k, uint64_t was, uint64_t len);
/* It got no value: a key that was removed or out of the way is back, a new one is none. */
void kfile_no_value(const struct keys *k, struct kfile *f);

void kfile_set_error(struct kfile *f, const char *why); /* NULL: none */
void draft_free(struct draft *d);                       /* may be NULL */
/* The type that the value is to have, if it was told or is remembered. */
bool kfile_type(const struct kfile *f, uint32_t *type, uint32_t *elem);

#endif

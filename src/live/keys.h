/* SPDX-License-Identifier: MIT */
/*
 * The files of metadata/ while it can be edited: keys, and helpers that live in memory.
 *
 * A file has a number (the object of its node, see ino.h). A key keeps it for the life of the mount. The
 * number of a helper is used again once the kernel has forgotten it, with another generation. Of
 * most keys there is nothing but the number: an object, struct kfile, is made only for those that
 * are written, renamed, removed or of which an editor made a helper.
 *
 * States of a kfile, and what leads from one to another:
 *   KEY      the model has it; shown so, or as its draft is    unlink() -> REMOVED, rename() -> AWAY,
 *                                                              GONE; its edit fails -> NEW, GONE
 *   NEW      created, nothing accepted yet: there while it     accept() -> KEY; last close -> KEY if
 *            is open                                           the model has it, else GONE
 *   REMOVED  hidden; the removal is not yet part of the        create() -> NEW, accept() -> KEY;
 *            change                                            removal accepted -> GONE, refused -> KEY
 *   AWAY     renamed to a helper, its backup: hidden, kept     create() -> NEW, accept() -> KEY;
 *                                                              the backup goes -> REMOVED
 *   GONE     the model does not have it; its type and place    create() -> NEW, accept() -> KEY
 *            are remembered if it had them
 *   HELPER   in memory only; so is LINK                        unlink() -> DEAD, rename() -> ASIDE
 *   ASIDE    a helper that was renamed over a key whose edit   written -> DEAD, failed -> HELPER
 *            is not on disk yet: hidden
 *   DEAD     without a name; freed when nothing refers to it
 *
 * A state changes in kfile_set_state() alone.
 *
 * Threads: everything is protected by the tree's lock.
 */
#ifndef LIVE_KEYS_H
#define LIVE_KEYS_H

#include <time.h>

#include "base/buf.h"
#include "text/name.h"
#include "edit/shown.h"

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

/* The type that a value is to have, where that is known before there is a value. */
struct typed {
    bool set;
    uint32_t type, elem;
};

/*
 * The text of a file that is being written, shared by all who write it; its writers own it. It
 * follows the file through renames, as an open file does, from key to helper and back. If the file
 * is removed, or another takes its name, what is written to it changes nothing any more.
 */
struct draft {
    struct buf text;
    struct kfile *of;   /* the file whose draft it is; NULL: that is no more */
    unsigned writers;   /* handles that are open for writing */
    bool written;       /* by write(2), not only truncated */
    bool dirty;         /* something was written since the last accept() */
    bool closed;        /* the last that was seen of it is a flush, as close(2) sends it */
    bool whole;         /* written from the beginning on, without a hole: its start can be judged */
    bool unfinished;    /* at the last close it was no value, but the beginning of one perhaps */
    int refused;        /* 0, or why a write was refused: such a draft changes nothing */
    unsigned losses;    /* of the writer, when it was accepted last */
    struct typed typed; /* opened as KEY:TYPE */
    uint32_t was;       /* the file that it was renamed from, while that is not on disk; KV_NONE */
    struct shown before; /* the key's value when it was begun */
    bool accepted;       /* some of it was accepted since */
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
    char *error;          /* owned: why the last write was refused, NULL if it was not */
    struct buf content;   /* HELPER: bytes, unless it has a draft; LINK: target */
    struct draft *draft;  /* NULL unless it is open for writing */
    struct kfile *moved;  /* GONE: the key that it was renamed to, for who has it open still */
    struct kfile *away;   /* HELPER: the key that was renamed to it, whose `backup` this is */
    struct kfile *backup; /* AWAY: the helper that has its text */
    unsigned opens;       /* handles */
    unsigned pins;        /* moves that name it */
    uint64_t lookups;     /* references of the kernel */
    struct typed typed;   /* of a key that is gone; of a helper, for the key that it may become */
    bool inherited;       /* HELPER: typed is that of the key it was renamed from */
    uint64_t rank;        /* its place among the keys (edit/change.h); 0: it has never had one */
    struct kfile *next_removed, **prev_removed; /* REMOVED: in keys.removed */
};

/* How far an edit has come. */
enum stage {
    STAGE_NEW,    /* accepted; whether it can be written is still asked */
    STAGE_KEPT,   /* to be written */
    STAGE_FLIGHT, /* being written */
    STAGES
};

/* A rename whose edit is not on disk yet: what it moved goes back if that fails. */
struct moved {
    enum stage stage;
    struct kfile *from; /* pinned: a helper that is ASIDE, or the key that was renamed */
    struct kfile *to;   /* pinned: the key that has taken its text, and its draft */
};

struct keys {
    uint32_t n; /* numbers given */
    size_t cap;
    uint32_t *generation; /* owned, by number: how often it was used before */
    uint32_t *unused;     /* owned: numbers to be used again */
    size_t n_unused, cap_unused;
    struct kfile **file; /* owned, by number; NULL: an untouched key */
    uint32_t *kv;        /* owned, by number: the key's in the newest generation, or KV_NONE */
    uint32_t *id;        /* owned, by number in the newest generation */
    uint32_t *spare;     /* owned: what id will be in the next; room for cap_id, as in id */
    size_t cap_id;
    struct kfile **bucket; /* owned: kfiles with a name, by hash */
    size_t buckets;        /* a power of two */
    size_t named;          /* kfiles in buckets */
    uint64_t helper_bytes; /* of all helpers */
    struct kfile *removed; /* all that are REMOVED */
    struct moved *moved;   /* owned */
    size_t n_moved, cap_moved;
};

/* A file's state changes here alone. */
void kfile_set_state(struct keys *k, struct kfile *f, enum kfile_state state);

/* The helper is the backup of a key that is AWAY, until one of them is that no more. */
void kfile_pair(struct kfile *key, struct kfile *helper);

/* Number the keys of the first generation. 0, -ENOMEM. */
int keys_init(struct keys *k, const struct gguf *g);
void keys_free(struct keys *k);

/* From generation `old` to `now`: who is where. 0, -ENOMEM (nothing changed; never on the way
 * back to a generation that has been the newest). */
int keys_follow(struct keys *k, const struct gen *old, struct gen *now);

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
/* The same for a key, NEW, whose name may be longer than a file name. */
struct kfile *keys_add_key(struct keys *k, const char *key, size_t n);
/* Another name for a helper. 0, -ENOMEM. */
int keys_rename(struct keys *k, struct kfile *f, const char *file);
/* Take away the name of a helper or a key that never was: DEAD; freed now or later. */
void keys_kill(struct keys *k, struct kfile *f);
/* Before a new file is made: end the helper of this name that stands aside, if there is one. */
void keys_clear(struct keys *k, const char *file);
/* A batch of edits was given up: what a key's file is follows from whether the model has the key. */
void keys_settle(struct keys *k, struct kfile *f, bool stored);
/* Free a file without a name that nothing refers to any more. */
void keys_reap(struct keys *k, struct kfile *f);

/* True if one helper may be `len` bytes instead of `was` (0: a new one): all together have room. */
bool keys_have_room(const struct keys *k, uint64_t was, uint64_t len);
void kfile_set_error(struct kfile *f, const char *why); /* NULL: none */
void draft_free(struct draft *d);                       /* may be NULL */
/* The type that the value is to have, as far as the file knows. */
struct typed kfile_type(const struct kfile *f);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Keeps what can be edited: the names and files of the directory metadata/, and tensors as objects.
 *
 * As in any file system, a name is an entry in the directory; it points to a file or to nothing.
 * Programs open files: a file has a number (the object of its node), a draft while it is written,
 * handles, and lookups. A rename moves only the pointer; the rest stays with the file.
 *
 * A key that the model has is visible, unless its name was removed (doomed) or renamed to a backup;
 * whether the model has it is not recorded here. Names and files are made only when a program asks
 * for them, so an untouched key has neither, but key i of the first snapshot still has number i.
 *
 *  M1. A file has at most one name: f is the file of x if and only if x->file == f, and then
 *      f->of == x.
 *  M2. The numbers of files and names come from one counter and are never reused.
 *
 * A file without a name is an orphan: writes to it are discarded. It is freed when its last handle
 * and lookup are gone.
 *
 * An object holds the facts about a tensor that are not in the model. Objects are found by number
 * (model/snapshot.h); only tensors that a call has touched have an object. After a removal, the
 * object keeps the tensor's name, and its place for the next tensor with that name.
 *
 * Threads: all members are protected by the lock of `struct live`.
 */
#ifndef LIVE_OBJECTS_H
#define LIVE_OBJECTS_H

#include <stdatomic.h>
#include <time.h>

#include "base/buf.h"
#include "base/hash.h"
#include "live/writer.h"
#include "model/snapshot.h"
#include "model/store.h"
#include "text/name.h"

/* ---- the future type of a value, if known before there is a value ---- */

struct typed {
    bool set;
    uint32_t type, elem;
};

/* ---- names and their files ---- */

enum file_kind { FILE_KEY, FILE_HELPER, FILE_LINK };

struct file;
struct draft;
struct live_file;

struct name {
    struct link link;           /* first member; in names.by_text */
    struct link ino_link;       /* in names.by_ino */
    struct name *newer, *older; /* in names.newest, names.oldest */
    struct file *file;          /* NULL if there is no file yet, even if the model has the key */
    char *error;                /* owned: why the last write was refused, or NULL */
    uint32_t ino;               /* st_ino, which belongs to the name, not to its file */
    struct timespec mtime;      /* tv_sec is 0 if not written in this mount */
    unsigned refs; /* number of files that have or had this name, plus steps using it */
    uint64_t edit; /* the number of the last accepted edit to its key */
    char *key;     /* owned: the key; NULL for a helper's name */
    size_t key_len;
    struct file *backup; /* the helper that holds the key's text while the key is hidden */
    bool doomed;         /* unlinked, but the removal is not yet part of the change */
    struct typed typed;  /* the type for a new value; a removed key's former type */
    uint64_t rank;       /* place among the keys; 0 if the key never had a place */
    char text[];         /* the file name */
};

struct file {
    struct link link; /* first member; in names.by_number */
    uint32_t number;
    enum file_kind kind;
    struct name *of;     /* the file's current or last name: see file_name() */
    struct draft *draft; /* owned; NULL unless the file is open for writing */
    /* HELPER: the bytes, unless it has a draft. LINK: the target. KEY: the bytes that it had as a
     * helper, until the key is on disk; or the text that made edit `written`. */
    struct buf content;
    uint64_t written;       /* KEY: 0 if `content` is not such a text */
    struct name *parked;    /* HELPER: the name of the key whose backup it is */
    struct typed typed;     /* HELPER: the type of the key that it may become */
    bool inherited;         /* HELPER: `typed` is the type of the key that it once was */
    bool replaced;          /* the file does not move back if its edit fails */
    struct promise promise; /* covers edits accepted while this was a key's file */
    unsigned drafts;        /* number of drafts started so far */
    unsigned opens;         /* number of handles */
    unsigned steps;         /* number of steps that may move the file back */
    uint64_t lookups;       /* number of the kernel's references */
};

struct names {
    uint32_t first;               /* keys 0 to `first` - 1 are those of the first snapshot */
    uint32_t given;               /* the next number to assign */
    struct table by_number;       /* files */
    struct table by_ino, by_text; /* names */
    struct name *oldest, *newest; /* ends of the list of names, in order of creation */
    size_t n_doomed, n_errors;    /* number of doomed names, and of names with an error */
    /* the doomed keys or tensors may differ from those that the newest snapshot lacks */
    atomic_bool other_doomed;
    uint64_t helper_bytes; /* number of bytes in all helpers */
    uint64_t ranks;        /* the rank of the next new key */
    bool nul;              /* at least one name of a key or tensor contains a NUL */
    struct {
        struct live_file *file; /* owned; may be NULL */
        struct timespec due;    /* CLOCK_MONOTONIC: when to close `file` */
    } made;                     /* the last file made by mknod, which counts as open */
    int missing;                /* why the last lookup failed: -ENOENT or -ENOMEM */
};

/* Limit on the text of one value, and on the total size of all helpers; no tokenizer's array needs
 * this much. */
#define TEXT_MAX ((uint64_t)1 << 30)

/* Begin with `first` keys, none of which has been touched. */
void names_init(struct names *n, uint32_t first);
void names_close(struct names *n);

/* ---- names ---- */

struct name *names_find(const struct names *n, const char *text);
struct name *names_of_ino(const struct names *n, uint32_t ino);
/* Swap the st_ino of two names, because a helper's st_ino moves with its file. */
void name_swap_inos(struct names *n, struct name *x, struct name *y);
/* Find a name by its key. */
struct name *names_find_key(const struct names *n, const char *key, size_t len);
/* Return the name of a key or helper, creating it if needed. Returns NULL if out of memory, or if
 * the text cannot be a key's name. */
struct name *names_get(struct names *n, const char *text, bool key);
/* Return the name of a key, creating it if needed, even if the key is too long for a file name. The
 * name of a helper that has a file stays a helper's. */
struct name *names_get_key(struct names *n, const char *key, size_t len);
/* Touch original key number i: make its name and file. Returns NULL if out of memory. */
struct name *names_touch(struct names *n, uint32_t i, const char *key, size_t len);
/* Free a name if it is no longer needed. */
void name_reap(struct names *n, struct name *x);
void name_set_error(struct names *n, struct name *x, const char *why); /* why may be NULL */

/*
 * Point the name to the file, which loses its previous name. The name's previous file becomes an
 * orphan, but still shows the key's value, because a program may have found that file by this name.
 */
void name_take(struct names *n, struct name *x, struct file *f);
/* Detach the name from its file, which is freed if nothing refers to it. */
void name_leave(struct names *n, struct name *x);

/* Hide the key of a removed name until the removal is part of the change. */
void name_doom(struct names *n, struct name *x);
/* Show a key that was doomed or hidden behind a backup. */
void name_spare(struct names *n, struct name *x);

/* ---- files ---- */

/* Make a file with a new number for a name without a file. Returns NULL if out of memory. */
struct file *file_new(struct names *n, struct name *x, enum file_kind kind);
/* Make a file for a name given as text. */
struct file *names_make(struct names *n, const char *text, enum file_kind kind);
/* Return the file's name, or NULL if it is an orphan. */
static inline struct name *file_name(const struct file *f)
{
    return f->of->file == f ? f->of : NULL;
}
/* Free a file, and then its last name, if nothing refers to them. */
void file_reap(struct names *n, struct file *f);
/* Drop a file's bytes, which count towards the limit for all helpers. The second function replaces
 * them with `bytes`, which are moved. */
void file_free_content(struct names *n, struct file *f);
void file_set_content(struct names *n, struct file *f, struct buf *bytes);
/* Return the text with which a key's present value was written, or NULL if it was not kept. */
const struct buf *file_written(const struct file *f);
/* Drop the bytes that a key's file had as a helper, if no handle reads them and no step can bring
 * them back. */
void file_is_key(struct names *n, struct file *f);

/* Return the file with this number, or NULL if there is no such file or the key is untouched. */
struct file *names_file(const struct names *n, uint32_t number);
/* True if the limit for all helpers allows a helper to grow from `was` (0 for a new one) to `len`
 * bytes. */
bool names_have_room(const struct names *n, uint64_t was, uint64_t len);

/* ---- tensors ---- */

/* In seconds: tensors are removed after OBJECTS_QUIET without another removal; views that were
 * unlinked without their directory reappear after OBJECTS_VIEWS. */
#define OBJECTS_QUIET 2
#define OBJECTS_VIEWS 1

enum object_state {
    OBJECT_STORED, /* the model has it once all accepted edits are applied */
    OBJECT_NEW,    /* a directory was created, but is not a tensor yet (tensors.h) */
    /* Hidden. Its removal becomes part of the change after OBJECTS_QUIET seconds without another
     * removal. */
    OBJECT_DOOMED,
    OBJECT_ABSENT, /* removed by the change being collected; final once the change is on disk */
    OBJECT_LOST,   /* it was new, but could not be written */
    OBJECT_GONE,   /* it never became a tensor; only its drafts refer to it */
    OBJECT_STATES
};

enum object_event {
    OBJECT_MAKE,   /* its directory was created */
    OBJECT_ADD,    /* it became a tensor */
    OBJECT_DOOM,   /* its directory was removed */
    OBJECT_REMOVE, /* the edit that removes it was accepted, or it was new and was removed */
    OBJECT_BACK,   /* it was not removed after all */
    OBJECT_LOSE,   /* the edit that added it was lost */
    OBJECT_REGAIN, /* another tensor with its name has been added since */
    OBJECT_EVENTS
};

struct object;

struct object_list {
    struct object *first, *last;
    size_t n;
};

struct object {
    struct link link; /* in objects.by_name, if the object has a name */
    char *name;       /* owned; set if the model lacks the tensor, else NULL */
    size_t name_len;
    uint64_t rank; /* ABSENT: its place among the tensors, or 0 if no longer known */
    uint32_t number;
    enum object_state state;
    uint64_t generation; /* for FUSE: how often it has returned after a removal */
    char *error;     /* owned: why the last write was refused, what a new tensor lacks, or NULL */
    int lost;        /* LOST: the reason, as -errno */
    unsigned edits;  /* number of edits accepted from its views */
    unsigned losses; /* number of accepted edits to the tensor that were dropped */
    struct promise promise;
    struct timespec mtime; /* tv_sec is 0 if not written in this mount */
    /* Rows of the views that have been opened for writing since the tensor was assigned its
     * version: the kernel may have cached unaccepted content for them. */
    uint32_t spent;
    uint32_t hidden; /* rows of views that were unlinked */
    /*
     * CLOCK_MONOTONIC. NEW: when it will be judged unless it is written first; DOOMED: when it will
     * be removed unless another tensor is removed first; otherwise when its hidden views reappear.
     */
    struct timespec due;
    struct draft *drafts;         /* drafts of its views and of helpers beside them (views.h) */
    struct object_list *in;       /* its list: objects.doomed, objects.fresh or NULL */
    struct object *next, *before; /* its neighbours in that list */
    /* For new tensors (tensors.h): */
    bool has_type, has_shape;
    uint32_t type;
    struct tensor_shape shape;
    uint32_t aside;    /* rows of views that were written but are ignored */
    unsigned open;     /* number of writable handles */
    unsigned unclosed; /* number of writable handles not closed since they were last written */
    bool dirty;        /* written since it was last judged */
};

/* Number of recently replaced versions of tensors that are remembered, in case the kernel still
 * requests them. */
enum { OBJECTS_KNOWN = 1024 };

struct objects {
    struct object **of; /* owned, by number; NULL if untouched */
    size_t cap;
    struct table by_name;      /* objects with a name */
    struct object_list doomed; /* in order of removal */
    struct object_list fresh;  /* new tensors, ordered by `due` */
    size_t n_errors;           /* number of the model's tensors that have an error */
    bool now;            /* doomed and new tensors are due now, because the directory was synced */
    unsigned syncs;      /* number of syncs so far */
    uint64_t ranks;      /* the rank of the next new tensor */
    atomic_bool touched; /* at least one tensor has been touched */
    /* Drafts of views and of helpers beside them (views.h): */
    const struct object *judging; /* the new tensor being judged, whose drafts are kept */
    struct draft *dead;           /* owned list: drafts to be freed without the lock */
    struct table nodes;           /* all other drafts, by node */
    /* handles opened through a node other than their draft's, by node */
    struct table shared;
    /* Versions of tensors. `number` is the tensor's number plus 1, or 0 in an unused entry. */
    struct tensor_id given[OBJECTS_KNOWN];
    uint32_t first_numbers; /* a version below this is also its tensor's number */
};

/* True if no call has touched any tensor. Does not need the lock. */
static inline bool objects_untouched(const struct objects *s)
{
    return !atomic_load_explicit(&s->touched, memory_order_acquire);
}

void objects_free(struct objects *s);
/* Return the object of a tensor, or NULL if it has no object. */
struct object *object_find(const struct objects *s, uint32_t number);
/* Return the object of a tensor, creating it if needed. Returns NULL if out of memory. */
struct object *object_get(struct objects *s, uint32_t number);
/* Return the first object whose number is at least this one, or NULL. */
struct object *object_from(const struct objects *s, uint64_t number);
void object_drop(struct objects *s, struct object *o);
/* Return the object with this name in this state, or NULL. */
struct object *object_named(const struct objects *s, const void *name, size_t n,
                            enum object_state state);
/* Give the object a name. Returns 0 or -ENOMEM. The second function removes its name and place. */
int object_set_name(struct objects *s, struct object *o, const void *name, size_t n);
void object_clear_name(struct objects *s, struct object *o);
/* Record why an edit was refused, or forget the reason if `why` is NULL. If out of memory, no
 * reason is recorded. */
void object_set_error(struct objects *s, struct object *o, const char *why);

/* Change the state of an object. No other function may. To the kernel, an object that returns is a
 * new object: a removed directory stays dead while a program is in it. */
void object_event(struct objects *s, struct object *o, enum object_event event);
/* Move an object to the end of its list. */
void object_move_last(struct object *o);

/* Make doomed and new objects due, because tensors/ was synced. */
void objects_sync(struct objects *s);
/* True if the doomed objects are due. */
bool objects_due(const struct objects *s);

/* Return the views that are currently hidden, one bit per row. */
uint32_t object_hidden(struct object *o);
void object_hide(struct object *o, uint32_t row);
void object_unhide(struct object *o, uint32_t row);

#endif

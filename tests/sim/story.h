/* SPDX-License-Identifier: MIT */
/*
 * A story says what programs do in a run, and what happens to the disk and the mount. Each actor
 * performs its steps in order; the scheduler chooses which actor continues. In text form, each step
 * is a line:
 *
 *     A open 1 r.a w trunc      clients are A to D; slot 1 of its handles; w, r, trunc, creat, excl
 *     A write 1 17              the text of token 17, at the beginning
 *     A half 1 17               the beginning of that text; the rest follows
 *     A spoil 1                 a text that no key accepts, at the beginning
 *     A close 1                 fork 1: another owner also closes; fsync 1; cut 1: ftruncate to 0
 *     A put r.a 18              open for writing with trunc and creat, write, close
 *     B mv r.a r.a~             rm NAME; sync: fsync of the directory; trunc NAME: truncate(2) to 0
 *     B read r.a                list; model: read model.gguf
 *     A json                    read metadata.json
 *     A retype r.a 2            setfattr -n user.gguf.type: string, u32 or u64
 *     B pass 300                milliseconds
 *     Z fail pwrite 3 28 1      the third pwrite from now on fails with errno 28, once
 *     Z room 1000               bytes; brief; slow MS; mend: no more faults
 *     Z signal A stop           ends the wait; late: the tree has to discover it
 *     A undo                    restore the last state of the history, if the mount keeps one
 *     Z alter                   another program writes the model; replace: or replaces the file
 *     Z power 0                 cut the power at the N-th disk call from now on (0: now);
 *                               kill 0: SIGKILL; term: SIGTERM, which ends the mount; nomem N:
 *                               allocation N fails; short N: and all later ones, until mend
 *
 * A tensor's name denotes its `raw`; with the word f32 after it, its `f32`. Only for tensors:
 *
 *     A type one 1              convert it to forms[1]; shape one 2: change its shape
 *     A add two 18 5            mkdir, and views in an order and form given by 5, like cp -r; 54,
 *                               55: its type is refused
 *     A rmr one                 rm -r: unlink its views, then remove it; rmdir one: only that
 *     A npy one 20 2            numpy.save() to `f32.npy`, in a form given by 2
 *
 * A line that begins with # is a comment; "# seed 17" is the seed with which the story failed. The
 * first other line describes the mount: `mount close copy` has the values of commit= and relayout=.
 * The two are followed by tensors (=edit), history, split (a model in two files), and what the file
 * system can do (clones) or cannot do: no-exchange of names, no-nameless files, no-range to copy.
 */
#ifndef TESTS_SIM_STORY_H
#define TESTS_SIM_STORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STEPS = 200, CLIENTS = 4, DISK = CLIENTS, ACTORS, SLOTS = 4 };

enum word {
    W_OPEN,
    W_WRITE,
    W_HALF,
    W_SPOIL,
    W_CLOSE,
    W_FORK,
    W_FSYNC,
    W_CUT,
    W_PUT,
    W_MV,
    W_RM,
    W_SYNC,
    W_TRUNC,
    W_READ,
    W_LIST,
    W_MODEL,
    W_JSON,
    W_RETYPE,
    W_UNDO,
    W_TYPE,
    W_SHAPE,
    W_ADD,
    W_RMR,
    W_PASS,
    W_FAIL,
    W_ROOM,
    W_BRIEF,
    W_SLOW,
    W_MEND,
    W_SIGNAL,
    W_ALTER,
    W_REPLACE,
    W_POWER,
    W_KILL,
    W_TERM,
    W_NOMEM,
    W_SHORT,
    W_NPY,
    W_RMDIR,
    WORDS
};

/* Flags of open. */
enum { F_WRITE = 1, F_TRUNC = 2, F_CREAT = 4, F_EXCL = 8, F_F32 = 16 };

struct step {
    enum word word;
    unsigned actor, slot, flags;
    unsigned name, to; /* indices into names[] */
    unsigned call;     /* index into calls[] */
    unsigned n, n2, n3;
};

struct story {
    uint8_t commit;   /* enum live_commit */
    uint8_t strategy; /* enum edit_strategy */
    uint8_t features; /* set of the features in disk.h */
    bool tensors, history, split;
    uint64_t seed; /* seed of a story that failed: "# seed N" */
    unsigned n;
    struct step step[STEPS];
};

/* Numbers of names, in this order: keys, of which the model has the first KEYS_THERE; tensors,
 * likewise; helpers. */
enum { KEYS_THERE = 4, KEYS = 6, TENSORS_THERE = 2, REGS = KEYS + 4, NAMES = REGS + 5 };
extern const char *const names[NAMES];
/* A tensor's type and shape, numbers below FORMS, are also registers of the oracle. */
enum { FORMS = 3, TYPES = NAMES, SHAPES = TYPES + REGS - KEYS, ALL_REGS = SHAPES + REGS - KEYS };
/* Calls of the disk that can fail. */
enum { CALLS = 17 };
extern const char *const calls[CALLS];

/* Draws the story of a seed. */
struct story story_draw(uint64_t seed);
void story_print(const struct story *s, void *file);
/* Returns false if the text is not a story; *line is then the first wrong line. */
bool story_read(const char *text, struct story *ret, unsigned *line);

#endif

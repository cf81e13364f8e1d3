/* SPDX-License-Identifier: MIT */
/*
 * Tensors: what programs do to them, and the oracle for them.
 *
 * A tensor has 64 elements in two halves. A write fills both halves, or the first, with the number
 * of a token, which every type here holds exactly. So a tensor's value is four numbers: its type,
 * its shape, and the token in each half. A tensor that is not there has NONE for each.
 *
 * The oracle keeps the edits of each tensor with the times of their calls. A value may be seen if
 * an edit brought it and no other edit has replaced it: one that was begun after the first had been
 * written, and was accepted before the look began. In the file, what counts is not when the other
 * was accepted, but from when it must be there. So what overlaps may be seen in any order, and the
 * oracle does not know how the program works.
 */
#ifndef TESTS_SIM_TENSORS_H
#define TESTS_SIM_TENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "gguf/gguf.h"
#include "story.h"

enum { OF_TYPE, OF_SHAPE, OF_LOW, OF_HIGH, PARTS };
enum { TENSORS = REGS - KEYS, TENSOR_EDITS = 300 };

struct tensor_edit {
    uint8_t part[PARTS]; /* or SAME: it does not change this part */
    bool adds;           /* it makes the tensor */
    bool whole;          /* ... and all its files were closed */
    bool kept;           /* it removes it, and waits, as the name was made again */
    uint8_t handle;      /* the one that wrote it, until that is released; HANDLES: none */
    uint32_t begin, end; /* of the call that wrote it */
    uint32_t judged;     /* when it was judged first; before that, only an open view shows it */
    uint32_t accepted, durable; /* when a call was answered that promises this */
    uint32_t refused;           /* when it was gone without having been accepted */
};

/* Shared by all processes of a story. */
struct tensor_oracle {
    uint32_t now;
    uint32_t spared; /* when an undo took removals back */
    unsigned n[TENSORS];
    struct tensor_edit edit[TENSORS][TENSOR_EDITS];
    unsigned writers[TENSORS]; /* handles that may write */
    unsigned flushes[TENSORS]; /* in progress */
    bool fortran[TENSORS];     /* it was saved in Fortran order */
    uint32_t shared[TENSORS];  /* when last more than one program may have changed it */
};

struct build;
struct world;
struct kernel;
struct program;
struct handle;

static inline bool is_tensor(unsigned name)
{
    return name >= KEYS && name < REGS;
}

/* An undo may have taken removals back that had no room. */
void tensors_spared(struct world *w);
/* Adds the tensors that a model has at first. */
void tensors_begin(struct world *w, struct build *b);
uint32_t tensors_now(struct world *w);
/* Checks the tensors of the file (disk), or of a view of the whole model that was read since then. */
void tensors_look(struct world *w, const struct gguf *g, const uint8_t *bytes, bool disk,
                  uint32_t since);
/* Everything that was accepted before `since` is in the file. dir: so was
 * every new tensor that was whole. */
void tensors_synced(struct world *w, uint32_t since, bool dir);

/* Performs a step on a tensor by name, or on a handle of one. */
void tensors_step(struct program *p, const struct step *s);
void tensors_list(struct program *p);
/* The handle has been released. */
void tensors_released(struct kernel *k, struct handle *h);

#endif

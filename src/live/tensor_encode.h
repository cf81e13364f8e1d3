/* SPDX-License-Identifier: MIT */
/*
 * Values of tensors to stored bytes, by all processors: new values over those that a tensor has, all
 * values of a tensor, or of one type to another.
 *
 * Threads: any, also at the same time.
 */
#ifndef LIVE_TENSOR_ENCODE_H
#define LIVE_TENSOR_ENCODE_H

#include "base/units.h"
#include "base/lock.h"
#include "live/logs.h"
#include "live/tensor_base.h"
#include "quant/encode.h"

/* Where values come from, by their number. */
struct tensor_values {
    /* As blocks of this type, in the byte order of the model. NULL: as the view shows them. */
    const struct quant_type *stored;
    enum quant_view view;
    /* Values [first, first + n), whole blocks. Called by several threads. 0, -errno. */
    int (*read)(void *arg, uint64_t first, void *dst, size_t n);
    void *arg;
};

struct tensor_encode {
    struct tensor_values from;
    struct tensor_shape shape; /* of the tensor that is made, as tensor_shape_bytes() takes it */
    bool big;
    const struct imatrix_row *imp; /* NULL: none */
    /* Blocks of the same type: one that shows the same values keeps its bytes. NULL: all are encoded,
     * as in a conversion. It may have fewer or more elements. */
    const struct tensor_base *old;
};

/*
 * Encode all values into the log: as an edit. 0; -EDOM, -ERANGE,
 * -EOPNOTSUPP (the line names the element by NumPy's index), -EINTR, -ENOSPC, -ENOMEM, -errno.
 */
struct tensor_edit;
int tensor_encode(const struct tensor_encode *t, struct logs *logs, const struct units_watch *watch,
                  struct tensor_edit *ret, struct err *e);

/*
 * The values of a tensor that exists, whatever its bytes are made of, as another type, as by
 * quant_convert(). Errors as above, and -EINVAL (its rows are not whole blocks of that type, or over
 * 4 dimensions), -EOPNOTSUPP (values that cannot be shown, or stored in that type). TENSOR_SAME: it
 * has that type.
 */
int tensor_convert(struct tensor_base *base, uint32_t type, struct logs *logs,
                   const struct units_watch *watch, struct tensor_edit *ret, struct err *e);

/* ---- for judges ---- */

/* Values of a unit of work: whole blocks of any type, and granules of a draft. */
#define TENSOR_STRETCH 65536

/*
 * What a row has for a tensor of this shape: 0; *arg: ret, or NULL where nothing is weighed. -EINVAL: they do
 * not fit.
 */
int tensor_importances(const struct imatrix_row *row, const struct quant_type *t, uint32_t n_dims,
                       const uint64_t *dims, struct quant_importances *ret,
                       const struct quant_importances **arg, struct err *e);
/* A line about what quant_write() or quant_convert() returned; fault->element counts from the
 * tensor's first. */
int tensor_fault(int code, const struct quant_type *t, const struct quant_fault *fault,
                 uint32_t n_dims, const uint64_t *dims, struct err *e);
/* The line of the first unit that failed. */
struct tensor_failure {
    struct lock lock;
    uint64_t unit;
    struct err e; /* code 0: none */
};
void tensor_failure_note(struct tensor_failure *f, uint64_t unit, const struct err *e);
/* units_run(), with a line, maybe that of a failure which is zero to begin with. */
int tensor_units(struct units *c, const struct units_watch *watch, struct tensor_failure *f,
                 struct err *e);

#endif

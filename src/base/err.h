/* SPDX-License-Identifier: MIT */
/*
 * Errors below the front end: a function returns 0 or -errno, and on cold paths (open, parse, edit)
 * also fills one line of context: what, where in the file, why. No final newline or full stop;
 * names from a file are passed through show() first, so that no control byte reaches a terminal.
 *
 *   -EBADMSG    the file is not a GGUF file that this program reads (malformed)
 *   -EFBIG      its header is over GGUF_MAX_HEADER (other limits: -EBADMSG)
 *   -ENODATA    the header is whole, tensor data is missing (an incomplete download)
 *   -EIO        the medium failed, or the file was cut while it was read
 *   -ENOMEM     no memory
 * Edits: -EINVAL, -ERANGE, -EILSEQ, -EFBIG (text), -EPERM, -EMLINK, -ESTALE, -EOPNOTSUPP, -ENOSPC.
 */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <stddef.h>

struct err {
    int code; /* 0 or -errno */
    char msg[512];
    /* Bytes of msg that tell where, before ": " and the reason; 0 if it is not divided so. */
    unsigned where;
};

/* Fill e (which may be NULL) and return code, so that `return err_set(...)` fails with context. */
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Put "prefix: " before the line that e already holds. Returns e->code. */
int err_prefix(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * n bytes made safe to print: printable ASCII and valid UTF-8 outside the C1 controls as they are,
 * anything else as \xNN; cut with "..." where they do not fit in room (8 or more). What was made
 * safe stays as it is when it is shown again. Returns dst, NUL-terminated.
 */
const char *show_in(char *dst, size_t room, const void *bytes, size_t n);

/* Room for any name that is part of a line (longer ones end in "..."). */
#define SHOW_MAX 160
const char *show(char dst[SHOW_MAX], const void *bytes, size_t n);
/* All of it, however long. */
struct buf;
void show_all(struct buf *out, const void *bytes, size_t n);

#endif

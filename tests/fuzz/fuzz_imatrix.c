/* SPDX-License-Identifier: MIT */
/* Treats arbitrary bytes as an importance matrix: an accepted matrix can be used, and a refusal has
 * a message. */
#include "fuzz.h"

#include <errno.h>
#include <float.h>
#include <string.h>

#include "model/imatrix.h"

static void check_row(const struct imatrix *m, const struct imatrix_row *r)
{
    const uint64_t dims[3] = {r->n, 2, 1}, other[3] = {r->n, 2, 2};
    struct quant_importances imp;
    struct err e = {0};
    FUZZ_CHECK(imatrix_find(m, r->name, r->len) == r && r->n > 0);
    for (uint64_t i = 0; i < r->n; i++)
        FUZZ_CHECK(r->of[i] >= 0 && r->of[i] <= FLT_MAX);
    FUZZ_CHECK(imatrix_fit(r, 3, dims, &imp, &e) == 0 && imp.columns == r->n);
    FUZZ_CHECK(imatrix_fit(r, 3, other, &imp, &e) == -EINVAL && !strchr(e.msg, '\n'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct source s = source_mem(data, size);
    struct imatrix *m = NULL;
    struct err e = {0};
    const int r = imatrix_parse(&s, "any\nfile", &m, &e);
    FUZZ_CHECK(r == (m ? 0 : -EBADMSG) || r == -ENODATA);
    FUZZ_CHECK(m ? m->n > 0 && m->path.len > 0 : e.code == r && e.msg[0] && !strchr(e.msg, '\n'));
    for (size_t i = 0; m && i < m->n; i++)
        check_row(m, &m->row[i]);
    imatrix_free(m);
    return 0;
}

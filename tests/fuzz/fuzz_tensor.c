/* SPDX-License-Identifier: MIT */
/*
 * Treats arbitrary bytes as text that a program writes to a tensor's `type` or `shape`, and as the
 * header of a NumPy array: accepted bytes can belong to a tensor, and none of their prefixes is
 * refused.
 */
#include "fuzz.h"

#include <errno.h>
#include <string.h>

#include "live/judge.h"

/* Longer inputs are only checked as headers. */
enum { LONG = 512 };

static void check_type(const char *text, size_t n)
{
    uint32_t id;
    struct err e = {0};
    int r = tensor_type_parse(text, n, &id, &e);
    FUZZ_CHECK(r == 0 || r == -EINVAL || r == -EOPNOTSUPP);
    FUZZ_CHECK(r == e.code);
    FUZZ_CHECK(r < 0 || (quant_find(id) && quant_find(id)->block_len > 0));
}

static void check_shape(const char *text, size_t n)
{
    struct tensor_shape s = {0};
    struct err e = {0};
    uint64_t nbytes;
    int r = tensor_shape_parse(text, n, &s, &e);
    FUZZ_CHECK((r == 0 || r == -EINVAL) && r == e.code);
    FUZZ_CHECK(r < 0 || tensor_shape_bytes(&s, &nbytes, &e) == 0); /* F32 */
}

/* The header must equal the one that this program writes for the same array. */
static void check_npy(const uint8_t *bytes, size_t n)
{
    struct npy npy = {0}, again;
    struct err e = {0};
    int r = npy_parse(bytes, n, &npy, &e);
    FUZZ_CHECK(r == 0 || r == NPY_MORE || (r == -EINVAL && e.code == r));
    if (r != 0)
        return;
    FUZZ_CHECK(npy.header <= n && (npy.width == 2 || npy.width == 4 || npy.width == 8));
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    (void)npy_header(&b,
                     npy.width == 8   ? "<f8"
                     : npy.width == 4 ? "<f4"
                                      : "<f2",
                     npy.n_dims, npy.dims);
    FUZZ_CHECK(buf_error(&b) == 0 && npy_parse(b.data, b.len, &again, NULL) == 0);
    FUZZ_CHECK(again.n_dims == npy.n_dims && again.n_elem == npy.n_elem);
    FUZZ_CHECK(memcmp(again.dims, npy.dims, npy.n_dims * sizeof(npy.dims[0])) == 0);
    for (size_t i = 0; i < npy.header; i++)
        FUZZ_CHECK(npy_parse(bytes, i, &again, NULL) == NPY_MORE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t none[1];
    const uint8_t *bytes = size ? data : none;
    if (size <= LONG) {
        check_type((const char *)bytes, size);
        check_shape((const char *)bytes, size);
    }
    check_npy(bytes, size);
    return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * Treats arbitrary bytes as everything small that ggufs reads: the name of a key, a file name, text
 * for a tensor's `type` and `shape`, the header of a NumPy array, an importance matrix, an Ollama
 * manifest, and the names in a Hugging Face cache. Names survive the round trip; what is accepted
 * can be used, and cannot refer to a file outside its store.
 */
#include "fuzz.h"

#include <errno.h>
#include <float.h>
#include <string.h>

#include "live/judge.h"
#include "model/imatrix.h"
#include "shelf/manifest.h"
#include "shelf/place.h"
#include "text/name.h"

/* Longer inputs are not texts for `type` and `shape`. */
enum { LONG = 512 };

static void check_name(const char *name, size_t n)
{
    char file[TREE_NAME_MAX + 1], back[TREE_NAME_MAX + 1];
    size_t len = name_encode(name, n, file), got;
    FUZZ_CHECK(len > 0 && len <= TREE_NAME_MAX && len == strlen(file));
    FUZZ_CHECK(!strchr(file, '/') && strcmp(file, ".") != 0 && strcmp(file, "..") != 0);
    int r = name_decode(file, back, &got);
    FUZZ_CHECK(r == 0 || (r == -ENAMETOOLONG && n > TREE_NAME_MAX / 3));
    FUZZ_CHECK(r != 0 || (got == n && memcmp(back, name, n) == 0));
}

static void check_file(const char *file)
{
    char name[TREE_NAME_MAX + 1], again[TREE_NAME_MAX + 1];
    size_t n;
    int r = name_decode(file, name, &n);
    FUZZ_CHECK(r == 0 || r == -ENOENT || r == -ENAMETOOLONG);
    if (r != 0)
        return;
    (void)name_encode(name, n, again);
    FUZZ_CHECK(strcmp(again, file) == 0);
}

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

static void check_manifest(const uint8_t *data, size_t size)
{
    struct manifest m;
    struct err e = {0};
    int r = manifest_parse(data, size, &m, &e);
    FUZZ_CHECK(r == e.code);
    if (r < 0)
        return;
    FUZZ_CHECK(m.n <= MANIFEST_LAYERS_MAX);
    for (size_t i = 0; i < m.n; i++) {
        const char *digest = m.layer[i].digest;
        FUZZ_CHECK(strspn(digest, "0123456789abcdef") == DIGEST_DIGITS && !digest[DIGEST_DIGITS]);
        FUZZ_CHECK(!strchr(m.layer[i].name, '/'));
    }
    manifest_free(&m);
}

static void check_hub(const uint8_t *data, size_t size, const char *folder)
{
    char revision[TREE_NAME_MAX + 1], org[TREE_NAME_MAX + 1], name[TREE_NAME_MAX + 1];
    if (revision_parse(data, size, revision))
        FUZZ_CHECK(revision[0] && revision[0] != '.' && !strchr(revision, '/'));
    if (repo_name(folder, org, name))
        FUZZ_CHECK(name[0] && name[0] != '.' && org[0] != '.' && !strstr(org, "--"));
}

static void check_row(const struct imatrix *m, const struct imatrix_row *r)
{
    const uint64_t dims[3] = {r->n, 2, 1}, other[3] = {r->n, 2, 2};
    struct quant_importances imp;
    struct err e = {0};
    const struct imatrix_row *found = imatrix_find(m, r->name, r->len);
    FUZZ_CHECK(found && found <= r && r->n > 0); /* of two with a name, the first counts */
    for (uint64_t i = 0; i < r->n; i++)
        FUZZ_CHECK(r->of[i] >= 0 && r->of[i] <= FLT_MAX);
    FUZZ_CHECK(imatrix_fit(r, 3, dims, &imp, &e) == 0 && imp.columns == r->n);
    FUZZ_CHECK(imatrix_fit(r, 3, other, &imp, &e) == -EINVAL && !strchr(e.msg, '\n'));
}

static void check_imatrix(const uint8_t *data, size_t size)
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
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = calloc(size + 1, 1);
    FUZZ_CHECK(text);
    if (size)
        memcpy(text, data, size);
    check_name(text, size);
    check_file(text);
    if (size <= LONG) {
        check_type(text, size);
        check_shape(text, size);
    }
    check_npy((const uint8_t *)text, size);
    check_manifest(data, size);
    check_hub(data, size, text);
    check_imatrix(data, size);
    free(text);
    return 0;
}

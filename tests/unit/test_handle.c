/* SPDX-License-Identifier: MIT */
/* mount/ops: which reads of a file a sequential reader causes, and when. */
#include "cu_main.h"

#include <errno.h>
#include <string.h>

#include "mount/ops.h"

enum { PIECE = 100, PIECES = 16 };

/* A file with some mapped pieces. */
struct shown_file {
    struct tree_file file;   /* must come first */
    uint64_t mapped, copied; /* pieces [mapped, copied) are mapped */
    unsigned reads, held;    /* reads so far; mappings not yet released */
    unsigned replies;
};

/* A request; the reply is compared with the file. */
struct fuse_req {
    struct shown_file *file;
    uint64_t off;
};

static uint8_t image[PIECES * PIECE];
static struct mapped mapping;
static struct shown_file *shown; /* the last file read from the mapping */

/* ---- linked with --wrap ---- */

bool __wrap_tree_ahead(const struct tree_file *f);
int __wrap_tree_read(struct tree_file *f, uint64_t off, size_t n, struct reply *r);
int __wrap_shelf_release(struct tree_file *f);
void __wrap_tree_reply_done(struct reply *r);
int __wrap_fuse_reply_buf(fuse_req_t req, const char *bytes, size_t n);
int __wrap_fuse_reply_err(fuse_req_t req, int err);

bool __wrap_tree_ahead(const struct tree_file *f)
{
    (void)f;
    return true;
}

int __wrap_tree_read(struct tree_file *f, uint64_t off, size_t n, struct reply *r)
{
    struct shown_file *x = (struct shown_file *)f;
    x->reads++;
    if (off >= sizeof(image))
        return 0;
    if (off / PIECE < x->mapped || off / PIECE >= x->copied) {
        reply_copy(r, image + off, n);
        return 0;
    }
    shown = x;
    x->held++;
    r->mapped = &mapping;
    r->bytes = image + off;
    r->len = n;
    return 0;
}

int __wrap_shelf_release(struct tree_file *f)
{
    CU_ASSERT_EQUAL(((struct shown_file *)f)->held, 0);
    return 0;
}

void __wrap_tree_reply_done(struct reply *r)
{
    if (r->mapped)
        shown->held--;
}

int __wrap_fuse_reply_buf(fuse_req_t req, const char *bytes, size_t n)
{
    CU_ASSERT_EQUAL_FATAL(n, PIECE);
    CU_ASSERT_EQUAL(memcmp(bytes, image + req->off, PIECE), 0);
    req->file->replies++;
    return 0;
}

int __wrap_fuse_reply_err(fuse_req_t req, int err)
{
    CU_ASSERT_EQUAL(err, 0);
    req->file->replies++;
    return 0;
}

/* ---- tests ---- */

/* Read the whole file sequentially through one handle. reads[i]: how often the file has been read
 * after piece i. */
static void reads_are(struct shown_file f, const unsigned reads[PIECES])
{
    for (size_t i = 0; i < sizeof(image); i++)
        image[i] = (uint8_t)(i % 251);
    struct handles all = {0};
    struct handle *h = handle_open(&all, &f.file, NULL, false);
    CU_ASSERT_PTR_NOT_NULL_FATAL(h);
    for (unsigned i = 0; i < PIECES; i++) {
        struct fuse_req req = {&f, (uint64_t)i * PIECE};
        handle_read(h, &req, req.off, PIECE);
        CU_ASSERT_EQUAL(f.replies, i + 1);
        CU_ASSERT_EQUAL(f.reads, reads[i]);
        CU_ASSERT_EQUAL(f.held, 0);
    }
    handle_close(&all, h);
}

/* From the second piece on, each piece is read once, one piece ahead. The last read is at the end
 * of the file. */
static void test_ahead(void)
{
    static const unsigned reads[] = {1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17};
    reads_are((struct shown_file){.mapped = PIECES}, reads);
}

/* Each piece is read once, and no piece is read ahead. */
static void test_mapped(void)
{
    static const unsigned reads[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    reads_are((struct shown_file){.copied = PIECES}, reads);
}

/* The first mapped piece is read twice; after the last one, reading ahead resumes. */
static void test_mapped_in_part(void)
{
    static const unsigned reads[] = {1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 16, 17, 18};
    reads_are((struct shown_file){.mapped = 4, .copied = 10}, reads);
}

static CU_TestInfo tests[] = {
    {"one piece is read ahead of a sequential reader", test_ahead},
    {"pieces in a mapping are not read ahead", test_mapped},
    {"reading ahead resumes after pieces in a mapping", test_mapped_in_part},
    CU_TEST_INFO_NULL,
};

CU_MAIN("handle", tests)

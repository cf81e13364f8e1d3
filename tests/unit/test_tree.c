/* SPDX-License-Identifier: MIT */
/* tree: directories, names, attributes and extended attributes; contents of files, read at every
 * offset and length; all without a mount. */
#include "cu_test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "check/summary.h"
#include "derive/stats.h"
#include "derive/task.h"
#include "live/judge.h"
#include "tree/files.h"
#include "tree_image.h"
#include "quant/f16.h"

enum { F32 = 0, F16 = 1, Q8_0 = 8, I8 = 24, I16 = 25, NO_SUCH = 9999 };

static const struct tree_options plain;

/* Make a name of 300 bytes. Its file name ends in the hash that test_name.c expects for 300 'a'. */
static void long_name(char name[301])
{
    memset(name, 'a', 300);
    name[300] = '\0';
}

static void put_model(struct build *b, bool big)
{
    char name[301];
    long_name(name);
    *b = build_of(3, big);
    build_text(b, "general.architecture=test|z.last:u32=42|a.list:array=i32[1,-2]|"
                  "a.empty:array=string[]|a/b=|.=dot");
    build_u32(b, name, 1);
    build_tensor(b, "w", F32, (uint64_t[]){4, 3}, 2, NULL, 48);
    build_tensor(b, "", F16, (uint64_t[]){5}, 1, NULL, 10);
    build_text(b, ">blk.0/q Q8_0 32x2|>new 9999 3 8|>q5 Q5_0 32|>scalar F32 -");
}

static struct tree_image model(void)
{
    struct build b;
    put_model(&b, false);
    return image_open(&b, &plain);
}

/* ---- listings ---- */

static void lists(const struct tree_image *m, const char *path, const char *want)
{
    CLEANUP(free_it) char *got = image_list(m, path);
    CU_ASSERT_STRING_EQUAL(got, want);
}

/* What is listed with which views; LONG: the name of 300 bytes. */
static const struct listing {
    unsigned views;
    bool big; /* values are not shown if their type has no agreed big-endian form */
    const char *path, *want;
} listings[] = {
    {0, false, "",
     "metadata\ntensors\nmetadata.json\ntensors.json\ninfo\nmodel.gguf\ncheck\ntensors.txt\n"
     "model.safetensors\nerrors\n"},
    {0, false, "metadata",
     "general.architecture\nz.last\na.list\na.empty\na%2Fb\n%2E\nLONG%~96f84d96b9cfcfc7\n"},
    {0, false, "tensors", "w\n%\nblk.0%2Fq\nnew\nq5\nscalar\n"},
    {0, false, "tensors/w", "type\nshape\nraw\nf32\nf32.npy\noffset\n"},
    {0, false, "tensors/q5", "type\nshape\nraw\nf32\nf32.npy\noffset\n"},
    {0, false, "tensors/new", "type\nshape\nraw\noffset\n"},
    {0, true, "tensors/w", "type\nshape\nraw\nf32\nf32.npy\noffset\n"},
    {0, true, "tensors/q5", "type\nshape\nraw\noffset\n"},
    {FILES_ALL, false, "tensors/w",
     "type\nshape\nraw\nf32\nf32.npy\noffset\nf16\nf16.npy\nbf16\nstats\nheatmap.png\nsha256\n"},
    {FILES_ALL, false, "tensors/new", "type\nshape\nraw\noffset\nsha256\n"},
    /* each byte of the model is in only one of the files */
    {FILES_RAW, false, "",
     "metadata\ntensors\nmetadata.json\ntensors.json\ninfo\ncheck\ntensors.txt\nerrors\n"},
    {FILES_RAW, false, "tensors/w", "type\nshape\nraw\n"},
};

TEST("directories are listed in file order, with the chosen views")
{
    char want[512], name[301];
    long_name(name);
    for (size_t i = 0; i < COUNT(listings); i++) {
        const struct listing *l = &listings[i];
        struct build b;
        put_model(&b, l->big);
        CLEANUP(image_close)
        struct tree_image m = image_open(&b, &(struct tree_options){.views = l->views});
        const size_t n = strcspn(l->want, "L");
        const char *rest = l->want + n;
        if (*rest == 'L')
            (void)snprintf(want, sizeof(want), "%.*s%.237s%s", (int)n, l->want, name, rest + 4);
        else
            (void)snprintf(want, sizeof(want), "%s", l->want);
        lists(&m, l->path, want);
        /* Views that are not listed can be opened by name, if there are values. */
        CU_ASSERT_NOT_EQUAL(image_node(&m, "model.gguf"), 0);
        CU_ASSERT_NOT_EQUAL(image_node(&m, "tensors/w/bf16"), 0);
        CU_ASSERT_EQUAL(image_node(&m, "tensors/new/bf16"), 0);
        CU_ASSERT_EQUAL(image_node(&m, "tensors/q5/f32") == 0, l->big);
    }
}

TEST("views that programs write have the same names and forms in both tables")
{
    for (size_t i = 0; i < TENSOR_VIEWS; i++) {
        const struct row *row = files_row(FILES_TENSOR, i);
        if (view_is_computed((enum tensor_view)i))
            continue;
        CU_ASSERT_STRING_EQUAL(row->name, tensor_views[i].name);
        CU_ASSERT_PTR_EQUAL(row->form, tensor_views[i].form);
    }
}

/* A listing can continue after any cookie. "." and ".." come first. */
TEST("a listing can continue after any entry")
{
    CLEANUP(image_close) struct tree_image m = model();
    uint64_t dir = image_node(&m, "tensors/new"), cookie = 0;
    static const char *const want[] = {".", "..", "type", "shape", "raw", "offset"};
    char name[TREE_NAME_MAX + 1];
    struct tree_entry e;
    for (int i = 0; i < 6; i++) {
        uint64_t again = cookie;
        CU_ASSERT_EQUAL_FATAL(image_readdir(&m, dir, &cookie, true, name, &e), 1);
        CU_ASSERT_STRING_EQUAL(name, want[i]);
        CU_ASSERT_EQUAL(image_readdir(&m, dir, &again, false, name, &e), 1);
        CU_ASSERT_STRING_EQUAL(name, want[i]);
        CU_ASSERT_EQUAL(again, cookie);
        if (i == 0)
            CU_ASSERT_EQUAL(e.node, dir);
        if (i == 1)
            CU_ASSERT_EQUAL(e.node, image_node(&m, "tensors"));
    }
    CU_ASSERT_EQUAL(image_readdir(&m, dir, &cookie, true, name, &e), 0);
    cookie = 1000000;
    CU_ASSERT_EQUAL(image_readdir(&m, image_node(&m, "metadata"), &cookie, true, name, &e), 0);
}

TEST("a model without keys and tensors is shown")
{
    struct build b = build_of(3, false);
    CLEANUP(image_close) struct tree_image m = image_open(&b, &plain);
    lists(&m, "tensors", "");
    lists(&m, "metadata", "");
    image_shows(&m, "metadata.json", "{\n}\n");
    image_shows(&m, "tensors.json", "[\n]\n");
}

/* ---- attributes ---- */

TEST("modes, owner and times come from the model or from options")
{
    static const struct {
        const char *path;
        mode_t mode;
    } modes[] = {{"", S_IFDIR | 0550},
                 {"metadata", S_IFDIR | 0750},
                 {"metadata/z.last", S_IFREG | 0640},
                 {"tensors", S_IFDIR | 0550},
                 {"tensors/w", S_IFDIR | 0550},
                 {"tensors/w/raw", S_IFREG | 0440},
                 {"model.gguf", S_IFREG | 0440}};
    for (int given = 0; given < 2; given++) {
        struct build b;
        struct stat file, st;
        put_model(&b, false);
        CLEANUP(image_close)
        struct tree_image m = image_open(&b, given ? &(struct tree_options){.set_uid = true,
                                                                            .set_gid = true,
                                                                            .set_umask = true,
                                                                            .uid = 1234,
                                                                            .gid = 0,
                                                                            .umask = 027}
                                                   : &plain);
        CU_ASSERT_EQUAL(fstat(m.fd, &file), 0);
        for (size_t i = 0; i < COUNT(modes); i++) {
            st = image_stat(&m, modes[i].path);
            CU_ASSERT_EQUAL(st.st_mode, modes[i].mode);
            CU_ASSERT_EQUAL(st.st_uid, given ? 1234 : file.st_uid);
            CU_ASSERT_EQUAL(st.st_gid, given ? 0 : file.st_gid);
            CU_ASSERT_EQUAL(st.st_mtim.tv_sec, file.st_mtim.tv_sec);
            CU_ASSERT_EQUAL(st.st_mtim.tv_nsec, file.st_mtim.tv_nsec);
        }
    }
}

/* ---- names that do not exist ---- */

TEST("missing names are not found")
{
    static const struct {
        const char *dir, *name;
        int want;
    } rows[] = {
        {"", "tensor", -ENOENT},
        {"", "", -ENOENT},
        {"metadata", "z.las", -ENOENT},
        {"metadata", "z.last%", -ENOENT},
        {"metadata", "%7A.last", -ENOENT},
        {"metadata", "a%2fb", -ENOENT},
        {"metadata", "%2E", 0},
        {"tensors", "%", 0},
        {"tensors", "metadata", -ENOENT},
        {"tensors/w", "none", -ENOENT},
        {"tensors/w/raw", "x", -ENOTDIR},
        {"metadata/z.last", "x", -ENOTDIR},
        {"info", "x", -ENOTDIR},
    };
    char name[301];
    struct tree_entry e;
    CLEANUP(image_close) struct tree_image m = model();
    for (size_t i = 0; i < COUNT(rows); i++)
        CU_ASSERT_EQUAL(tree_lookup(m.t, image_node(&m, rows[i].dir), rows[i].name, &e),
                        rows[i].want);
    const uint64_t keys = image_node(&m, "metadata");
    long_name(name);
    CU_ASSERT_EQUAL(tree_lookup(m.t, keys, name, &e), -ENAMETOOLONG);
    name[255] = '\0';
    CU_ASSERT_EQUAL(tree_lookup(m.t, keys, name, &e), -ENOENT);
    memcpy(name + 237, "%~96f84d96b9cfcfc7", 19);
    CU_ASSERT_EQUAL(tree_lookup(m.t, keys, name, &e), 0);
    name[254]++; /* another hash */
    CU_ASSERT_EQUAL(tree_lookup(m.t, keys, name, &e), -ENOENT);
    name[254]--;
    name[0] = 'b'; /* the hash is right, the beginning is wrong */
    CU_ASSERT_EQUAL(tree_lookup(m.t, keys, name, &e), -ENOENT);
}

TEST("node numbers that were never issued are refused")
{
    const uint64_t nodes[] = {0,
                              ino_make(NODE_ROOT, 1, 0),
                              ino_row(2),
                              ino_make(NODE_TENSOR, UINT32_MAX, 0),
                              ino_key(UINT32_MAX),
                              UINT64_MAX,
                              ino_make(NODE_TENSOR, 6, 0),
                              ino_key(7),
                              ino_make(NODE_TENSOR_FILE, 0, 20)};
    CLEANUP(image_close) struct tree_image m = model();
    struct tree_entry e;
    struct tree_file *f = NULL;
    CLEANUP(buf_free) struct buf out = BUF_INIT;
    uint64_t cookie = 0;
    char name[TREE_NAME_MAX + 1];
    for (size_t i = 0; i < COUNT(nodes); i++) {
        CU_ASSERT_EQUAL(tree_getattr(m.t, nodes[i], NULL, &e), -ENOENT);
        CU_ASSERT_EQUAL(tree_open_file(m.t, nodes[i], O_RDONLY, &f), -ENOENT);
        CU_ASSERT_TRUE(image_readdir(&m, nodes[i], &cookie, true, name, &e) < 0);
        CU_ASSERT_EQUAL(tree_listxattr(m.t, nodes[i], &out), -ENOENT);
    }
    /* That state no longer exists, so the kernel must look up the name again. */
    CU_ASSERT_EQUAL(tree_getattr(m.t, ino_make(NODE_WHOLE, 1, 2), NULL, &e), -ESTALE);
    CU_ASSERT_EQUAL(tree_open_file(m.t, ino_make(NODE_WHOLE, 99, 5), O_RDONLY, &f), -ESTALE);
    CU_ASSERT_PTR_NULL(f);
}

/* ---- extended attributes ---- */

static void xattr_is(const struct tree_image *m, const char *path, const char *name,
                     const char *want)
{
    CLEANUP(buf_free) struct buf out = BUF_INIT;
    int r = tree_getxattr(m->t, image_node(m, path), name, &out);
    size_t n = want ? strlen(want) : 0;
    CU_ASSERT_EQUAL(r, want ? 0 : -ENODATA);
    CU_ASSERT_EQUAL(out.len, n);
    CU_ASSERT_TRUE(n == 0 || memcmp(out.data, want, n) == 0);
}

static void xattrs_are(const struct tree_image *m, const char *path, const char *want, size_t n)
{
    CLEANUP(buf_free) struct buf out = BUF_INIT;
    CU_ASSERT_EQUAL(tree_listxattr(m->t, image_node(m, path), &out), 0);
    CU_ASSERT_TRUE(out.len == n && (n == 0 || memcmp(out.data, want, n) == 0));
}

TEST("keys and tensors have extended attributes")
{
    static const char key[] = "user.gguf.name\0user.gguf.type";
    static const char tensor[] =
        "user.gguf.name\0user.gguf.type\0user.gguf.shape\0user.gguf.offset";
    char offset[32];
    CLEANUP(image_close) struct tree_image m = model();
    xattrs_are(&m, "metadata/z.last", key, sizeof(key));
    xattrs_are(&m, "tensors/w", tensor, sizeof(tensor));
    xattrs_are(&m, "tensors/w/raw", NULL, 0);
    xattrs_are(&m, "info", NULL, 0);
    xattrs_are(&m, "", NULL, 0);
    xattr_is(&m, "metadata/z.last", "user.gguf.type", "u32");
    xattr_is(&m, "metadata/a.list", "user.gguf.type", "array[i32]");
    xattr_is(&m, "metadata/a%2Fb", "user.gguf.type", "string");
    xattr_is(&m, "metadata/a%2Fb", "user.gguf.name", "a/b");
    xattr_is(&m, "metadata/%2E", "user.gguf.name", ".");
    xattr_is(&m, "metadata/z.last", "user.gguf.shape", NULL);
    xattr_is(&m, "metadata/z.last", "user.other", NULL);
    xattr_is(&m, "tensors/w", "user.gguf.type", "F32");
    xattr_is(&m, "tensors/w", "user.gguf.shape", "3 4");
    xattr_is(&m, "tensors/scalar", "user.gguf.shape", "");
    xattr_is(&m, "tensors/new", "user.gguf.type", "unknown:9999");
    xattr_is(&m, "tensors/blk.0%2Fq", "user.gguf.name", "blk.0/q");
    xattr_is(&m, "tensors/w/raw", "user.gguf.type", NULL);
    CU_ASSERT_TRUE(image_bytes(&m, "tensors/w/offset", 0, sizeof(offset) - 1, offset) > 0);
    offset[strcspn(offset, "\n")] = '\0';
    xattr_is(&m, "tensors/w", "user.gguf.offset", offset);
}

/* ---- opening ---- */

TEST("files that are not models are not opened")
{
    struct tree *t = NULL;
    struct tree_image m;
    struct err e = {0};
    char path[] = "/tmp/ggufs-test-XXXXXX", pipe[64];
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(path));
    (void)snprintf(pipe, sizeof(pipe), "%s/pipe", path);
    CU_ASSERT_EQUAL(mkfifo(pipe, 0600), 0);
    CU_ASSERT_EQUAL(tree_open("/nowhere/at/all", &plain, &t, &e), -ENOENT);
    CU_ASSERT_EQUAL(tree_open(path, &plain, &t, &e), -EISDIR);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "is a directory, not a GGUF file: name a model in it"));
    CU_ASSERT_EQUAL(tree_open(pipe, &plain, &t, &e), -EINVAL);
    CU_ASSERT_EQUAL(tree_open("hf://org/name", &plain, &t, &e), -ENOENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "is a URL, not a file: download the model first"));
    CU_ASSERT_EQUAL(image_try("", 0, &plain, &m, &e), -EBADMSG);
    CU_ASSERT_EQUAL(image_try("not a model", 12, &plain, &m, &e), -EBADMSG);
    CU_ASSERT_STRING_EQUAL(e.msg, "magic at byte 0: 'not ' is not 'GGUF'");
    CU_ASSERT_PTR_NULL(t);
    (void)unlink(pipe);
    (void)rmdir(path);
}

TEST("statfs is that of the disk")
{
    CLEANUP(image_close) struct tree_image m = model();
    struct statvfs st = {0};
    CU_ASSERT_EQUAL(tree_statfs(m.t, &st), 0);
    CU_ASSERT_EQUAL(st.f_namemax, TREE_NAME_MAX);
    CU_ASSERT_TRUE(st.f_blocks > 0);
    CU_ASSERT_EQUAL(tree_path(m.t)[0], '/');
}

/* ==== contents of files ==== */

/* ---- stored content ---- */

static void put_f32(uint8_t *dst, float v, bool big)
{
    put_u32(dst, f32_bits(v), big);
}

/* Write n floats: 0, 0.5, 1, ... */
static void put_floats(uint8_t *dst, int n, bool big)
{
    for (int i = 0; i < n; i++)
        put_f32(dst + 4 * i, (float)i / 2, big);
}

/* Write two blocks of Q8_0, each with a half-precision scale (1/2, then 1/4) and 32 signed
 * bytes. */
static void put_q8(uint8_t *dst, bool big)
{
    for (int block = 0; block < 2; block++) {
        put_u16(dst + 34 * block, block ? 0x3400 : 0x3800, big);
        for (int i = 0; i < 32; i++)
            dst[34 * block + 2 + i] = (uint8_t)(i * 8 - 128 + block);
    }
}

static void q8_values(uint8_t *dst)
{
    for (int i = 0; i < 64; i++) {
        int q = i % 32 * 8 - 128 + i / 32;
        put_f32(dst + 4 * i, (float)q * (i < 32 ? 0.5f : 0.25f), false);
    }
}

static struct tree_image contents(bool big)
{
    uint8_t w[48], q[68], words[6];
    put_floats(w, 12, big);
    for (uint16_t i = 0; i < 3; i++)
        put_u16(words + 2 * i, (uint16_t)(0x0102 * (i + 1)), big);
    put_q8(q, big);
    struct build b = build_of(3, big);
    build_text(&b, "general.architecture=test|general.name=two\nlines\n");
    build_f32(&b, "a.f", 0.1f);
    build_text(&b, "a.list:array=string[x\",]|a.empty:array=u8[]");
    build_tensor(&b, "w", F32, (uint64_t[]){4, 3}, 2, w, 48);
    build_tensor(&b, "q", Q8_0, (uint64_t[]){64}, 1, q, 68);
    build_tensor(&b, "s", F32, NULL, 0, w + 4, 4);
    build_tensor(&b, "none", F32, (uint64_t[]){0, 7}, 2, NULL, 0);
    build_tensor(&b, "words", I16, (uint64_t[]){3}, 1, words, 6);
    build_tensor(&b, "new", NO_SUCH, (uint64_t[]){3}, 1, NULL, 8);
    return image_open(&b, &plain);
}

/* ---- reads at every offset and length ---- */

static bool one_read(const struct tree_image *m, const char *path, size_t off, size_t n,
                     const uint8_t *want, size_t size)
{
    uint8_t got[4096];
    size_t left = off < size ? size - off : 0, expect = n < left ? n : left;
    memset(got, 0xa5, sizeof(got));
    ssize_t r = image_bytes(m, path, off, n, got);
    return r == (ssize_t)expect && memcmp(got, want + (expect ? off : 0), expect) == 0;
}

/* Check that the file at `path` consists of these bytes: read ranges of various lengths at every
 * offset, even beyond the end of the file. */
static void contains(const struct tree_image *m, const char *path, const void *want, size_t size)
{
    static const size_t lengths[] = {0, 1, 2, 3, 4, 5, 7, 8, 63, 64, 65, 127, 128, 129, 200};
    size_t wrong = 0;
    CU_ASSERT_EQUAL((size_t)image_stat(m, path).st_size, size);
    CU_ASSERT_EQUAL(image_stat(m, path).st_blocks, (blkcnt_t)((size + 511) / 512));
    for (size_t off = 0; off <= size + 1; off++) {
        for (size_t i = 0; i < COUNT(lengths); i++)
            wrong += !one_read(m, path, off, lengths[i], want, size);
        wrong += !one_read(m, path, off, size + 2, want, size);
    }
    wrong += !one_read(m, path, SIZE_MAX / 2, 10, want, size);
    if (wrong)
        (void)printf("\n  %s: %zu reads are wrong", path, wrong);
    CU_ASSERT_EQUAL(wrong, 0);
}

static void content_is(const struct tree_image *m, const char *path, const char *want)
{
    contains(m, path, want, strlen(want));
}

/* Check a header of 128 bytes in NumPy's format, followed by values. */
static void npy_is(const struct tree_image *m, const char *path, const char *shape,
                   const uint8_t *values, size_t n)
{
    uint8_t want[128 + 256];
    char dict[128];
    int len = snprintf(dict, sizeof(dict),
                       "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }", shape);
    memset(want, ' ', 128);
    memcpy(want, "\x93NUMPY\x01\x00\x76\x00", 10);
    memcpy(want + 10, dict, (size_t)len);
    want[127] = '\n';
    memcpy(want + 128, values, n);
    contains(m, path, want, 128 + n);
}

static void check_tensors(const struct tree_image *m, bool big)
{
    uint8_t stored[68], values[256];
    put_floats(stored, 12, big);
    contains(m, "tensors/w/raw", stored, 48);
    put_floats(values, 12, false);
    contains(m, "tensors/w/f32", values, 48);
    npy_is(m, "tensors/w/f32.npy", "3, 4", values, 48);
    npy_is(m, "tensors/s/f32.npy", "", values + 4, 4);
    npy_is(m, "tensors/none/f32.npy", "7, 0", values, 0);
    put_q8(stored, big);
    contains(m, "tensors/q/raw", stored, 68);
    q8_values(values);
    contains(m, "tensors/q/f32", values, 256);
    npy_is(m, "tensors/q/f32.npy", "64,", values, 256);
    /* 0, 0.5, 1, ... 5.5 are exact in both formats. */
    static const uint16_t half[] = {0x0000, 0x3800, 0x3c00, 0x3e00, 0x4000, 0x4100,
                                    0x4200, 0x4300, 0x4400, 0x4480, 0x4500, 0x4580};
    static const uint16_t brain[] = {0x0000, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4020,
                                     0x4040, 0x4060, 0x4080, 0x4090, 0x40a0, 0x40b0};
    for (int i = 0; i < 12; i++)
        put_u16(values + 2 * i, half[i], false);
    contains(m, "tensors/w/f16", values, 24);
    for (int i = 0; i < 12; i++)
        put_u16(values + 2 * i, brain[i], false);
    contains(m, "tensors/w/bf16", values, 24);
    content_is(m, "tensors/none/raw", "");
    content_is(m, "tensors/none/f32", "");
}

TEST("tensor files can be read from every offset in both byte orders")
{
    char *views[2];
    size_t n[2];
    for (int big = 0; big < 2; big++) {
        CLEANUP(image_close) struct tree_image m = contents(big);
        views[big] = image_text(&m, "model.f16.safetensors", &n[big]);
        check_tensors(&m, big);
        contains(&m, "model.gguf", m.image, m.size);
        content_is(&m, "tensors/w/shape", "3 4\n");
        content_is(&m, "tensors/w/type", "F32\n");
        content_is(&m, "tensors/s/shape", "\n");
        content_is(&m, "tensors/q/shape", "64\n");
        content_is(&m, "tensors/q/type", "Q8_0\n");
        content_is(&m, "tensors/new/type", "unknown:9999\n");
        content_is(&m, "tensors/new/shape", "3\n");
    }
    CU_ASSERT_TRUE(n[0] > 200 && n[0] == n[1] && memcmp(views[0], views[1], n[0]) == 0);
    free(views[0]);
    free(views[1]);
}

/* A long name shifts only its own line. Bytes of names are escaped unless they are printable
 * UTF-8. */
TEST("tensors.txt shows the tensors")
{
    char want[2048], name[TABLE_NAME_MOST + 2];
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    struct build b = build_of(3, false);
    build_tensor(&b, "a\n", F32, (uint64_t[]){3, 1}, 2, NULL, 12);
    build_tensor(&b, "\xc3\xa4\xff", NO_SUCH, NULL, 0, NULL, 8);
    build_tensor(&b, name, Q8_0, (uint64_t[]){32}, 1, NULL, 34);
    CLEANUP(image_close) struct tree_image m = image_open(&b, &plain);
    (void)snprintf(want, sizeof(want),
                   "NAME   TYPE          SHAPE  BYTES   SHARE\n"
                   "a\\x0a  F32           1 3       12  15.38%%\n"
                   "\xc3\xa4\\xff  unknown:9999            32  41.03%%\n"
                   "%s  Q8_0          32        34  43.59%%\n"
                   "\n"
                   "ROLE      TENSORS           BYTES   SHARE\n"
                   "a\\x0a     1 x F32              12  15.38%%\n"
                   "\xc3\xa4\\xff     1 x unknown:9999     32  41.03%%\n"
                   "(others)  1 x Q8_0             34  43.59%%\n",
                   name);
    content_is(&m, "tensors.txt", want);
    CU_ASSERT_EQUAL((size_t)image_stat(&m, "tensors.txt").st_size, strlen(want));
}

/* Compare `info`, except for the file's name, which is random. */
static void info_is(const struct tree_image *m, const char *before, const char *after)
{
    size_t n;
    CLEANUP(free_it) char *got = image_text(m, "info", &n);
    char *file = strstr(got, "file:"), *format = strstr(got, "format:");
    CU_ASSERT_TRUE_FATAL(file && format && file < format);
    char *mount = strstr(got, "mount:");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mount);
    CU_ASSERT_STRING_EQUAL(
        mount, "mount:           read-write; the model's file was changed outside the mount\n");
    *mount = '\0';
    CU_ASSERT_STRING_EQUAL(format, after);
    *file = '\0';
    CU_ASSERT_STRING_EQUAL(got, before);
    CU_ASSERT_EQUAL((size_t)image_stat(m, "info").st_size, n);
}

TEST("info is safe for a terminal")
{
    struct build b = build_of(2, false);
    build_text(&b, "general.name=evil\x1b[31m|>t F32 3x1");
    CLEANUP(image_close) struct tree_image m = image_open(&b, &plain);
    info_is(&m,
            "name:            evil\\x1b[31m\ntype:            model\nparameters:   "
            "   3\n"
            "size:            160 bytes\n"
            "bits per weight: 32.00\ntypes:           F32  1 tensor  12 bytes  100.0%\n"
            "chat template:   no\n",
            "format:          GGUF version 2, little-endian\nkeys:            1\n"
            "tensors:         1\nalignment:       32\ndata offset:     128\n");
}

TEST("info describes the model")
{
    struct build b = build_of(3, false);
    build_text(&b, "general.name=A model|general.architecture=llama|general.license=mit|"
                   "llama.context_length:u32=4096|llama.block_count:u32=32|"
                   "llama.embedding_length:u32=512|llama.attention.head_count:u32=8|"
                   "llama.attention.head_count_kv:u32=2|tokenizer.ggml.model=gpt2|"
                   "tokenizer.ggml.tokens:array=string[<s>,\x1b]|tokenizer.ggml.bos_token_id:u32=0|"
                   "tokenizer.ggml.eos_token_id:u32=1|tokenizer.ggml.padding_token_id:u32=7|"
                   "tokenizer.chat_template={{ x }}|general.file_type:u32=15|"
                   "general.author=A. Uthor|general.base_model.0.name=First|"
                   "general.base_model.1.name=Second|general.url=https://example.org/m|"
                   "llama.feed_forward_length:u32=1376|llama.rope.scaling.type=yarn|"
                   "llama.rope.dimension_count:u32=64|llama.expert_count:u32=8|"
                   "llama.expert_used_count:u32=2|general.type=adapter|adapter.type=lora|"
                   "quantize.imatrix.file=im.gguf|quantize.imatrix.chunks_count:i32=125|"
                   "general.sampling.top_k:i32=20|>t F32 24|>q Q8_0 32|ggufs.reserve=  ");
    build_f32(&b, "llama.rope.freq_base", 500000);
    build_f32(&b, "llama.rope.scaling.factor", 4);
    build_f32(&b, "adapter.lora.alpha", 16);
    build_f32(&b, "general.sampling.temp", 0.5f);
    CLEANUP(image_close) struct tree_image m = image_open(&b, &plain);
    info_is(&m,
            "name:            A model\narchitecture:    llama\ntype:            adapter, lora, "
            "alpha 16\nparameters:      56\n"
            "size:            1.7 KiB (1696 bytes)\n"
            "bits per weight: 18.57\nfile type:       Q4_K_M (mostly Q4_K, medium)\n"
            "types:           F32   1 tensor  96 bytes  73.8%\n"
            "                 Q8_0  1 tensor  34 bytes  26.2%\n"
            "quantised:       importances im.gguf, chunks 125\n"
            "context length:  4096\nlayers:          32\nembedding:       512\n"
            "feed-forward:    1376\nheads:           8 (2 KV)\n"
            "rope:            base 500000, scaling yarn, factor 4, dimensions 64\n"
            "experts:         8, 2 used\n"
            "kv cache:        16.0 KiB per token, 64.0 MiB at full context (F16)\n"
            "vocabulary:      2 tokens, tokenizer gpt2\n"
            "special tokens:  bos <s> (0), eos \\x1b (1), pad (7)\nchat template:   yes\n"
            "sampling:        temp 0.5, top_k 20\n"
            "license:         mit\nauthor:          A. Uthor\n"
            "base model:      First, Second\nsource:          https://example.org/m\n",
            "format:          GGUF version 3, little-endian\nkeys:            33\n"
            "tensors:         2\nalignment:       32\ndata offset:     1536\n"
            "reserve:         2 bytes\n");
}

/* The findings, and their size for stat, which are rendered again for each reader. */
TEST("check reports faults")
{
    char text[4096];
    struct build b = build_of(3, false);
    build_text(&b, "general.architecture=test|>output.weight F32 3");
    b.pad_byte = 1;
    CLEANUP(image_close) struct tree_image m = image_open(&b, &plain);
    struct stat st = image_stat(&m, "check");
    CU_ASSERT_EQUAL(st.st_blocks, (st.st_size + 511) / 512);
    ssize_t n = image_bytes(&m, "check", 0, sizeof(text) - 1, text);
    CU_ASSERT_TRUE_FATAL(n > 0);
    CU_ASSERT_EQUAL(n, st.st_size);
    text[n] = '\0';
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "warning: the padding is not all zero"));
    CU_ASSERT_PTR_NULL(strstr(text, "error:"));
    CU_ASSERT_EQUAL(text[n - 1], '\n');
    struct tree_file *f = NULL;
    CU_ASSERT_EQUAL_FATAL(tree_open_file(m.t, image_node(&m, "check"), O_RDONLY, &f), 0);
    CU_ASSERT_EQUAL(tree_read(f, 0, 1, &(struct reply){0}), 0);
    tree_release(f);
}

/* ---- missing data ---- */

static const struct tree_options partial = {.partial = true};

enum { PAGE = 4096, BLOCKS = 600, Q8_BYTES = BLOCKS * 34 };

/* Make two tensors of several pages: "a" is plain, "q" has blocks. Each ends in a page of its
 * own. */
static struct tree_image large(const struct tree_options *o)
{
    struct build b = build_of(3, false);
    build_str(&b, "general.name", "large");
    build_tensor(&b, "a", F32, (uint64_t[]){3 * PAGE}, 1, NULL, 12 * PAGE);
    build_tensor(&b, "q", Q8_0, (uint64_t[]){32 * BLOCKS}, 1, NULL, Q8_BYTES);
    return image_open(&b, o);
}

static size_t offset_of(const struct tree_image *m, const char *path)
{
    size_t n;
    char *text = image_text(m, path, &n);
    size_t off = strtoul(text, NULL, 10);
    free(text);
    return off;
}

/* The header, text files and listings are readable without the data. */
static void header_works(const struct tree_image *m)
{
    uint8_t byte[8];
    image_shows(m, "metadata/general.name", "large\n");
    image_shows(m, "tensors/q/type", "Q8_0\n");
    CU_ASSERT_EQUAL(image_bytes(m, "model.gguf", 0, 8, byte), 8);
    CU_ASSERT_EQUAL(memcmp(byte, "GGUF\3\0\0\0", 8), 0);
    CU_ASSERT_EQUAL(image_stat(m, "tensors/q/raw").st_size, Q8_BYTES);
    CU_ASSERT_EQUAL(image_stat(m, "tensors/q/f32").st_size, BLOCKS * 32 * 4);
    CU_ASSERT_EQUAL(image_stat(m, "model.gguf").st_size, (off_t)m->size);
}

/* If the file ends `kept` bytes into the data of q, only bytes before that can be read. */
static void cut_in_q(const struct tree_image *m, size_t kept)
{
    uint8_t byte[256];
    size_t q = offset_of(m, "tensors/q/offset"), whole = kept / 34;
    CU_ASSERT_EQUAL(image_bytes(m, "tensors/a/raw", 0, 256, byte), 256);
    CU_ASSERT_EQUAL(memcmp(byte, m->image + offset_of(m, "tensors/a/offset"), 256), 0);
    CU_ASSERT_EQUAL(image_bytes(m, "tensors/q/raw", kept - 16, 16, byte), 16);
    CU_ASSERT_EQUAL(memcmp(byte, m->image + q + kept - 16, 16), 0);
    CU_ASSERT_EQUAL(image_bytes(m, "tensors/q/raw", kept - 16, 17, byte), -EIO);
    CU_ASSERT_EQUAL(image_bytes(m, "tensors/q/raw", kept, 1, byte), -EIO);
    CU_ASSERT_EQUAL(image_bytes(m, "tensors/q/raw", Q8_BYTES - 1, 1, byte), -EIO);
    CU_ASSERT_EQUAL(image_bytes(m, "tensors/q/f32", 128 * whole - 4, 4, byte), 4);
    CU_ASSERT_EQUAL(image_bytes(m, "tensors/q/f32", 128 * whole, 4, byte), -EIO);
    CU_ASSERT_EQUAL(image_bytes(m, "tensors/q/f32", 128 * BLOCKS - 4, 4, byte), -EIO);
    CU_ASSERT_EQUAL(image_bytes(m, "tensors/q/f32.npy", 0, 128, byte), 128);
    CU_ASSERT_EQUAL(image_bytes(m, "tensors/q/f32.npy", 128 * BLOCKS, 256, byte), -EIO);
    /* A read at the end of a view returns no bytes. */
    CU_ASSERT_EQUAL(image_bytes(m, "tensors/q/f32", 128 * BLOCKS, 4, byte), 0);
    CU_ASSERT_EQUAL(image_bytes(m, "model.gguf", q, 256, byte), 256);
    CU_ASSERT_EQUAL(image_bytes(m, "model.gguf", q + kept, 1, byte), -EIO);
    header_works(m);
}

/* The file is truncated while the tree is open: either inside a page, whose rest then reads as
 * zeros, or by whole pages (SIGBUS). */
TEST("a file truncated while the tree is open gives EIO, and other reads succeed")
{
    static const size_t kept[] = {4 * PAGE + 100, 4 * PAGE, 1000};
    CLEANUP(image_close) struct tree_image m = large(&plain);
    size_t q = offset_of(&m, "tensors/q/offset");
    for (int i = 0; i < 3; i++) {
        CU_ASSERT_EQUAL(ftruncate(m.fd, (off_t)(q + kept[i])), 0);
        cut_in_q(&m, kept[i]);
    }
    CU_ASSERT_EQUAL(ftruncate(m.fd, 0), 0);
    header_works(&m);
    /* Once the file has its bytes back, reads no longer return the error. */
    CU_ASSERT_EQUAL(pwrite(m.fd, m.image, m.size, 0), (ssize_t)m.size);
    image_shows(&m, "tensors/q/type", "Q8_0\n");
    uint8_t byte[64];
    CU_ASSERT_EQUAL(image_bytes(&m, "tensors/q/f32", 128 * BLOCKS - 64, 64, byte), 64);
}

TEST("an incomplete download is shown only on request")
{
    struct tree_image whole = large(&plain), m;
    size_t kept = 2 * PAGE + 10, n = offset_of(&whole, "tensors/q/offset") + kept;
    struct err e = {0};
    CU_ASSERT_EQUAL(image_try(whole.image, n, &plain, &m, &e), -ENODATA);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "bytes are missing"));
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "-o partial"));
    CU_ASSERT_EQUAL_FATAL(image_try(whole.image, n, &partial, &m, &e), 0);
    m.image = malloc(whole.size);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m.image);
    memcpy(m.image, whole.image, whole.size);
    m.size = (size_t)image_stat(&m, "model.gguf").st_size;
    CU_ASSERT_EQUAL(m.size, offset_of(&whole, "tensors/q/offset") + Q8_BYTES);
    cut_in_q(&m, kept);
    image_close(&m);
    image_close(&whole);
}

/* With the maximum number of elements, views have the largest sizes that can be shown. */
TEST("a tensor with the maximum number of values shows its sizes")
{
    CLEANUP(image_close) struct tree_image m;
    struct err e = {0};
    size_t n;
    struct build b = build_of(3, false);
    build_tensor(&b, "h", I8, (uint64_t[]){GGUF_MAX_ELEMENTS}, 1, NULL, 0);
    CLEANUP(free_it) uint8_t *image = build_finish(&b, &n);
    CU_ASSERT_EQUAL(image_try(image, n, &plain, &m, &e), -ENODATA);
    CU_ASSERT_EQUAL_FATAL(image_try(image, n, &partial, &m, &e), 0);
    CU_ASSERT_EQUAL(image_stat(&m, "tensors/h/raw").st_size, 1ll << 60);
    CU_ASSERT_EQUAL(image_stat(&m, "tensors/h/f32").st_size, 1ll << 62);
    CU_ASSERT_EQUAL(image_stat(&m, "tensors/h/f32.npy").st_size, (1ll << 62) + 128);
    CU_ASSERT_EQUAL(image_bytes(&m, "tensors/h/raw", 1ull << 59, 1, &e), -EIO);
    CU_ASSERT_EQUAL(image_bytes(&m, "tensors/h/f32", (1ull << 62) - 1, 1, &e), -EIO);
    CU_ASSERT_EQUAL(image_bytes(&m, "tensors/h/f32", 1ull << 62, 1, &e), 0);
}

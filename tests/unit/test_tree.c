/* SPDX-License-Identifier: MIT */
/* tree: directories, names, attributes and extended attributes, without a mount. */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "derive/task.h"
#include "tree_image.h"

enum { F32 = 0, F16 = 1, Q5_0 = 6, Q8_0 = 8, NO_SUCH = 9999 };

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
    build_init(b, 3, big);
    build_str(b, "general.architecture", "test");
    build_u32(b, "z.last", 42);
    build_array(b, "a.list", GGUF_I32, 2);
    build_item_num(b, GGUF_I32, 1);
    build_item_num(b, GGUF_I32, (uint32_t)-2);
    build_array(b, "a.empty", GGUF_STRING, 0);
    build_str(b, "a/b", "");
    build_str(b, ".", "dot");
    build_u32(b, name, 1);
    build_tensor(b, "w", F32, (uint64_t[]){4, 3}, 2, NULL, 48);
    build_tensor(b, "", F16, (uint64_t[]){5}, 1, NULL, 10);
    build_tensor(b, "blk.0/q", Q8_0, (uint64_t[]){32, 2}, 2, NULL, 68);
    build_tensor(b, "new", NO_SUCH, (uint64_t[]){3}, 1, NULL, 8);
    build_tensor(b, "q5", Q5_0, (uint64_t[]){32}, 1, NULL, 22);
    build_tensor(b, "scalar", F32, NULL, 0, NULL, 4);
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
    char *got = image_list(m, path);
    CU_ASSERT_STRING_EQUAL(got, want);
    free(got);
}

static void test_listings(void)
{
    char want[512], name[301];
    struct tree_image m = model();
    lists(&m, "",
          "metadata\ntensors\nmetadata.json\ntensors.json\ninfo\nmodel.gguf\ncheck\ntensors."
          "txt\nmodel.safetensors\nerrors\n");
    lists(&m, "tensors", "w\n%\nblk.0%2Fq\nnew\nq5\nscalar\n");
    lists(&m, "tensors/w", "type\nshape\nraw\nf32\nf32.npy\noffset\n");
    lists(&m, "tensors/q5", "type\nshape\nraw\nf32\nf32.npy\noffset\n");
    lists(&m, "tensors/new", "type\nshape\nraw\noffset\n");
    long_name(name);
    (void)snprintf(want, sizeof(want),
                   "general.architecture\nz.last\na.list\na.empty\na%%2Fb\n%%2E\n"
                   "%.237s%%~28a2afac267402a1\n",
                   name);
    lists(&m, "metadata", want);
    image_close(&m);
}

static void test_hidden(void)
{
    struct build b;
    char want[512];
    struct tree_image m = model();
    CU_ASSERT_NOT_EQUAL(image_node(&m, "tensors/w/bf16"), 0);
    CU_ASSERT_EQUAL(image_node(&m, "tensors/new/bf16"), 0);
    image_close(&m);
    put_model(&b, false);
    m = image_open(&b, &(struct tree_options){.views = FILES_ALL});
    const char *picture = picture_library() ? "heatmap.png\n" : "";
    const char *hash = task_hash_library() ? "sha256\n" : "";
    (void)snprintf(want, sizeof(want),
                   "type\nshape\nraw\nf32\nf32.npy\noffset\nf16\nf16.npy\nbf16\nstats\n%s%s",
                   picture, hash);
    lists(&m, "tensors/w", want);
    (void)snprintf(want, sizeof(want), "type\nshape\nraw\noffset\n%s", hash);
    lists(&m, "tensors/new", want);
    image_close(&m);
}

/* With views=raw, each byte of the model is in only one of the listed files; other files can still
 * be opened. */
static void test_raw_views(void)
{
    struct build b;
    put_model(&b, false);
    struct tree_image m = image_open(&b, &(struct tree_options){.views = FILES_RAW});
    lists(&m, "",
          "metadata\ntensors\nmetadata.json\ntensors.json\ninfo\ncheck\ntensors.txt\nerrors\n");
    lists(&m, "tensors/w", "type\nshape\nraw\n");
    CU_ASSERT_NOT_EQUAL(image_node(&m, "tensors/w/f32"), 0);
    CU_ASSERT_NOT_EQUAL(image_node(&m, "tensors/w/bf16"), 0);
    CU_ASSERT_NOT_EQUAL(image_node(&m, "model.gguf"), 0);
    image_close(&m);
}

/* Values are not shown if the fields of their type have no agreed big-endian form. */
static void test_big_endian_lists(void)
{
    struct build b;
    put_model(&b, true);
    struct tree_image m = image_open(&b, &plain);
    lists(&m, "tensors/w", "type\nshape\nraw\nf32\nf32.npy\noffset\n");
    lists(&m, "tensors/q5", "type\nshape\nraw\noffset\n");
    CU_ASSERT_EQUAL(image_node(&m, "tensors/q5/f32"), 0);
    image_close(&m);
}

/* A listing can continue after any cookie. "." and ".." come first. */
static void test_cookies(void)
{
    struct tree_image m = model();
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
    image_close(&m);
}

static void test_empty(void)
{
    struct build b;
    build_init(&b, 3, false);
    struct tree_image m = image_open(&b, &plain);
    lists(&m, "tensors", "");
    lists(&m, "metadata", "");
    size_t n;
    char *text = image_text(&m, "metadata.json", &n);
    CU_ASSERT_STRING_EQUAL(text, "{\n}\n");
    free(text);
    text = image_text(&m, "tensors.json", &n);
    CU_ASSERT_STRING_EQUAL(text, "[\n]\n");
    free(text);
    image_close(&m);
}

/* ---- attributes ---- */

/* What a walk through the whole tree has found. */
struct seen {
    uint64_t ino[256];
    size_t n;
    size_t files;
};

static void check_file(const struct tree_image *m, const struct tree_entry *e)
{
    struct tree_file *f;
    size_t size = (size_t)e->attr.st_size;
    struct reply r = {.scratch = malloc(size + 1)};
    CU_ASSERT_EQUAL_FATAL(tree_open_file(m->t, e->node, O_RDONLY, &f), 0);
    CU_ASSERT_EQUAL(tree_read(f, 0, size + 1, &r), 0);
    CU_ASSERT_EQUAL(r.len, size);
    tree_reply_done(&r);
    CU_ASSERT_EQUAL(e->attr.st_nlink, 1);
    CU_ASSERT_TRUE(e->attr.st_blocks * 512 >= e->attr.st_size);
    CU_ASSERT_EQUAL(e->attr.st_mode & 0111, 0);
    (void)tree_release(f);
    free(r.scratch);
}

static bool same(const struct tree_entry *a, const struct tree_entry *b)
{
    const struct stat *x = &a->attr, *y = &b->attr;
    return a->node == b->node && a->fixed == b->fixed && x->st_ino == y->st_ino &&
           x->st_mode == y->st_mode && x->st_nlink == y->st_nlink && x->st_size == y->st_size &&
           x->st_uid == y->st_uid && x->st_gid == y->st_gid;
}

/* Check that each entry can be looked up, has the same attributes however they are read, and has
 * its own inode number. */
static void walk(const struct tree_image *m, uint64_t dir, struct seen *s)
{
    char name[TREE_NAME_MAX + 1];
    struct tree_entry e, found, got;
    nlink_t folders = 0;
    uint64_t cookie = 2;
    while (image_readdir(m, dir, &cookie, true, name, &e) > 0) {
        CU_ASSERT_EQUAL(tree_lookup(m->t, dir, name, &found), 0);
        /* Listings do not determine the sizes of whole-model files. */
        if (ino_node(found.node).kind == NODE_WHOLE) {
            CU_ASSERT_EQUAL(e.node, 0);
            CU_ASSERT_EQUAL(e.attr.st_ino, found.attr.st_ino);
            e = found;
        }
        CU_ASSERT_EQUAL(tree_getattr(m->t, e.node, NULL, &got), 0);
        CU_ASSERT_TRUE(same(&e, &found));
        CU_ASSERT_TRUE(same(&e, &got));
        for (size_t i = 0; i < s->n; i++)
            CU_ASSERT_NOT_EQUAL(s->ino[i], e.attr.st_ino);
        s->ino[s->n++] = e.attr.st_ino;
        folders += S_ISDIR(e.attr.st_mode);
        s->files += S_ISREG(e.attr.st_mode);
        if (S_ISDIR(e.attr.st_mode))
            walk(m, e.node, s);
        else
            check_file(m, &e);
    }
    CU_ASSERT_EQUAL(tree_getattr(m->t, dir, NULL, &got), 0);
    CU_ASSERT_EQUAL(got.attr.st_nlink, 2 + folders);
}

static void test_walk(void)
{
    struct tree_image m = model();
    struct seen s = {.ino = {INO_ROOT}, .n = 1};
    walk(&m, INO_ROOT, &s);
    CU_ASSERT_EQUAL(s.files, 8 + 7 + 5 * 6 + 4);
    image_close(&m);
}

static void mode_is(const struct tree_image *m, const char *path, mode_t want)
{
    CU_ASSERT_EQUAL(image_stat(m, path).st_mode, want);
}

static void test_modes(void)
{
    struct tree_image m = model();
    struct stat file, st = image_stat(&m, "metadata/z.last");
    CU_ASSERT_EQUAL(fstat(m.fd, &file), 0);
    CU_ASSERT_EQUAL(st.st_uid, file.st_uid);
    CU_ASSERT_EQUAL(st.st_gid, file.st_gid);
    CU_ASSERT_EQUAL(st.st_mtim.tv_sec, file.st_mtim.tv_sec);
    CU_ASSERT_EQUAL(st.st_mtim.tv_nsec, file.st_mtim.tv_nsec);
    mode_is(&m, "", S_IFDIR | 0550);
    mode_is(&m, "metadata", S_IFDIR | 0750);
    mode_is(&m, "metadata/z.last", S_IFREG | 0640);
    mode_is(&m, "tensors", S_IFDIR | 0550);
    mode_is(&m, "tensors/w", S_IFDIR | 0550);
    mode_is(&m, "tensors/w/raw", S_IFREG | 0440);
    mode_is(&m, "model.gguf", S_IFREG | 0440);
    image_close(&m);
}

static void test_owner_options(void)
{
    struct build b;
    put_model(&b, false);
    const struct tree_options o = {
        .set_uid = true, .set_gid = true, .set_umask = true, .uid = 1234, .gid = 0, .umask = 027};
    struct tree_image m = image_open(&b, &o);
    struct stat st = image_stat(&m, "tensors/w/raw");
    CU_ASSERT_EQUAL(st.st_uid, 1234);
    CU_ASSERT_EQUAL(st.st_gid, 0);
    mode_is(&m, "", S_IFDIR | 0550);
    mode_is(&m, "metadata", S_IFDIR | 0750);
    mode_is(&m, "metadata/z.last", S_IFREG | 0640);
    mode_is(&m, "tensors/w/raw", S_IFREG | 0440);
    image_close(&m);
}

/* ---- names that do not exist ---- */

static int lookup(const struct tree_image *m, const char *dir, const char *name)
{
    struct tree_entry e = {.node = 777};
    int r = tree_lookup(m->t, image_node(m, dir), name, &e);
    if (r < 0)
        CU_ASSERT_EQUAL(e.node, 777);
    return r;
}

static void test_missing(void)
{
    char name[301];
    struct tree_image m = model();
    CU_ASSERT_EQUAL(lookup(&m, "", "tensor"), -ENOENT);
    CU_ASSERT_EQUAL(lookup(&m, "", ""), -ENOENT);
    CU_ASSERT_EQUAL(lookup(&m, "metadata", "z.las"), -ENOENT);
    CU_ASSERT_EQUAL(lookup(&m, "metadata", "z.last%"), -ENOENT);
    CU_ASSERT_EQUAL(lookup(&m, "metadata", "%7A.last"), -ENOENT);
    CU_ASSERT_EQUAL(lookup(&m, "metadata", "a%2fb"), -ENOENT);
    CU_ASSERT_EQUAL(lookup(&m, "metadata", "%2E"), 0);
    CU_ASSERT_EQUAL(lookup(&m, "tensors", "%"), 0);
    CU_ASSERT_EQUAL(lookup(&m, "tensors", "metadata"), -ENOENT);
    CU_ASSERT_EQUAL(lookup(&m, "tensors/w", "f64"), -ENOENT);
    CU_ASSERT_EQUAL(lookup(&m, "tensors/new", "f32"), -ENOENT);
    CU_ASSERT_EQUAL(lookup(&m, "tensors/w/raw", "x"), -ENOTDIR);
    CU_ASSERT_EQUAL(lookup(&m, "metadata/z.last", "x"), -ENOTDIR);
    CU_ASSERT_EQUAL(lookup(&m, "info", "x"), -ENOTDIR);
    long_name(name);
    CU_ASSERT_EQUAL(lookup(&m, "metadata", name), -ENAMETOOLONG);
    CU_ASSERT_EQUAL(lookup(&m, "", name), -ENAMETOOLONG);
    name[255] = '\0';
    CU_ASSERT_EQUAL(lookup(&m, "metadata", name), -ENOENT);
    memcpy(name + 237, "%~28a2afac267402a1", 19);
    CU_ASSERT_EQUAL(lookup(&m, "metadata", name), 0);
    name[254]++; /* another hash */
    CU_ASSERT_EQUAL(lookup(&m, "metadata", name), -ENOENT);
    name[254]--;
    name[0] = 'b'; /* the hash is right, the beginning is wrong */
    CU_ASSERT_EQUAL(lookup(&m, "metadata", name), -ENOENT);
    image_close(&m);
}

static void test_bad_nodes(void)
{
    const uint64_t nodes[] = {0,
                              ino_make(INO_FIXED, 1, 0),
                              ino_make(INO_KEY, 0, 1),
                              ino_row(2),
                              ino_row(INO_MAX_ROWS - 1),
                              ino_tensor(UINT32_MAX),
                              ino_key(UINT32_MAX),
                              ino_in_slot(1, INO_ROOT),
                              UINT64_MAX};
    struct tree_image m = model();
    struct tree_entry e;
    struct tree_file *f = NULL;
    CLEANUP(buf_free) struct buf out = BUF_INIT;
    uint64_t cookie = 0;
    char name[TREE_NAME_MAX + 1];
    for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
        CU_ASSERT_EQUAL(tree_getattr(m.t, nodes[i], NULL, &e), -ENOENT);
        CU_ASSERT_EQUAL(tree_open_file(m.t, nodes[i], O_RDONLY, &f), -ENOENT);
        CU_ASSERT_EQUAL(tree_lookup(m.t, nodes[i], "raw", &e), -ENOENT);
        CU_ASSERT_EQUAL(image_readdir(&m, nodes[i], &cookie, true, name, &e), -ENOENT);
        CU_ASSERT_EQUAL(tree_listxattr(m.t, nodes[i], &out), -ENOENT);
    }
    const uint64_t more[] = {ino_tensor(6), ino_tensor_file(0, 14), ino_tensor_file(3, 1),
                             ino_key(7),    ino_whole(0, 0),        ino_whole(0, INO_MAX_ROWS - 1)};
    for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++)
        CU_ASSERT_EQUAL(tree_getattr(m.t, more[i], NULL, &e), -ENOENT);
    /* That generation no longer exists, so the kernel must look up the name again. */
    CU_ASSERT_EQUAL(tree_getattr(m.t, ino_whole(1, 2), NULL, &e), -ESTALE);
    CU_ASSERT_EQUAL(tree_open_file(m.t, image_node(&m, "tensors/w"), O_RDONLY, &f), -EISDIR);
    CU_ASSERT_EQUAL(tree_open_file(m.t, INO_ROOT, O_RDONLY, &f), -EISDIR);
    CU_ASSERT_EQUAL(image_readdir(&m, image_node(&m, "info"), &cookie, true, name, &e), -ENOTDIR);
    CU_ASSERT_PTR_NULL(f);
    CU_ASSERT_EQUAL(cookie, 0);
    image_close(&m);
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

static void test_xattrs(void)
{
    static const char key[] = "user.gguf.name\0user.gguf.type";
    static const char tensor[] =
        "user.gguf.name\0user.gguf.type\0user.gguf.shape\0user.gguf.offset";
    char offset[32];
    struct tree_image m = model();
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
    image_close(&m);
}

/* ---- opening ---- */

static void test_refused(void)
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
    CU_ASSERT_STRING_EQUAL(e.msg, "is a Hugging Face URL, not a file: download the model first, "
                                  "with \"hf download\"");
    CU_ASSERT_EQUAL(image_try("", 0, &plain, &m, &e), -EBADMSG);
    CU_ASSERT_EQUAL(image_try("not a model", 12, &plain, &m, &e), -EBADMSG);
    CU_ASSERT_STRING_EQUAL(e.msg, "magic at byte 0: 'not ' is not 'GGUF'");
    CU_ASSERT_PTR_NULL(t);
    (void)unlink(pipe);
    (void)rmdir(path);
}

static void test_warnings_and_statfs(void)
{
    struct tree_image m = model();
    struct statvfs st = {0};
    CU_ASSERT_STRING_EQUAL(tree_warning(m.t, 0),
                           "some tensors are of an unknown type and have no f32");
    CU_ASSERT_PTR_NULL(tree_warning(m.t, 1));
    CU_ASSERT_EQUAL(tree_statfs(m.t, &st), 0);
    CU_ASSERT_EQUAL(st.f_namemax, TREE_NAME_MAX);
    CU_ASSERT_TRUE(st.f_blocks > 0);
    CU_ASSERT_EQUAL(tree_path(m.t)[0], '/');
    image_close(&m);
}

static CU_TestInfo tests[] = {
    {"directories are listed in file order", test_listings},
    {"hidden views can be opened by name, and views=all lists them", test_hidden},
    {"views=raw lists each byte once", test_raw_views},
    {"types without a big-endian form have no values", test_big_endian_lists},
    {"a listing can continue after any entry", test_cookies},
    {"a model without keys and tensors is shown", test_empty},
    {"sizes are exact, and inode numbers are unique", test_walk},
    {"modes, owner and times come from the model", test_modes},
    {"uid, gid and umask override the model's", test_owner_options},
    {"missing names are not found", test_missing},
    {"node numbers that were never issued are refused", test_bad_nodes},
    {"keys and tensors have extended attributes", test_xattrs},
    {"files that are not models are not opened", test_refused},
    {"warnings and statfs are reported", test_warnings_and_statfs},
    CU_TEST_INFO_NULL,
};

CU_MAIN("tree", tests)

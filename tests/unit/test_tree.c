/* SPDX-License-Identifier: MIT */
/* tree: directories, names, attributes and extended attributes, without a mount. */
#include "cu_test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "derive/task.h"
#include "live/judge.h"
#include "tree/files.h"
#include "tree_image.h"

enum { F32 = 0, F16 = 1 };

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
        CU_ASSERT_EQUAL(row->form && row->text, tensor_views[i].npy);
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
    size_t n;
    char *text = image_text(&m, "metadata.json", &n);
    CU_ASSERT_STRING_EQUAL(text, "{\n}\n");
    free(text);
    text = image_text(&m, "tensors.json", &n);
    CU_ASSERT_STRING_EQUAL(text, "[\n]\n");
    free(text);
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
    tree_release(f);
    free(r.scratch);
}

static bool same(const struct tree_entry *a, const struct tree_entry *b)
{
    const struct stat *x = &a->attr, *y = &b->attr;
    return a->node == b->node && a->name_for == b->name_for && x->st_ino == y->st_ino &&
           x->st_mode == y->st_mode && x->st_nlink == y->st_nlink && x->st_size == y->st_size &&
           x->st_uid == y->st_uid && x->st_gid == y->st_gid;
}

/* Check that each entry can be looked up, has the same attributes however they are read, and has
 * its own inode number. */
static void walk(const struct tree_image *m, uint64_t dir, struct seen *s)
{
    char name[TREE_NAME_MAX + 1];
    struct tree_entry e, found, got;
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
        s->files += S_ISREG(e.attr.st_mode);
        if (S_ISDIR(e.attr.st_mode))
            walk(m, e.node, s);
        else
            check_file(m, &e);
    }
    CU_ASSERT_EQUAL(tree_getattr(m->t, dir, NULL, &got), 0);
    CU_ASSERT_EQUAL(got.attr.st_nlink, 1);
}

TEST("sizes are exact, and inode numbers are unique")
{
    CLEANUP(image_close) struct tree_image m = model();
    struct seen s = {.ino = {INO_ROOT}, .n = 1};
    walk(&m, INO_ROOT, &s);
    CU_ASSERT_EQUAL(s.files, 8 + 7 + 5 * 6 + 4);
}

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

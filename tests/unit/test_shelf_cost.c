/* SPDX-License-Identifier: MIT */
/* shelf/place: the cost of listings and lookups, measured in calls to the disk. */
#include "cu_main.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shelf/place.h"
#include "shelf/slots.h"
#include "shelf_top.h"

#define COMMIT "1111111111111111111111111111111111111111"

/* ---- calls to the disk: linked with --wrap ---- */

static const char *failing; /* opening this name fails; NULL: never */
static int with;
static time_t times; /* times of all files, in seconds; 0: the real ones */
static time_t passed;
static bool stopped; /* the clock advances only with `passed` */

int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    int r = __real_clock_gettime(clock, ret);
    if (clock == CLOCK_MONOTONIC && stopped)
        *ret = (struct timespec){.tv_sec = 1000 + passed};
    return r;
}

int __real_fstat(int fd, struct stat *ret);
int __wrap_fstat(int fd, struct stat *ret);
int __real_fstat64(int fd, struct stat *ret);
int __wrap_fstat64(int fd, struct stat *ret);

static int fake_times(int r, struct stat *st)
{
    if (r == 0 && times)
        st->st_mtim = st->st_ctim = (struct timespec){.tv_sec = times};
    return r;
}

/* Number of calls, other than closes, that access the disk. */
static unsigned asked;
static unsigned opened; /* number of names opened */
static unsigned waited; /* calls that request attributes from the disk's server */
static bool typeless;   /* directories do not report the types of their files */

int __real_stat(const char *path, struct stat *ret);
int __wrap_stat(const char *path, struct stat *ret);
int __real_stat64(const char *path, struct stat *ret);
int __wrap_stat64(const char *path, struct stat *ret);
int __real_openat(int dir, const char *name, int flags, ...);
int __wrap_openat(int dir, const char *name, int flags, ...);
int __real_openat64(int dir, const char *name, int flags, ...);
int __wrap_openat64(int dir, const char *name, int flags, ...);
ssize_t __real_getxattr(const char *path, const char *name, void *value, size_t n);
ssize_t __wrap_getxattr(const char *path, const char *name, void *value, size_t n);
ssize_t __real_readlink(const char *path, char *to, size_t n);
ssize_t __wrap_readlink(const char *path, char *to, size_t n);
ssize_t __real_read(int fd, void *to, size_t n);
ssize_t __wrap_read(int fd, void *to, size_t n);
DIR *__real_fdopendir(int fd);
DIR *__wrap_fdopendir(int fd);
struct dirent *__real_readdir(DIR *d);
struct dirent *__wrap_readdir(DIR *d);
struct dirent *__real_readdir64(DIR *d);
struct dirent *__wrap_readdir64(DIR *d);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout);

int __wrap_fstat(int fd, struct stat *ret)
{
    asked++;
    waited++;
    return fake_times(__real_fstat(fd, ret), ret);
}

int __wrap_fstat64(int fd, struct stat *ret)
{
    asked++;
    waited++;
    return fake_times(__real_fstat64(fd, ret), ret);
}

int __wrap_stat(const char *path, struct stat *ret)
{
    asked++;
    return fake_times(__real_stat(path, ret), ret);
}

int __wrap_stat64(const char *path, struct stat *ret)
{
    asked++;
    return fake_times(__real_stat64(path, ret), ret);
}

/* No mount appears or disappears. */
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout)
{
    (void)fds;
    (void)n;
    (void)timeout;
    return 0;
}

static bool fails(const char *name)
{
    return failing && strcmp(name, failing) == 0;
}

int __wrap_openat(int dir, const char *name, int flags, ...)
{
    asked++;
    opened++;
    if (!fails(name))
        return __real_openat(dir, name, flags);
    errno = -with;
    return -1;
}

int __wrap_openat64(int dir, const char *name, int flags, ...)
{
    asked++;
    opened++;
    if (!fails(name))
        return __real_openat64(dir, name, flags);
    errno = -with;
    return -1;
}

ssize_t __wrap_getxattr(const char *path, const char *name, void *value, size_t n)
{
    asked++;
    return __real_getxattr(path, name, value, n);
}

ssize_t __wrap_readlink(const char *path, char *to, size_t n)
{
    asked++;
    return __real_readlink(path, to, n);
}

ssize_t __wrap_read(int fd, void *to, size_t n)
{
    asked++;
    return __real_read(fd, to, n);
}

DIR *__wrap_fdopendir(int fd)
{
    asked += 100;
    return __real_fdopendir(fd);
}

static struct dirent *without_type(struct dirent *entry)
{
    if (entry && typeless)
        entry->d_type = DT_UNKNOWN;
    return entry;
}

struct dirent *__wrap_readdir(DIR *d)
{
    return without_type(__real_readdir(d));
}

struct dirent *__wrap_readdir64(DIR *d)
{
    return without_type(__real_readdir64(d));
}

/* The types of files are found without waiting for any of the files, which may be on a disk that
 * hangs. */
static void test_types(void)
{
    struct reach r;
    struct place p;
    struct listing l;
    shelf_top_make();
    shelf_top_add("dir", "folder", NULL);
    shelf_top_add("file", "m.gguf", "GGUF");
    shelf_top_add("file", "text", "text");
    shelf_top_add("link", "link", "folder");
    shelf_top_add("fifo", "pipe.gguf", NULL);
    CU_ASSERT_EQUAL_FATAL(reach_begin(&r, shelf_top, false, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(place_top(&r, &p), 0);
    typeless = true;
    waited = 0;
    CU_ASSERT_EQUAL_FATAL(place_list(&r, &p, &l), 0);
    typeless = false;
    CU_ASSERT_EQUAL(waited, 1); /* for the directory itself */
    CU_ASSERT_EQUAL_FATAL(l.n, 3);
    for (size_t i = 0; i < l.n; i++) {
        CU_ASSERT_STRING_EQUAL(l.entry[i].name, ((const char *[]){"folder", "link", "m.gguf"})[i]);
        CU_ASSERT_EQUAL(l.entry[i].ref.sure,
                        ((enum ref_sure[]){REF_SURE, REF_UNSURE, REF_HERE})[i]);
    }
    listing_free(&l);
    place_free(&p);
    reach_end(&r);
    shelf_top_remove();
}

/* ---- an ollama model ---- */

static void add_layer(struct buf *b, const char *word, const char *digest)
{
    buf_printf(b,
               "%s{\"mediaType\":\"application/vnd.ollama.image.%s\","
               "\"digest\":\"sha256:%s\"}",
               b->len ? "," : "", word, digest);
}

/* Move the place out of an item. */
static void place_take(struct item *i, struct place *ret)
{
    *ret = i->place;
    i->place = (struct place){0};
}

/* Make a store with one manifest, which has these layers, and return the place of its model. */
static void begin_model(const struct buf *layers, struct reach *r, struct place *ret)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    struct place store;
    struct item i;
    shelf_top_make();
    buf_printf(&text, "{\"schemaVersion\":2,\"layers\":[%.*s]}", (int)layers->len,
               (const char *)layers->data);
    buf_char(&text, '\0');
    shelf_top_add("file", "manifests/registry.ollama.ai/library/m/1", (const char *)text.data);
    shelf_top_add("file", "blobs/sha256-" A64, "GGUF");
    CU_ASSERT_EQUAL_FATAL(reach_begin(r, shelf_top, false, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(place_top(r, &store), 0);
    CU_ASSERT_EQUAL_FATAL(place_find(r, &store, "m:1", &i), 0);
    place_take(&i, ret);
    item_free(&i);
    place_free(&store);
}

static void end_model(struct reach *r, struct place *p)
{
    place_free(p);
    reach_end(r);
    shelf_top_remove();
}

/* A layer keeps its number when an earlier layer is missing, and has no other name. */
static void test_layer_names(void)
{
    static const char *const wrong[] = {"model~1",   "model~0",
                                        "model~02",  "model~",
                                        "model~2x",  "model~3",
                                        "model~-2",  "model~ 2",
                                        "license~3", "~2",
                                        "system",    "license",
                                        "model~2~2", "model~18446744073709551618"};
    CLEANUP(buf_free) struct buf layers = BUF_INIT;
    struct listing l;
    struct reach r;
    struct place p;
    struct item i;
    add_layer(&layers, "license", B64); /* this layer is missing */
    add_layer(&layers, "model", A64);
    add_layer(&layers, "license", A64);
    add_layer(&layers, "model", A64);
    begin_model(&layers, &r, &p);
    CU_ASSERT_EQUAL_FATAL(place_list(&r, &p, &l), 0);
    CU_ASSERT_EQUAL_FATAL(l.n, 4);
    for (size_t n = 0; n < l.n; n++) {
        CU_ASSERT_STRING_EQUAL(l.entry[n].name,
                               ((const char *[]){"license", "license~2", "model", "model~2"})[n]);
        CU_ASSERT_EQUAL(place_find(&r, &p, l.entry[n].name, &i), n ? 0 : -ENOENT);
        CU_ASSERT_TRUE(n == 0 || i.kind == (n > 1 ? ITEM_MODEL : ITEM_TEXT));
        if (n)
            item_free(&i);
    }
    for (size_t n = 0; n < sizeof(wrong) / sizeof(wrong[0]); n++)
        CU_ASSERT_EQUAL(place_find(&r, &p, wrong[n], &i), -ENOENT);
    listing_free(&l);
    end_model(&r, &p);
}

/* ---- a Hugging Face cache ---- */

/* Other organisations are not examined when one is looked up. */
static void test_many_organisations(void)
{
    enum { MANY = 300 };
    struct reach r;
    struct place p;
    struct item i;
    char name[128];
    shelf_top_make();
    for (unsigned n = 0; n < MANY; n++) {
        (void)snprintf(name, sizeof(name), "models--org%u--name/snapshots/" COMMIT, n);
        shelf_top_add("dir", name, NULL);
    }
    shelf_top_add("dir", "models--org--empty", NULL); /* not a repository */
    shelf_top_add("dir", "models--alone/snapshots/" COMMIT, NULL);
    shelf_top_add("dir", "models--alone--too/snapshots/" COMMIT, NULL);
    CU_ASSERT_EQUAL_FATAL(reach_begin(&r, shelf_top, false, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(place_top(&r, &p), 0);
    for (unsigned n = 0; n < MANY; n += 23) {
        (void)snprintf(name, sizeof(name), "org%u", n);
        opened = 0;
        CU_ASSERT_EQUAL_FATAL(place_find(&r, &p, name, &i), 0);
        CU_ASSERT_TRUE(opened <= 8);
        CU_ASSERT_EQUAL(i.place.kind, PLACE_ORG);
        CU_ASSERT_STRING_EQUAL(i.place.sub, name);
        item_free(&i);
    }
    opened = 0;
    CU_ASSERT_EQUAL(place_find(&r, &p, "org", &i), -ENOENT);
    CU_ASSERT_EQUAL(place_find(&r, &p, "org1--name", &i), -ENOENT);
    CU_ASSERT_TRUE(opened <= 16);
    CU_ASSERT_EQUAL_FATAL(place_find(&r, &p, "alone", &i), 0); /* the repository itself */
    CU_ASSERT_EQUAL(i.place.kind, PLACE_FOLDER);
    item_free(&i);
    CU_ASSERT_EQUAL_FATAL(place_find(&r, &p, "alone~2", &i), 0);
    CU_ASSERT_EQUAL(i.place.kind, PLACE_ORG);
    item_free(&i);
    place_free(&p);
    reach_end(&r);
    shelf_top_remove();
}

/* Repositories of equal names get numbers such as `~2`. */
static void test_numbered_repositories(void)
{
    static const struct {
        const char *name, *path;
    } rows[] = {{"own.gguf", "/own.gguf"},
                {"it", "/it"},
                {"it~2", "/models--it/snapshots/" COMMIT},
                {"it~2~2", "/models--it~2/snapshots/" COMMIT},
                {"it-2", "/models--it-2/snapshots/" COMMIT},
                {"other", "/models--other/snapshots/" COMMIT}};
    struct reach r;
    struct place p;
    struct item i;
    shelf_top_make();
    shelf_top_add("dir", "it", NULL);
    shelf_top_add("file", "own.gguf", "");
    shelf_top_add("dir", "models--it/snapshots/" COMMIT, NULL);
    shelf_top_add("dir", "models--it~2/snapshots/" COMMIT, NULL);
    shelf_top_add("dir", "models--it-2/snapshots/" COMMIT, NULL);
    shelf_top_add("dir", "models--other/snapshots/" COMMIT, NULL);
    CU_ASSERT_EQUAL_FATAL(reach_begin(&r, shelf_top, false, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(place_top(&r, &p), 0);
    for (size_t n = 0; n < sizeof(rows) / sizeof(rows[0]); n++) {
        CU_ASSERT_EQUAL_FATAL(place_find(&r, &p, rows[n].name, &i), 0);
        const char *path = i.kind == ITEM_MODEL ? i.path : i.place.path;
        CU_ASSERT_STRING_EQUAL(path + strlen(path) - strlen(rows[n].path), rows[n].path);
        item_free(&i);
    }
    place_free(&p);
    reach_end(&r);
    shelf_top_remove();
}

/* A store is recognised by the names in its directory. */
static void test_stores_by_names(void)
{
    static const char *const rows[][3] = {
        {"link", "models--it", "nowhere"},
        {"link", "models--org--it", "nowhere"},
        {"dir", "manifests/registry.ollama.ai/library/m", "blobs"},
    };
    for (size_t n = 0; n < sizeof(rows) / sizeof(rows[0]); n++) {
        struct reach r;
        struct place p;
        shelf_top_make();
        shelf_top_add(rows[n][0], rows[n][1], rows[n][2]);
        shelf_top_add("dir", n == 2 ? rows[n][2] : "datasets--it", NULL);
        CU_ASSERT_EQUAL_FATAL(reach_begin(&r, shelf_top, false, NULL), 0);
        CU_ASSERT_EQUAL_FATAL(place_top(&r, &p), 0);
        CU_ASSERT_TRUE(place_is_store(&r, &p));
        shelf_top_add("file", "m.gguf", "GGUF"); /* in an ollama store, this is not shown */
        CU_ASSERT_EQUAL(place_is_store(&r, &p), n == 2);
        place_free(&p);
        reach_end(&r);
        shelf_top_remove();
    }
}

/* ---- failures in a store ---- */

/* List a place while `what` cannot be opened. The listing must fail with `error` or, if `error` is
 * 0, consist of these names. */
static void check_failing(struct reach *r, const struct place *p, const char *what, int error,
                          const char *want)
{
    CLEANUP(buf_free) struct buf out = BUF_INIT;
    struct listing l = LISTING_INIT;
    bool shortage = error == -ENOMEM || error == -EMFILE || error == -ENFILE;
    failing = what;
    with = error;
    CU_ASSERT_EQUAL(place_list(r, p, &l), shortage ? error : 0);
    failing = NULL;
    for (size_t i = 0; i < l.n; i++)
        buf_printf(&out, "%s ", l.entry[i].name);
    buf_char(&out, '\0');
    CU_ASSERT_STRING_EQUAL((const char *)out.data, shortage ? "" : want);
    listing_free(&l);
}

static struct place place_of(struct reach *r, const char *first, const char *second)
{
    struct place p;
    struct item i;
    CU_ASSERT_EQUAL_FATAL(place_top(r, &p), 0);
    for (const char *name = first; name; name = name == first ? second : NULL) {
        CU_ASSERT_EQUAL_FATAL(place_find(r, &p, name, &i), 0);
        place_free(&p);
        place_take(&i, &p);
        item_free(&i);
    }
    return p;
}

/* Listings omit unreadable parts, but fail if memory or descriptors run out. */
static void test_failing_parts(void)
{
    static const char manifest[] =
        "{\"schemaVersion\":2,\"layers\":[{\"mediaType\":"
        "\"application/vnd.ollama.image.model\",\"digest\":\"sha256:" A64 "\"}]}";
    static const int errors[] = {-EACCES, -EIO,    -ENOTDIR, -ELOOP,
                                 -ESTALE, -EMFILE, -ENFILE,  -ENOMEM};
    struct reach r;
    shelf_top_make();
    shelf_top_add("file", "o/manifests/registry.ollama.ai/library/one/1", manifest);
    shelf_top_add("file", "o/manifests/registry.ollama.ai/library/two/1", manifest);
    shelf_top_add("file", "o/manifests/registry.ollama.ai/me/mine/1", manifest);
    shelf_top_add("dir", "o/manifests/host.example", NULL);
    shelf_top_add("dir", "o/blobs", NULL);
    shelf_top_add("dir", "h/models--org--a/snapshots/" COMMIT, NULL);
    shelf_top_add("dir", "h/models--org--b/snapshots/" COMMIT, NULL);
    CU_ASSERT_EQUAL_FATAL(reach_begin(&r, shelf_top, false, NULL), 0);
    struct place o = place_of(&r, "o", NULL), h = place_of(&r, "h", "org");
    check_failing(&r, &o, NULL, 0, "host.example me one:1 two:1 ");
    check_failing(&r, &h, NULL, 0, "a b ");
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        check_failing(&r, &o, "library", errors[i], "host.example me ");
        check_failing(&r, &o, "registry.ollama.ai", errors[i], "host.example ");
        check_failing(&r, &o, "one", errors[i], "host.example me two:1 ");
        check_failing(&r, &h, "models--org--a", errors[i], "b ");
    }
    place_free(&o);
    place_free(&h);
    reach_end(&r);
    shelf_top_remove();
}

/* Only a regular file is a manifest: links and pipes are neither listed nor found. */
static void test_no_manifests(void)
{
    static const char *const names[] = {"m:link", "m:pipe", "m:folder", "m:none"};
    struct reach r;
    struct item i;
    shelf_top_make();
    shelf_top_add("file", "manifests/registry.ollama.ai/library/m/1", "broken");
    shelf_top_add("link", "manifests/registry.ollama.ai/library/m/link", "1");
    shelf_top_add("fifo", "manifests/registry.ollama.ai/library/m/pipe", NULL);
    shelf_top_add("dir", "manifests/registry.ollama.ai/library/m/folder", NULL);
    shelf_top_add("dir", "blobs", NULL);
    CU_ASSERT_EQUAL_FATAL(reach_begin(&r, shelf_top, false, NULL), 0);
    struct place p = place_of(&r, NULL, NULL);
    check_failing(&r, &p, NULL, 0, "m:1 ");
    for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++)
        CU_ASSERT_EQUAL(place_find(&r, &p, names[n], &i), -ENOENT);
    CU_ASSERT_EQUAL_FATAL(place_find(&r, &p, "m:1", &i), 0);
    CU_ASSERT_EQUAL(i.kind, ITEM_MODEL);
    item_free(&i);
    place_free(&p);
    reach_end(&r);
    shelf_top_remove();
}

/* ---- split models ---- */

/* The name claims the maximum number of files, but only a few exist, beside files whose names
 * merely look similar. */
static void test_names_like_shards(void)
{
    static const char *const others[] = {
        "m-0000a-of-99999.gguf", "m-000003-of-9999.gguf", "m-00000-of-99999.gguf",
        "m-00002-of-00009.gguf", "m-0001x-of-99999.gguf", "m- 0003-of-99999.gguf",
        "m-000a1-of-99999.gguf", "m-00003-of-99999.gguF", "m-00003-of-99999.gguf2",
        "m-00003-of-9999a.gguf", "m--0001-of-99999.gguf", "m-+0003-of-99999.gguf",
        "m-99999-of-99998.gguf", "m-zzzzz-of-99999.gguf",
    };
    char path[128];
    struct reach r;
    uint64_t alone, beside, more;
    shelf_top_make();
    shelf_top_add("file", "m-00001-of-99999.gguf", "GGUF");
    shelf_top_add("file", "m-00005-of-99999.gguf", "GGUF");
    CU_ASSERT_EQUAL_FATAL(reach_begin(&r, shelf_top, false, NULL), 0);
    (void)snprintf(path, sizeof(path), "%s/m-00001-of-99999.gguf", shelf_top);
    CU_ASSERT_EQUAL_FATAL(files_stamp(&r, path, 99999, &alone), 0);
    for (size_t n = 0; n < sizeof(others) / sizeof(others[0]); n++)
        shelf_top_add("file", others[n], "GGUF");
    CU_ASSERT_EQUAL_FATAL(files_stamp(&r, path, 99999, &beside), 0);
    CU_ASSERT_EQUAL(beside, alone);
    shelf_top_add("file", "m-99999-of-99999.gguf", "GGUF");
    CU_ASSERT_EQUAL_FATAL(files_stamp(&r, path, 99999, &more), 0);
    CU_ASSERT_NOT_EQUAL(more, alone);
    /* hidden files are not among the names, but a link may lead to one */
    shelf_top_add("file", ".h-00001-of-00002.gguf", "GGUF");
    (void)snprintf(path, sizeof(path), "%s/.h-00001-of-00002.gguf", shelf_top);
    CU_ASSERT_EQUAL_FATAL(files_stamp(&r, path, 2, &alone), 0);
    shelf_top_add("file", ".h-00002-of-00002.gguf", "GGUF");
    CU_ASSERT_EQUAL_FATAL(files_stamp(&r, path, 2, &more), 0);
    CU_ASSERT_NOT_EQUAL(more, alone);
    reach_end(&r);
    shelf_top_remove();
}

/* ---- calls to the disk ---- */

/* Look up a path as the kernel does, and return the number of calls to the disk. `lately`: the
 * kernel still has all names but the last in its cache. */
static unsigned asked_for(struct shelf *s, const char *const *names, bool lately)
{
    static uint64_t above; /* directory of the last name */
    struct tree_entry e = {.node = INO_ROOT};
    asked = 0;
    if (lately)
        e.node = above;
    else
        CU_ASSERT_EQUAL(shelf_getattr(s, INO_ROOT, NULL, &e), 0);
    for (size_t i = 0; names[i]; i++) {
        if (lately && names[i + 1])
            continue;
        above = e.node;
        CU_ASSERT_EQUAL_FATAL(shelf_lookup(s, e.node, names[i], &e), 0);
    }
    return asked;
}

/* Finding a model takes few calls, whether through a link or directly, and even fewer within a
 * second, while the kernel knows its directory. Changes are noticed. */
static void test_asked(void)
{
    static const char *const hub[] = {"org", "name", "m.gguf", NULL};
    static const char *const plain[] = {"sub", "m.gguf", NULL};
    static const char *const model[] = {"ollama", "m:1", "model", NULL};
    static const struct {
        const char *const *names;
        unsigned rest, lately;
    } rows[] = {{hub, 46, 15}, {plain, 13, 5}, {model, 54, 18}};
    const struct shelf_options o = {.strict = false};
    struct shelf *s;
    struct tree_entry e, before;
    shelf_top_make();
    shelf_top_add("file", "models--org--name/refs/main", COMMIT);
    shelf_top_add("file", "models--org--name/blobs/" A64, "GGUF");
    shelf_top_add("link", "models--org--name/snapshots/" COMMIT "/m.gguf", "../../blobs/" A64);
    shelf_top_add("file", "sub/m.gguf", "GGUF");
    shelf_top_add("file", "new", "GGUF, and more");
    shelf_top_add("file", "ollama/manifests/registry.ollama.ai/library/m/1",
                  "{\"schemaVersion\":2,\"layers\":[{\"mediaType\":\"application/"
                  "vnd.ollama.image.model\",\"digest\":\"sha256:" A64 "\"}]}");
    shelf_top_add("file", "ollama/blobs/sha256-" A64, "GGUF");
    CU_ASSERT_EQUAL_FATAL(shelf_open(shelf_top, &o, &s, NULL), 0);
    times = 1;
    stopped = true;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        (void)asked_for(s, rows[i].names, false);
        passed += 2;
        const unsigned rest = asked_for(s, rows[i].names, false);
        const unsigned lately = asked_for(s, rows[i].names, true);
        CU_ASSERT_TRUE(rest <= rows[i].rest);
        CU_ASSERT_TRUE(lately <= rows[i].lately);
    }
    CU_ASSERT_EQUAL_FATAL(shelf_lookup(s, INO_ROOT, "sub", &e), 0);
    CU_ASSERT_EQUAL_FATAL(shelf_lookup(s, e.node, "m.gguf", &before), 0);
    char from[4096], to[4096];
    (void)snprintf(from, sizeof(from), "%s/new", shelf_top);
    (void)snprintf(to, sizeof(to), "%s/sub/m.gguf", shelf_top);
    CU_ASSERT_EQUAL(rename(from, to), 0);
    const uint64_t folder = e.node;
    CU_ASSERT_EQUAL_FATAL(shelf_lookup(s, folder, "m.gguf", &e), 0);
    CU_ASSERT_NOT_EQUAL(e.node, before.node);
    CU_ASSERT_EQUAL(unlink(to), 0);
    times = 0;
    CU_ASSERT_EQUAL(shelf_lookup(s, folder, "m.gguf", &e), -ENOENT);
    stopped = false;
    shelf_close(s);
    shelf_top_remove();
}

static CU_TestInfo tests[] = {
    {"finding a model takes few calls", test_asked},
    {"the types of files are found without waiting for the files", test_types},
    {"layers keep their names when an earlier one is missing", test_layer_names},
    {"a lookup does not examine other organisations", test_many_organisations},
    {"repositories of equal names get numbers", test_numbered_repositories},
    {"a store is recognised by names alone", test_stores_by_names},
    {"a listing omits unreadable parts", test_failing_parts},
    {"only a regular file is a manifest", test_no_manifests},
    {"names similar to those of shards do not mislead a lookup", test_names_like_shards},
    CU_TEST_INFO_NULL,
};

CU_MAIN("shelf cost", tests)

/* SPDX-License-Identifier: MIT */
/* shelf/place, shelf/reach: contents of directories. Lines ("file PATH TEXT", "link PATH TARGET",
 * "fifo PATH") build a store, whose listing is compared line by line; each listed name must also be
 * found by a lookup. */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "alloc.h"
#include "shelf/place.h"
#include "shelf_shows.h"
#include "shelf_top.h"

#define C1 "1111111111111111111111111111111111111111"
#define C2 "2222222222222222222222222222222222222222"
#define LAYER(word, digest)                                                                \
    "{\"mediaType\":\"application/vnd.ollama.image." word "\",\"digest\":\"sha256:" digest \
    "\",\"size\":4}"
#define MANIFEST(layers) "{\"schemaVersion\":2,\"layers\":[" layers "]}"

static void test_plain(void)
{
    SHOWS("",
          "a.GGUF a.GGUF\n"
          "s.gguf s-00001-of-00002.gguf 2\n"
          "sha256-" A64 " sha256-" A64 "\n"
          "sub/\n"
          "  50%25.gguf sub/50%.gguf\n"
          "  deep/\n"
          "  new%0Aline.gguf sub/new\nline.gguf\n",
          FILE("a.GGUF"), FILE("s-00001-of-00002.gguf"), FILE("s-00002-of-00002.gguf"),
          FILE("sub/50%.gguf"), FILE("sub/new\nline.gguf"), FILE(".hidden.gguf"),
          FILE(".git/x.gguf"), {"dir", "sub/deep", ""}, {"file", "README.md", "x"},
          {"fifo", "f.gguf", ""}, {"fifo", "fifo", ""}, FILE(".gguf"), FILE("sha256-" A64),
          {"file", "sha256-" B64, "text"});
}

static void test_collisions(void)
{
    SHOWS("",
          "a-00001-of-00002.gguf a-00001-of-00002.gguf 2\n"
          "a.gguf a.gguf\n"
          "b-00001-of-00002.gguf b-00001-of-00002.gguf 2\n"
          "b-00001-of-00003.gguf b-00002-of-00003.gguf 3\n"
          "c-00001-of-00002.gguf/\n"
          "c-00001-of-00002.gguf~2 c-00002-of-00002.gguf 2\n"
          "c.gguf c.gguf\n",
          FILE("a.gguf"), FILE("a-00001-of-00002.gguf"), FILE("b-00001-of-00002.gguf"),
          FILE("b-00002-of-00003.gguf"), FILE("c.gguf"), FILE("c-00002-of-00002.gguf"),
          {"dir", "c-00001-of-00002.gguf", ""});
}

static void test_links(void)
{
    SHOWS("in",
          "broken.gguf - (No such file or directory)\n"
          "dir.gguf/\n"
          "  real.gguf in/real/real.gguf\n"
          "f.gguf - (is not a regular file)\n"
          "loop.gguf - (Too many levels of symbolic links)\n"
          "m.gguf out/o.gguf\n"
          "other/\n"
          "  o.gguf out/o.gguf\n"
          "real/\n"
          "  real.gguf in/real/real.gguf\n",
          FILE("in/real/real.gguf"), FILE("out/o.gguf"), {"link", "in/m.gguf", "../out/o.gguf"},
          {"link", "in/other", "../out"}, {"link", "in/up", "../.."}, {"link", "in/self", "."},
          {"link", "in/root", "/"}, {"link", "in/broken.gguf", "nowhere"},
          {"link", "in/loop.gguf", "loop.gguf"}, {"link", "in/dir.gguf", "real"},
          {"link", "in/f.gguf", "../fifo"}, {"fifo", "fifo", ""},
          {"link", "in/real/back", "../../in"});
}

/* A link is omitted if it would loop: if it leads to a directory on the shown path, or to one that
 * contains such a directory. */
static void test_mutual_links(void)
{
    SHOWS("",
          "a/\n  to/\n    m.gguf b/m.gguf\n"
          "b/\n  m.gguf b/m.gguf\n  to/\n",
          {"link", "a/to", "../b"}, {"link", "b/to", "../a"}, FILE("b/m.gguf"));
    SHOWS("in", "x/\n  y/\n    to/\n      z/\n        w/\n          m.gguf out/m.gguf\n",
          {"link", "in/x/y/to", "../../../far"}, {"link", "far/z/here", "../../in/x"},
          {"link", "far/z/w", "../../out"}, {"link", "out/up", ".."}, {"link", "out/far", "../far"},
          {"link", "out/z", "../far/z"}, {"link", "out/y", "../in/x/y"}, FILE("out/m.gguf"));
}

/* A long chain of links is followed only to a limited depth. */
static void test_many_links(void)
{
    char name[32], target[32];
    struct reach r;
    struct place p;
    struct item i;
    unsigned depth = 0;
    shelf_top_make();
    for (int n = 0; n < 2 * PLACE_LINKS_MAX; n++) {
        (void)snprintf(name, sizeof(name), "%d/to", n);
        (void)snprintf(target, sizeof(target), "../%d", n + 1);
        shelf_top_add("link", name, target);
    }
    CU_ASSERT_EQUAL_FATAL(reach_begin(&r, shelf_top, false, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(place_top(&r, &p), 0);
    for (const char *next = "0"; place_find(&r, &p, next, &i) == 0; next = "to") {
        CU_ASSERT_TRUE_FATAL(depth++ <= PLACE_LINKS_MAX);
        place_free(&p);
        p = i.place;
        i.place = (struct place){0};
        item_free(&i);
    }
    CU_ASSERT_EQUAL(depth, PLACE_LINKS_MAX + 1);
    place_free(&p);
    reach_end(&r);
    shelf_top_remove();
}

static void test_hub(void)
{
    SHOWS("hub",
          "org/ store\n"
          "  one/ store\n"
          "    m.gguf hub/models--org--one/blobs/" A64 " store\n"
          "    sub/ store\n"
          "      s.gguf hub/models--org--one/snapshots/" C1 "/sub/s-00001-of-00002.gguf store 2\n"
          "  one@" C2 "/ store\n"
          "    m.gguf hub/models--org--one/snapshots/" C2 "/m.gguf store\n"
          "  two--x/ store\n"
          "    t.gguf hub/models--org--two--x/snapshots/" C2 "/t.gguf store\n"
          "plain/\n"
          "  p.gguf hub/plain/p.gguf\n"
          "solo/ store\n"
          "  m.gguf hub/models--solo/snapshots/v1/m.gguf store\n"
          "solo@main/ store\n"
          "  n.gguf hub/models--solo/snapshots/main/n.gguf store\n"
          "third/ store\n"
          "  a/ store\n"
          "    t.gguf hub/models--third--a/snapshots/v 2.0/t.gguf store\n",
          FILE("hub/models--org--one/blobs/" A64),
          {"link", "hub/models--org--one/snapshots/" C1 "/m.gguf", "../../blobs/" A64},
          FILE("hub/models--org--one/snapshots/" C1 "/sub/s-00001-of-00002.gguf"),
          FILE("hub/models--org--one/snapshots/" C2 "/m.gguf"),
          {"file", "hub/models--org--one/refs/main", C1 "\n"},
          {"file", "hub/models--org--one/.no_exist/" C1 "/x.gguf", ""},
          {"file", "hub/models--org--one/blobs/x.incomplete", ""}, {"file", "hub/CACHEDIR.TAG", ""},
          {"dir", "hub/.locks", ""}, FILE("hub/models--org--two--x/snapshots/" C2 "/t.gguf"),
          {"file", "hub/models--org--two--x/refs/main", "../../../../etc/passwd"},
          FILE("hub/models--solo/snapshots/v1/m.gguf"),
          {"file", "hub/models--solo/refs/main", "v1\n"},
          FILE("hub/models--solo/snapshots/main/n.gguf"),
          FILE("hub/models--solo/snapshots/.hidden/no.gguf"),
          FILE("hub/models--third--a/snapshots/v 2.0/t.gguf"), FILE("hub/plain/p.gguf"));
}

static void test_hub_collisions(void)
{
    SHOWS("",
          "org/\n"
          "  x.gguf org/x.gguf\n"
          "org~2/ store\n"
          "  name/ store\n"
          "    m.gguf models--org--name/snapshots/" C1 "/m.gguf store\n",
          FILE("org/x.gguf"), FILE("models--org--name/snapshots/" C1 "/m.gguf"));
    /* A directory named like a shown revision of a repository is not a repository itself. */
    SHOWS("",
          "models--o--a@" C1 "/\n"
          "  snapshots/\n    " C2 "/\n"
          "      x.gguf models--o--a@" C1 "/snapshots/" C2 "/x.gguf\n"
          "o/ store\n  a/ store\n"
          "    z.gguf models--o--a/snapshots/" C2 "/z.gguf store\n"
          "  a@" C1 "/ store\n"
          "    y.gguf models--o--a/snapshots/" C1 "/y.gguf store\n",
          FILE("models--o--a/snapshots/" C1 "/y.gguf"), {"file", "models--o--a/refs/main", C2},
          FILE("models--o--a/snapshots/" C2 "/z.gguf"),
          FILE("models--o--a@" C1 "/snapshots/" C2 "/x.gguf"));
    SHOWS("models--org--name",
          "name/ store\n"
          "  m.gguf models--org--name/snapshots/" C1 "/m.gguf store\n",
          FILE("models--org--name/snapshots/" C1 "/m.gguf"));
    SHOWS("",
          "models--org--name/\n"
          "  m.gguf models--org--name/m.gguf\n",
          FILE("models--org--name/m.gguf"));
}

/* A link named like a repository leads to a repository. */
static void test_moved_repos(void)
{
    SHOWS("hub",
          "models--none--x/\n"
          "org/ store\n"
          "  here/ store\n"
          "    h.gguf hub/models--org--here/snapshots/" C1 "/h.gguf store\n"
          "  moved/ store\n"
          "    m.gguf big/blobs/" A64 " store\n"
          "  moved@" C1 "/ store\n"
          "    old.gguf big/snapshots/" C1 "/old.gguf store\n"
          "solo/ store\n"
          "  m.gguf big/blobs/" A64 " store\n"
          "solo@" C1 "/ store\n"
          "  old.gguf big/snapshots/" C1 "/old.gguf store\n",
          {"link", "hub/models--org--moved", "../big"}, {"link", "hub/models--solo", "../big"},
          {"link", "hub/models--none--x", "../none"}, {"dir", "none", ""},
          FILE("hub/models--org--here/snapshots/" C1 "/h.gguf"), {"file", "big/refs/main", C2},
          FILE("big/blobs/" A64), {"link", "big/snapshots/" C2 "/m.gguf", "../../blobs/" A64},
          {"link", "big/snapshots/" C2 "/hub", "../../../hub"},
          FILE("big/snapshots/" C1 "/old.gguf"));
    /* A link to a directory that contains the link is not followed. */
    SHOWS("in/snapshots/" C1, "m.gguf in/snapshots/" C1 "/m.gguf\n",
          {"link", "in/snapshots/" C1 "/models--a--b", "../.."},
          FILE("in/snapshots/" C1 "/m.gguf"));
}

#define LIBRARY "o/manifests/registry.ollama.ai/library/"

/* A hidden directory is shown if it is a store itself. */
static void test_hidden_stores(void)
{
    SHOWS("",
          ".hub/\n"
          "  org/ store\n"
          "    a/ store\n"
          "      m.gguf .hub/models--org--a/snapshots/" C1 "/m.gguf store\n"
          ".linked/\n"
          "  m:1/ store\n"
          "    model .st/blobs/sha256-" A64 " store\n"
          ".st/\n"
          "  m:1/ store\n"
          "    model .st/blobs/sha256-" A64 " store\n",
          {"file", ".st/manifests/registry.ollama.ai/library/m/1", MANIFEST(LAYER("model", A64))},
          {"dir", ".st/manifests/registry.ollama.ai/.hidden", ""},
          {"dir", ".st/manifests/registry.ollama.ai/library/.hidden", ""},
          FILE(".st/blobs/sha256-" A64), {"link", ".linked", ".st"},
          FILE(".hub/models--org--a/snapshots/" C1 "/m.gguf"),
          FILE(".hub/models--org--a/snapshots/" C1 "/.h/models--x--y/snapshots/" C1 "/m.gguf"),
          {"dir", ".models--x/models--org", ""}, {"dir", ".none/manifests", ""},
          {"link", ".s-00001-of-00002.gguf", ".st"}, {"link", ".up", ".."}, FILE(".git/x.gguf"));
}

/* Manifests with every kind of layer that is shown. Template layers have two names. */
static void test_layers(void)
{
    SHOWS("o",
          "m:1/ store\n"
          "  draft o/blobs/sha256-" A64 " store\n"
          "  model o/blobs/sha256-" A64 " store\n"
          "  template text o/blobs/sha256-" A64 " store\n"
          "  template~2 text o/blobs/sha256-" B64 " store\n"
          "old:1/ store\n"
          "  model o/blobs/sha256-" A64 " store\n"
          "  template text o/blobs/sha256-" B64 " store\n"
          "tensors:1 o/manifests/registry.ollama.ai/library/tensors/1 store (manifest: stores each "
          "tensor in its own file, not in a GGUF file)\n"
          "tensors:2 o/manifests/registry.ollama.ai/library/tensors/2 store (manifest: stores each "
          "tensor in its own file, not in a GGUF file)\n",
          {"file", LIBRARY "m/1",
           MANIFEST(LAYER("prompt", B64) "," LAYER("draft", A64) "," LAYER("model", A64) "," LAYER(
               "template", A64))},
          {"file", LIBRARY "old/1", MANIFEST(LAYER("model", A64) "," LAYER("prompt", B64))},
          {"file", LIBRARY "tensors/1", MANIFEST(LAYER("tensor", A64) "," LAYER("params", B64))},
          {"file", LIBRARY "tensors/2", MANIFEST(LAYER("tensor; name=a; dtype=F16", A64))},
          {"file", LIBRARY "cloud/1", MANIFEST(LAYER("params", B64) "," LAYER("tensors", B64))},
          FILE("o/blobs/sha256-" A64), {"file", "o/blobs/sha256-" B64, "text"});
}

static void test_ollama(void)
{
    SHOWS("",
          "o/\n"
          "  broken:1 o/manifests/registry.ollama.ai/library/broken/1 store (manifest: is not a "
          "manifest: no JSON object)\n"
          "  host.example/ store\n"
          "    library/ store\n"
          "      far:q4/ store\n"
          "        model o/blobs/sha256-" A64 " store\n"
          "  llama3.2:3b/ store\n"
          "    adapter o/blobs/sha256-" A64 " store\n"
          "    adapter~2 - store (No such file or directory)\n"
          "    license text o/blobs/sha256:" B64 " store\n"
          "    license~2 text o/blobs/sha256:" B64 " store\n"
          "    model o/blobs/sha256-" A64 " store\n"
          "    template text o/blobs/sha256:" B64 " store\n"
          "  me/ store\n"
          "    mine:latest/ store\n"
          "      model o/blobs/sha256-" A64 " store\n",
          {"file", LIBRARY "llama3.2/3b",
           MANIFEST(
               LAYER("license", B64) "," LAYER("model", A64) "," LAYER("template", B64) "," LAYER(
                   "adapter",
                   A64) "," LAYER("license",
                                  B64) "," LAYER("adapter",
                                                 "ccccccccccccccccccccccccccccccccccccccccccccccccc"
                                                 "cccccccccccc"
                                                 "ccc") "," LAYER("system",
                                                                  "dddddddddddddddddddddddddddddddd"
                                                                  "dddddddddddddddddddddddddddddd"
                                                                  "dd") "," LAYER("unknown", A64))},
          {"file", LIBRARY "cloud/1", MANIFEST(LAYER("params", B64))},
          {"file", LIBRARY "broken/1", "not JSON"}, {"file", LIBRARY "llama3.2/.DS_Store", ""},
          {"file", "o/manifests/registry.ollama.ai/me/mine/latest", MANIFEST(LAYER("model", A64))},
          {"file", "o/manifests/host.example/library/far/q4", MANIFEST(LAYER("model", A64))},
          {"link", LIBRARY "llama3.2/linked", "3b"}, {"fifo", LIBRARY "llama3.2/fifo", ""},
          {"link", LIBRARY "up", "../../.."}, FILE("o/blobs/sha256-" A64),
          FILE("o/blobs/sha256:" B64), FILE("o/blobs/sha256-" A64 "-partial"));
}

/* In a mount that others can access, no link of another user leads out of it. */
static void test_strict(void)
{
    static const struct line lines[] = {FILE("in/m.gguf"),
                                        FILE("out/o.gguf"),
                                        {"link", "in/l.gguf", "m.gguf"},
                                        {"link", "in/mine.gguf", "../out/o.gguf"},
                                        {"link", "in/theirs.gguf", "../out/o.gguf"},
                                        {"link", "in/dir", "../out"}};
    struct reach r;
    struct place p;
    struct item i;
    char link[4096], in[4096];
    if (geteuid() != 0)
        return; /* only root can create links that belong to other users */
    shelf_top_make();
    for (size_t n = 0; n < sizeof(lines) / sizeof(lines[0]); n++)
        shelf_top_add(lines[n].what, lines[n].name, lines[n].text);
    (void)snprintf(in, sizeof(in), "%s/in", shelf_top);
    static const char *const theirs[] = {"theirs.gguf", "dir", "l.gguf"};
    for (size_t n = 0; n < 3; n++) {
        (void)snprintf(link, sizeof(link), "%s/in/%s", shelf_top, theirs[n]);
        CU_ASSERT_EQUAL(lchown(link, 65534, 65534), 0);
    }
    CU_ASSERT_EQUAL_FATAL(reach_begin(&r, in, true, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(place_top(&r, &p), 0);
    static const struct {
        const char *name;
        int found, error;
    } rows[] = {{"m.gguf", 0, 0},
                {"l.gguf", 0, 0},
                {"mine.gguf", 0, 0},
                {"theirs.gguf", 0, -EACCES},
                {"dir", -ENOENT, 0}};
    for (size_t n = 0; n < sizeof(rows) / sizeof(rows[0]); n++) {
        int e = place_find(&r, &p, rows[n].name, &i);
        CU_ASSERT_EQUAL(e, rows[n].found);
        if (e == 0) {
            CU_ASSERT_EQUAL(i.error.code, rows[n].error);
            item_free(&i);
        }
    }
    place_free(&p);
    reach_end(&r);
    shelf_top_remove();
}

/* A name that is not shown is not found, nor is a place that was removed or became a link. */
static void test_not_there(void)
{
    static const char *const names[] = {"",      ".",         "..",      "%2E",       "%2E%2E",
                                        "x%2Fy", "a/../b",    ".hidden", "m%2Egguf",  "m.gguf~2",
                                        "org",   "none.gguf", "sub~2",   "%2Ehidden", "%00"};
    struct reach r;
    struct place p;
    struct item i;
    struct listing l;
    char sub[4096];
    shelf_top_make();
    shelf_top_add("file", "m.gguf", "GGUF");
    shelf_top_add("file", ".hidden", "GGUF");
    shelf_top_add("file", "sub/n.gguf", "GGUF");
    CU_ASSERT_EQUAL_FATAL(reach_begin(&r, shelf_top, false, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(place_top(&r, &p), 0);
    for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++)
        CU_ASSERT_EQUAL(place_find(&r, &p, names[n], &i), -ENOENT);
    CU_ASSERT_EQUAL_FATAL(place_find(&r, &p, "sub", &i), 0);
    (void)snprintf(sub, sizeof(sub), "%s/sub/n.gguf", shelf_top);
    CU_ASSERT_EQUAL(unlink(sub), 0);
    (void)snprintf(sub, sizeof(sub), "%s/sub", shelf_top);
    CU_ASSERT_EQUAL(rmdir(sub), 0);
    CU_ASSERT_EQUAL(place_list(&r, &i.place, &l), -ENOENT);
    CU_ASSERT_EQUAL(symlink("/", sub), 0);
    CU_ASSERT_EQUAL(place_list(&r, &i.place, &l), -ENOENT);
    item_free(&i);
    place_free(&p);
    reach_end(&r);
    shelf_top_remove();
}

/* Finding one of many split models requires only one listing of their directory. */
static void test_many(void)
{
    enum { MANY = 2000 };
    struct reach r;
    struct place p;
    struct item i;
    char name[64];
    shelf_top_make();
    for (unsigned n = 0; n < MANY; n++) {
        (void)snprintf(name, sizeof(name), "m%u-00001-of-00002.gguf", n);
        shelf_top_add("file", name, "GGUF");
    }
    CU_ASSERT_EQUAL_FATAL(reach_begin(&r, shelf_top, false, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(place_top(&r, &p), 0);
    alloc_count();
    for (unsigned n = 0; n < MANY; n += 500) {
        (void)snprintf(name, sizeof(name), "m%u.gguf", n);
        CU_ASSERT_EQUAL_FATAL(place_find(&r, &p, name, &i), 0);
        CU_ASSERT_EQUAL(i.shards, 2);
        item_free(&i);
    }
    CU_ASSERT_TRUE(alloc_calls() < 5 * MANY); /* each of the four listings keeps all names */
    place_free(&p);
    reach_end(&r);
    shelf_top_remove();
}

/* If an allocation fails, the call fails without a leak. */
static void test_no_memory(void)
{
    struct reach r;
    struct place p;
    shelf_top_make();
    shelf_top_add("file", "a.gguf", "GGUF");
    shelf_top_add("file", "s-00001-of-00002.gguf", "GGUF");
    shelf_top_add("file", "models--org--name/snapshots/" C1 "/m.gguf", "GGUF");
    CU_ASSERT_EQUAL_FATAL(reach_begin(&r, shelf_top, false, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(place_top(&r, &p), 0);
    for (unsigned at = 1, hit = 1; hit; at++) {
        struct listing l = LISTING_INIT;
        alloc_count();
        alloc_arm(at, false);
        int e = place_list(&r, &p, &l);
        for (size_t n = 0; e == 0 && n < l.n; n++) {
            struct item i;
            e = place_find(&r, &p, l.entry[n].name, &i);
            if (e == 0)
                item_free(&i);
            e = e == -ENOENT && !strcmp(l.entry[n].name, "models--org--name") ? 0 : e;
        }
        hit = alloc_disarm();
        CU_ASSERT_TRUE(e == 0 || (hit && e == -ENOMEM));
        CU_ASSERT_TRUE(hit || l.n == 4);
        listing_free(&l);
        CU_ASSERT_TRUE(alloc_live() <= 0); /* libc's own allocations do not count */
    }
    place_free(&p);
    reach_end(&r);
    shelf_top_remove();
}

static CU_TestInfo tests[] = {
    {"models in plain directories are shown", test_plain},
    {"names that collide get numbers", test_collisions},
    {"links to models and directories are followed", test_links},
    {"directories that link to each other are shown once", test_mutual_links},
    {"a chain of links is followed to a limited depth", test_many_links},
    {"a repository that was moved is found through its link", test_moved_repos},
    {"a hidden directory is shown if it is a store", test_hidden_stores},
    {"a Hugging Face cache is shown by repository", test_hub},
    {"names that collide in a Hugging Face cache get numbers", test_hub_collisions},
    {"an ollama store is shown by model and tag", test_ollama},
    {"the layers of an ollama model are shown", test_layers},
    {"links of other users do not lead out of the directory", test_strict},
    {"names that are not shown are not found", test_not_there},
    {"many models are found without a listing for each", test_many},
    {"an allocation that fails makes the call fail", test_no_memory},
    CU_TEST_INFO_NULL,
};

CU_MAIN("shelf", tests)

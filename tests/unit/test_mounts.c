/* SPDX-License-Identifier: MIT */
/* shelf/mountinfo, mount/: the kernel's list of mounts; pending signals that should stop a program;
 * options passed to libfuse and fusermount3. */
#include "cu_test.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/bytes.h"
#include "build_gguf.h"
#include "model_dir.h"
#include "mount/options.h"
#include "mount/proc.h"
#include "shelf/mountinfo.h"

TEST("escapes are decoded, and what is none is left as it is")
{
    static const struct {
        const char *text, *path;
    } rows[] = {
        {"\\", "\\"},      {"\\04", "\\04"},     {"\\400", "\\400"},        {"\\08", "\\08"},
        {"\\377", "\377"}, {"a\\x41", "a\\x41"}, {"a\\040b\\134", "a b\\"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char line[64];
        struct mount m;
        (void)snprintf(line, sizeof(line), "1 2 0:3 / %s rw - type source rw", rows[i].text);
        CU_ASSERT_TRUE_FATAL(mount_parse(line, &m));
        CU_ASSERT_STRING_EQUAL(m.at, rows[i].path);
    }
}

TEST("a line of the mount table is parsed")
{
    static const char with_tags[] =
        "36 25 0:77 / /mnt/a\\040b rw,nosuid shared:7 master:1 - fuse.ggufs /models/m\\134.gguf "
        "ro,user_id=1000,group_id=5,default_permissions";
    static const char empty_source[] = "36 25 8:1 /sub /mnt rw - tmpfs  rw";
    char line[256];
    struct mount m;
    (void)strcpy(line, with_tags);
    CU_ASSERT_TRUE_FATAL(mount_parse(line, &m));
    CU_ASSERT_EQUAL(m.id, 36);
    CU_ASSERT_EQUAL(m.dev, makedev(0, 77));
    CU_ASSERT_STRING_EQUAL(m.at, "/mnt/a b");
    CU_ASSERT_STRING_EQUAL(m.source, "/models/m\\.gguf");
    CU_ASSERT_TRUE(mount_is_ggufs(&m));
    CU_ASSERT_TRUE(mount_option(m.super, "ro") && mount_option(m.super, "default_permissions"));
    CU_ASSERT_FALSE(mount_option(m.super, "rw") || mount_option(m.super, "default"));
    CU_ASSERT_EQUAL(mount_number(m.super, "user_id"), 1000);
    CU_ASSERT_EQUAL(mount_number(m.super, "user"), -1);
    CU_ASSERT_EQUAL(mount_number(m.super, "ro"), -1);
    (void)strcpy(line, empty_source);
    CU_ASSERT_TRUE_FATAL(mount_parse(line, &m));
    CU_ASSERT_STRING_EQUAL(m.source, "");
    CU_ASSERT_FALSE(mount_is_ggufs(&m));
}

TEST("malformed lines of the mount table are refused")
{
    static const char *const lines[] = {
        "",
        "36",
        "36 25 0:77 / /mnt rw",
        "36 25 0:77 / /mnt rw shared:7",
        "36 25 0:77 / /mnt rw -",
        "36 25 0:77 / /mnt rw - fuse source",
        "36 25 nonsense / /mnt rw - fuse source rw",
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        char line[256];
        struct mount m;
        (void)strcpy(line, lines[i]);
        CU_ASSERT_FALSE(mount_parse(line, &m));
    }
}

/* The root is a mount, but none of ggufs. */
TEST("the mount table of this process is read")
{
    CLEANUP(mounts_free) struct mounts ms;
    CU_ASSERT_EQUAL_FATAL(mounts_load(&ms), 0);
    CU_ASSERT_TRUE(ms.n > 0);
    CU_ASSERT_PTR_NULL(mounts_around(&ms, "/"));
}

TEST("of several mounts on a directory, the last one counts")
{
    struct mount m[] = {{.id = 1, .at = "/"}, {.id = 2, .at = "/a"}, {.id = 3, .at = "/a"}};
    const struct mounts ms = {.mount = m, .n = sizeof(m) / sizeof(m[0])};
    CU_ASSERT_EQUAL(mounts_at(&ms, "/a")->id, 3);
    CU_ASSERT_EQUAL(mounts_at(&ms, "/")->id, 1);
    CU_ASSERT_PTR_NULL(mounts_at(&ms, "/a/b"));
}

#define BIT(signal) ((uint64_t)1 << ((signal)-1))

struct sets {
    uint64_t own, shared, blocked, ignored, caught;
};

static bool stops(struct sets s)
{
    char text[512];
    (void)snprintf(text, sizeof(text),
                   "Name:\tx\nThreads:\t1\nSigQ:\t0/7\nSigPnd:\t%016llx\nShdPnd:\t%016llx\n"
                   "SigBlk:\t%016llx\nSigIgn:\t%016llx\nSigCgt:\t%016llx\nCapInh:\t0\n",
                   (unsigned long long)s.own, (unsigned long long)s.shared,
                   (unsigned long long)s.blocked, (unsigned long long)s.ignored,
                   (unsigned long long)s.caught);
    return stops_by_status(text);
}

static const int asking[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
static const int fatal[] = {SIGKILL, SIGABRT, SIGUSR1, SIGALRM, SIGPIPE, SIGXCPU};
static const int harmless[] = {SIGCHLD, SIGCONT, SIGURG,  SIGWINCH,
                               SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU};

TEST("pending signals end a wait unless they are ignored")
{
    CU_ASSERT_FALSE(stops((struct sets){0}));
    for (size_t i = 0; i < COUNT(asking); i++) {
        const uint64_t bit = BIT(asking[i]);
        CU_ASSERT_TRUE(stops((struct sets){.own = bit}));
        CU_ASSERT_TRUE(stops((struct sets){.shared = bit}));
        CU_ASSERT_TRUE(stops((struct sets){.shared = bit, .caught = bit}));
        CU_ASSERT_FALSE(stops((struct sets){.shared = bit, .blocked = bit}));
        CU_ASSERT_FALSE(stops((struct sets){.own = bit, .ignored = bit}));
    }
    for (size_t i = 0; i < COUNT(fatal); i++) {
        const uint64_t bit = BIT(fatal[i]);
        CU_ASSERT_TRUE(stops((struct sets){.own = bit}));
        CU_ASSERT_FALSE(stops((struct sets){.own = bit, .caught = bit}));
    }
    for (size_t i = 0; i < COUNT(harmless); i++) {
        const uint64_t bit = BIT(harmless[i]);
        CU_ASSERT_FALSE(stops((struct sets){.shared = bit}));
        CU_ASSERT_FALSE(stops((struct sets){.shared = bit, .caught = bit}));
        CU_ASSERT_TRUE(stops((struct sets){.shared = bit, .own = BIT(SIGKILL)}));
    }
}

/* If it is unknown whether a signal is pending, the wait ends, and no edit is lost. */
TEST("an unknown process ends a wait")
{
    CU_ASSERT_TRUE(stops_thread(0));
    CU_ASSERT_TRUE(stops_by_status("Name:\tx\n"));
    CU_ASSERT_FALSE(stops_thread(getpid()));
}

/* ---- a mounted model ---- */

static struct place place;
static char model[256]; /* its path */
static struct shelf *shelf;

static void mount_model(const char *name)
{
    const struct shelf_options o = {.strict = false};
    struct content c;
    struct build b = build_of(3, false);
    build_tensor(&b, "t", 0, (uint64_t[]){8}, 1, NULL, 32);
    c.bytes = build_finish(&b, &c.n);
    make_place(&place, &c);
    free(c.bytes);
    (void)snprintf(model, sizeof(model), "%s%s", place.folder, name);
    CU_ASSERT_EQUAL_FATAL(rename(place.model, model), 0);
    CU_ASSERT_EQUAL_FATAL(shelf_open(model, &o, &shelf, NULL), 0);
}

static void unmount_model(void)
{
    CU_ASSERT_EQUAL(shelf_finish(shelf), 0);
    shelf_close(shelf);
    CU_ASSERT_EQUAL(rename(model, place.model), 0);
    drop_place(&place);
}

/* Parse and complete options as a mount does. Returns the list after the last -o. */
static const char *finished(struct mnt_options *o, const char *given)
{
    char program[] = "ggufs", dash[] = "-o", path[] = "m.gguf", at[] = "/mnt", list[512];
    char *argv[] = {program, dash, list, path, at, NULL};
    (void)strcpy(list, given);
    CU_ASSERT_EQUAL_FATAL(mnt_options_parse(5, argv, o), 0);
    CU_ASSERT_EQUAL_FATAL(mnt_options_finish(o, shelf), 0);
    CU_ASSERT_STRING_EQUAL(o->args.argv[o->args.argc - 2], "-o");
    return o->args.argv[o->args.argc - 1];
}

/* What libfuse finds in the list: the name, and how many options. */
struct read_list {
    char name[512];
    unsigned n;
};

static int keep_name(void *data, const char *arg, int key, struct fuse_args *out)
{
    struct read_list *r = data;
    (void)key;
    (void)out;
    r->n++;
    if (strncmp(arg, "fsname=", 7) == 0)
        (void)strcpy(r->name, arg + 7);
    return 1;
}

/* libfuse finds the name, and nothing injected through it. */
TEST("names with commas, quotes and backslashes survive the option list")
{
    static const char *const names[] = {
        "/m.gguf",      "/a,b.gguf",     "/a\\b.gguf", "/a\\,b.gguf", "/\"a,b\" 'c'.gguf",
        "/a\\101.gguf", "/ends,in\\",    "/,",         "/\n\t.gguf",  "/a,allow_other,x=\\\\",
        "/a=b,subtype", "/fsname=b.gguf"};
    unsigned n = 0;
    for (size_t i = 0; i < COUNT(names); i++) {
        struct read_list r = {.n = 0};
        struct mnt_options o;
        mount_model(names[i]);
        (void)finished(&o, "rw");
        CU_ASSERT_EQUAL(fuse_opt_parse(&o.args, &r, NULL, keep_name), 0);
        CU_ASSERT_STRING_EQUAL(r.name, model);
        CU_ASSERT_TRUE(r.n == n || i == 0);
        n = r.n;
        mnt_options_free(&o);
        unmount_model();
    }
}

/* Options that some version of libfuse or fusermount3 refuses are dropped, or refused by name
 * instead of being passed on. */
TEST("options that some fusermount3 refuses are dropped")
{
    static const char *const dropped[] = {"atime",    "nodiratime", "diratime",    "relatime",
                                          "lazytime", "nofail",     "strictatime", "user=me"};
    char list[512] = "noatime";
    struct mnt_options o;
    for (size_t i = 0; i < COUNT(dropped); i++) {
        (void)strcat(list, ",");
        (void)strcat(list, dropped[i]);
    }
    mount_model("/m.gguf");
    (void)finished(&o, list);
    CU_ASSERT_STRING_EQUAL(o.args.argv[2], "noatime");
    for (int k = 0; k < o.args.argc - 1; k++) { /* the last has the options common to all mounts */
        CU_ASSERT_PTR_NULL(strchr(o.args.argv[k], ','));
        for (size_t i = 0; i < COUNT(dropped); i++)
            CU_ASSERT_STRING_NOT_EQUAL(o.args.argv[k], dropped[i]);
    }
    mnt_options_free(&o);
    unmount_model();
}

static void check_refused(const char *given, const char *why)
{
    char program[] = "ggufs", dash[] = "-o", path[] = "m.gguf", at[] = "/mnt", list[64];
    char *argv[] = {program, dash, list, path, at, NULL};
    struct mnt_options o;
    (void)strcpy(list, given);
    CU_ASSERT_EQUAL(mnt_options_parse(5, argv, &o), -EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(o.err.msg, why));
    mnt_options_free(&o);
}

TEST("unknown and unsafe options are refused")
{
    check_refused("large_read", "unknown option 'large_read'");
    check_refused("nonempty", "unknown option 'nonempty'");
    /* libfuse passes the subtype to fusermount3 unescaped */
    check_refused("subtype=a\\,b", "option subtype: must be a name without commas or backslashes");
    check_refused("subtype=a\\\\b", "option subtype: must be a name without commas or backslashes");
}

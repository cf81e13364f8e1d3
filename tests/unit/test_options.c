/* SPDX-License-Identifier: MIT */
/* mount/options: options passed to libfuse and fusermount3. */
#include "cu_test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "build_gguf.h"
#include "model_dir.h"
#include "mount/options.h"

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

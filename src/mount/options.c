/* SPDX-License-Identifier: MIT */
/* The command line of a mount: see options.h. */
#include "mount/options.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/count.h"
#include "base/nearest.h"
#include "edit/history.h"
#include "mount/catch.h"

#define SET(template, field, value)                          \
    {                                                        \
        template, offsetof(struct mnt_options, field), value \
    }
#define OPT(template, field) SET(template, field, 1)

static const struct fuse_opt templates[] = {
    OPT("-h", help),
    OPT("--help", help),
    OPT("-V", version),
    OPT("--version", version),
    OPT("auto_unmount", auto_unmount),
    OPT("partial", partial),
    OPT("ro", ro),
    SET("rw", ro, 0),
    OPT("commit=%s", commit),
    OPT("relayout=%s", relayout),
    OPT("reserve=%s", reserve),
    OPT("hardlinks=%s", hardlinks),
    OPT("backup", tilde),
    OPT("backup=%s", backup),
    OPT("hashnames=%s", hashnames),
    OPT("views=%s", views),
    OPT("tensors=%s", tensors),
    OPT("imatrix=%s", imatrix),
    OPT("uid=%s", uid),
    OPT("gid=%s", gid),
    OPT("umask=%s", umask),
    OPT("readahead=%s", kib),
    OPT("idle=%s", idle_for),
    OPT("history=%s", states),
    OPT("fsname=%s", fsname),
    OPT("subtype=%s", subtype),
    FUSE_OPT_END,
};

/* Options of libfuse and the kernel. A name that ends in = takes a value. */
static const char *const passed[] = {
    "-f",
    "-d",
    "-s",
    "debug",

    "allow_other",
    "allow_root",
    "default_permissions",
    "max_threads=",
    "max_idle_threads=",
    "clone_fd",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "exec",
    "noexec",
    "async",
    "sync",
    "dirsync",
    "noatime",
    "nodiratime",
    "context=",
    "fscontext=",
    "defcontext=",
    "rootcontext=",
};

/* Options that mount(8), fstab and systemd pass along for themselves, or that were copied from lines
 * of fstab for disks and swap. Names that begin with x- or X- are dropped too. */
static const char *const dropped[] = {
    "auto",      "noauto",   "user",       "nouser",      "users",    "owner",      "group",
    "user=",     "defaults", "nofail",     "fail",        "_netdev",  "_rnetdev",   "comment=",
    "atime",     "relatime", "norelatime", "strictatime", "lazytime", "nolazytime", "nostrictatime",
    "diratime",  "iversion", "noiversion", "silent",      "loud",     "mand",       "nomand",
    "helper=",   "uhelper=", "discard",    "nodiscard",   "discard=", "pri=",       "sw",
    "symfollow", "acl",      "noacl",      "user_xattr",  "barrier",  "nobarrier",  "barrier=",
    "quota",     "noquota",  "usrquota",   "grpquota",    "prjquota", "errors=",
};

/* Options that are commands: main() looks for them before any other. */
static const char *const commands[] = {"--unmount", "--list",    "--info", "--check",
                                       "--recover", "--history", "--undo"};

static bool in_list(const char *const *list, size_t n, const char *arg)
{
    size_t name = strcspn(arg, "=");
    bool value = arg[name] == '=';
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(list[i]);
        bool takes = list[i][len - 1] == '=';
        if (takes == value && len - takes == name && strncmp(list[i], arg, name) == 0)
            return true;
    }
    return false;
}

/* The name alone, without dashes before it and a value or format behind it. */
static const char *bare(const char *option, size_t *len)
{
    option += strspn(option, "-");
    *len = strcspn(option, "=");
    return option;
}

/* All options that a mistyped one may mean, by number; NULL past the last. */
static const char *candidate(size_t i)
{
    const size_t n = COUNT(templates) - 1;
    if (i < n)
        return templates[i].templ;
    if (i - n < COUNT(passed))
        return passed[i - n];
    return i - n - COUNT(passed) < COUNT(commands) ? commands[i - n - COUNT(passed)] : NULL;
}

static int unknown(struct mnt_options *o, const char *arg)
{
    char shown[SHOW_MAX];
    size_t len;
    const char *name = bare(arg, &len), *other;
    struct nearest near = nearest_to(name, len);
    for (size_t i = 0; (other = candidate(i)); i++) {
        size_t n;
        const char *bare_other = bare(other, &n);
        nearest_offer(&near, bare_other, n, i);
    }
    (void)show(shown, arg, strlen(arg));
    if (!near.found)
        return err_set(&o->err, -EINVAL, "unknown option '%s' (see ggufs --help)", shown);
    other = candidate(near.which);
    if (strcmp(other, arg) == 0)
        return err_set(&o->err, -EINVAL, "option %s must be the first (see ggufs --help)", other);
    return err_set(&o->err, -EINVAL,
                   "unknown option '%s', did you mean '%s%.*s'? (see ggufs --help)", shown,
                   other[0] == '-' ? "" : "-o ", (int)strcspn(other, "%"), other);
}

static int on_path(struct mnt_options *o, const char *arg)
{
    char **place = !o->model ? &o->model : !o->mountpoint ? &o->mountpoint : NULL;
    char shown[SHOW_MAX];
    if (!place)
        return err_set(&o->err, -EINVAL,
                       "'%s': one argument too many after MODEL and MOUNTPOINT (see ggufs --help)",
                       show(shown, arg, strlen(arg)));
    *place = strdup(arg);
    return *place ? 0 : err_set(&o->err, -ENOMEM, "no memory");
}

static int on_option(void *data, const char *arg, int key, struct fuse_args *out)
{
    struct mnt_options *o = data;
    (void)out;
    if (key == FUSE_OPT_KEY_NONOPT)
        return on_path(o, arg) < 0 ? -1 : 0;
    o->allow_other |= strcmp(arg, "allow_other") == 0;
    o->set_threads |= strncmp(arg, "max_threads=", strlen("max_threads=")) == 0;
    if (in_list(passed, COUNT(passed), arg))
        return 1;
    if (in_list(dropped, COUNT(dropped), arg) || strncmp(arg, "x-", 2) == 0 ||
        strncmp(arg, "X-", 2) == 0)
        return 0;
    if (strcmp(arg, "remount") == 0)
        (void)err_set(&o->err, -EINVAL,
                      "option remount: not supported; unmount (ggufs --unmount) and mount again");
    else
        (void)unknown(o, arg);
    return -1;
}

/* The place of a word in a list; -1: not in the list. NULL means the first word. */
static int word(const char *value, const char *const *list)
{
    for (int i = 0; list[i]; i++)
        if (!value || strcmp(value, list[i]) == 0)
            return i;
    return -1;
}

static int bad_word(struct mnt_options *o, const char *name, const char *value, const char *takes)
{
    char shown[SHOW_MAX];
    bool seconds = strcmp(name, "commit") == 0 && isdigit((unsigned char)value[0]);
    return err_set(&o->err, -EINVAL, "option %s: must be %s, not '%s'%s", name, takes,
                   show(shown, value, strlen(value)), seconds ? " (seconds are for ext4)" : "");
}

/* "auto", or bytes with an optional K, M or G. False: invalid. */
static bool parse_size(const char *text, uint64_t *ret)
{
    static const char units[] = "KMG";
    char *end;
    if (!text || strcmp(text, "auto") == 0) {
        *ret = EDIT_RESERVE_AUTO;
        return true;
    }
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (end == text || text[0] == '-' || errno || (*end && (!unit || end[1])))
        return false;
    unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
    *ret = (uint64_t)n << shift;
    return n <= EDIT_RESERVE_MAX >> shift;
}

/* Check the options whose values are words. */
static int check_words(struct mnt_options *o)
{
    static const char *const commits[] = {"auto", "close", "sync", NULL};
    static const char *const layouts[] = {"auto", "reflink", "inplace", "copy", NULL};
    static const char *const links[] = {"refuse", "break", NULL};
    static const char *const hashes[] = {"refuse", "edit", NULL};
    static const char *const views[] = {"std", "raw", "all", NULL};
    int commit = word(o->commit, commits), layout = word(o->relayout, layouts);
    int hard = word(o->hardlinks, links), hash = word(o->hashnames, hashes);
    static const char *const tensors[] = {"read", "edit", NULL};
    int view = word(o->views, views), tensor = word(o->tensors, tensors);
    if (commit < 0)
        return bad_word(o, "commit", o->commit, "auto, close or sync");
    if (layout < 0)
        return bad_word(o, "relayout", o->relayout, "auto, reflink, inplace or copy");
    if (hard < 0)
        return bad_word(o, "hardlinks", o->hardlinks, "refuse or break");
    if (hash < 0)
        return bad_word(o, "hashnames", o->hashnames, "refuse or edit");
    if (view < 0)
        return bad_word(o, "views", o->views, "std, raw or all");
    if (tensor < 0)
        return bad_word(o, "tensors", o->tensors, "read or edit");
    if (!parse_size(o->reserve, &o->tree.reserve))
        return bad_word(o, "reserve", o->reserve, "auto or bytes (K, M, G), at most 64M");
    if (o->backup && (!*o->backup || strchr(o->backup, '/')))
        return bad_word(o, "backup", o->backup, "what a file name can end in");
    o->tree.backup = o->backup ? o->backup : o->tilde ? "~" : NULL;
    o->tree.commit = (enum live_commit)commit;
    o->tree.strategy = (enum edit_strategy)layout;
    o->tree.break_hardlinks = hard == 1;
    o->tree.edit_hash_names = hash == 1;
    o->tree.views = (enum files_views)view;
    o->tree.tensors = tensor == 1;
    return 0;
}

/* Digits only, and at most `most`: scanf(3), and so libfuse, reads "1x" as 1 and 2^32 as root. */
static unsigned number(struct mnt_options *o, const char *name, const char *text, int base,
                       unsigned most)
{
    char shown[SHOW_MAX], *end;
    if (!text)
        return 0;
    errno = 0;
    unsigned long n = strtoul(text, &end, base);
    if (text[0] >= '0' && text[0] <= '9' && !errno && !*end && n <= most)
        return (unsigned)n;
    (void)err_set(&o->err, -EINVAL,
                  base == 8 ? "option %s: '%s' is not an octal number up to %o"
                            : "option %s: '%s' is not a number up to %u",
                  name, show(shown, text, strlen(text)), most);
    return 0;
}

/* -1 is not a valid user or group. */
static int check_numbers(struct mnt_options *o)
{
    o->tree.uid = (uid_t)number(o, "uid", o->uid, 10, UINT_MAX - 1);
    o->tree.gid = (gid_t)number(o, "gid", o->gid, 10, UINT_MAX - 1);
    o->tree.umask = (mode_t)number(o, "umask", o->umask, 8, 0777);
    o->readahead = number(o, "readahead", o->kib, 10, INT_MAX);
    o->idle = number(o, "idle", o->idle_for, 10, INT_MAX);
    o->tree.history =
        o->states ? number(o, "history", o->states, 10, HISTORY_KEEP_MAX) : HISTORY_KEEP;
    o->tree.set_uid = o->uid != NULL;
    o->tree.set_gid = o->gid != NULL;
    o->tree.set_umask = o->umask != NULL;
    o->set_readahead = o->kib != NULL;
    return o->err.code;
}

static bool is_empty(const char *operand)
{
    return operand && !*operand;
}

/* Check values that fuse_opt_parse() only stores. */
static int check_values(struct mnt_options *o)
{
    if (!o->help && !o->version && !o->model)
        return err_set(&o->err, -EINVAL, "MODEL and MOUNTPOINT are missing (see ggufs --help)");
    if (!o->help && !o->version && !o->mountpoint)
        return err_set(&o->err, -EINVAL, "MOUNTPOINT is missing (see ggufs --help)");
    const char *empty = is_empty(o->model)        ? "MODEL"
                        : is_empty(o->mountpoint) ? "MOUNTPOINT"
                                                  : NULL;
    if (empty)
        return err_set(&o->err, -EINVAL, "%s is empty (see ggufs --help)", empty);
    return check_words(o);
}

/* libfuse writes the name of a wrong value to standard error. */
static int parse_args(struct mnt_options *o)
{
    char why[256];
    struct caught c = catch_begin();
    bool ok = fuse_opt_parse(&o->args, o, templates, on_option) == 0 &&
              fuse_parse_cmdline(&o->args, &o->cmd) == 0;
    catch_end(&c, why, sizeof(why));
    if (ok)
        return 0;
    return o->err.code ? o->err.code : err_set(&o->err, -EINVAL, "%s", why);
}

/* Before the mount: it may be named from the folder that the program is in. */
static int open_imatrix(struct mnt_options *o)
{
    char shown[SHOW_MAX];
    if (!o->tree.tensors)
        return err_set(&o->err, -EINVAL, "option imatrix: is of use with tensors=edit only");
    const int r = imatrix_open(o->imatrix, &o->importances, &o->err);
    o->tree.imatrix = o->importances;
    return r == 0 ? 0
                  : err_prefix(&o->err, r, "option imatrix: %s",
                               show(shown, o->imatrix, strlen(o->imatrix)));
}

int mnt_options_parse(int argc, char **argv, struct mnt_options *o)
{
    struct fuse_args given = FUSE_ARGS_INIT(argc, argv);
    *o = (struct mnt_options){.args = given};
    int r = parse_args(o);
    if (r == 0)
        r = check_values(o);
    if (r == 0)
        r = check_numbers(o);
    if (r < 0)
        return r;
    if (o->imatrix)
        r = open_imatrix(o);
    o->tree.read_only = o->ro;
    o->tree.partial = o->partial;
    return r;
}

/* Add `name=value` to a list of -o options, commas and backslashes of the value escaped. */
static int add_value(char **opts, const char *name, const char *value)
{
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    buf_printf(&b, "%s=%s", name, value);
    buf_char(&b, '\0');
    if (buf_error(&b))
        return buf_error(&b);
    return fuse_opt_add_opt_escaped(opts, (const char *)b.data) < 0 ? -ENOMEM : 0;
}

int mnt_options_finish(struct mnt_options *o, const struct shelf *s)
{
    char *opts = NULL;
    int r = add_value(&opts, "fsname", o->fsname ? o->fsname : shelf_path(s));
    if (r == 0)
        r = add_value(&opts, "subtype", o->subtype ? o->subtype : "ggufs");
    if (r == 0 && (fuse_opt_add_opt(&opts, "default_permissions") < 0 ||
                   fuse_opt_add_opt(&opts, shelf_writable(s) ? "rw" : "ro") < 0 ||
                   fuse_opt_add_arg(&o->args, "-o") < 0 || fuse_opt_add_arg(&o->args, opts) < 0))
        r = -ENOMEM;
    free(opts);
    return r;
}

void mnt_options_free(struct mnt_options *o)
{
    fuse_opt_free_args(&o->args);
    free(o->cmd.mountpoint);
    free(o->model);
    free(o->mountpoint);
    free(o->fsname);
    free(o->subtype);
    free(o->views);
    free(o->tensors);
    free(o->imatrix);
    imatrix_free(o->importances);
    free(o->commit);
    free(o->relayout);
    free(o->reserve);
    free(o->hardlinks);
    free(o->backup);
    free(o->hashnames);
    free(o->uid);
    free(o->gid);
    free(o->umask);
    free(o->kib);
    free(o->idle_for);
    free(o->states);
}

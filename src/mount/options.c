/* SPDX-License-Identifier: MIT */
/* The command line of a mount: see options.h. */
#include "mount/options.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/err.h"
#include "edit/history.h"

/* ---- the table ---- */

static const struct option_row rows[] = {OPTION_ROWS};

size_t option_place(const struct option_row *row)
{
    return (size_t)(row - rows);
}

const struct option_row *option_find(const char *arg, unsigned kinds, const char **value)
{
    const size_t n = strcspn(arg, "=");
    const struct option_row *found = NULL;
    *value = arg[n] ? arg + n + 1 : NULL;
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (!(kinds & OF_KIND(rows[i].kind)) || strncmp(rows[i].name, arg, n) != 0 ||
            rows[i].name[n])
            continue;
        if (!rows[i].values == !*value)
            return &rows[i];
        found = &rows[i];
    }
    return found;
}

const struct option_row *option_nearest(const char *arg, unsigned kinds, unsigned takes)
{
    const char *bare = arg + strspn(arg, "-");
    struct nearest near = nearest_to(bare, strcspn(bare, "="));
    for (size_t i = 0; i < COUNT(rows); i++) {
        const char *name = rows[i].name + strspn(rows[i].name, "-");
        if ((kinds & OF_KIND(rows[i].kind)) && (rows[i].kind != KIND_OPTION || (takes & (1u << i))))
            nearest_offer(&near, name, strlen(name), i);
    }
    return near.found ? &rows[near.which] : NULL;
}

int option_word(const struct option_row *row, const char *word)
{
    const size_t len = strlen(word);
    const char *p = row->values;
    for (int i = 0;; i++, p++) {
        const size_t n = strcspn(p, "|");
        if (n == len && memcmp(p, word, n) == 0 && !isupper((unsigned char)*p))
            return i;
        p += n;
        if (!*p)
            return -1;
    }
}

/* ---- parsing ---- */

static int unknown(struct mnt_options *o, const char *arg)
{
    char shown[SHOW_MAX];
    const char *value;
    const unsigned all =
        OF_KIND(KIND_COMMAND) | OF_KIND(KIND_FLAG) | OF_KIND(KIND_MOUNT) | OF_KIND(KIND_FUSE);
    const struct option_row *command = option_find(arg, OF_KIND(KIND_COMMAND), &value),
                            *near = option_nearest(arg, all, 0);
    if (command)
        return err_set(&o->err, -EINVAL, "option %s must be the first (see ggufs --help)",
                       command->name);
    (void)show(shown, arg, strlen(arg));
    if (!near)
        return err_set(&o->err, -EINVAL, "unknown option '%s' (see ggufs --help)", shown);
    return err_set(&o->err, -EINVAL,
                   "unknown option '%s', did you mean '%s%s%s'? (see ggufs --help)", shown,
                   near->name[0] == '-' ? "" : "-o ", near->name, near->values ? "=" : "");
}

static int on_path(struct mnt_options *o, const char *arg)
{
    char **place = !o->model ? &o->model : !o->mountpoint ? &o->mountpoint : NULL;
    char shown[SHOW_MAX], command[16];
    const char *value;
    const int n = snprintf(command, sizeof(command), "--%s", arg);
    if (!o->model && n < (int)sizeof(command) && access(arg, F_OK) < 0 &&
        option_find(command, OF_KIND(KIND_COMMAND), &value))
        return err_set(&o->err, -EINVAL, "'%s': did you mean '%s'? (see ggufs --help)", arg,
                       command);
    if (!place)
        return err_set(&o->err, -EINVAL,
                       "'%s': one argument too many after MODEL and MOUNTPOINT (see ggufs --help)",
                       show(shown, arg, strlen(arg)));
    *place = strdup(arg);
    return *place ? 0 : err_set(&o->err, -ENOMEM, "no memory");
}

/* Store the value of an option, replacing an earlier one. */
static int keep_value(struct mnt_options *o, enum option_id id, const char *value)
{
    free(o->given[id]);
    o->given[id] = value ? strdup(value) : NULL;
    return value && !o->given[id] ? err_set(&o->err, -ENOMEM, "no memory") : 0;
}

static int take_option(struct mnt_options *o, const char *arg)
{
    const char *value;
    const struct option_row *row = option_find(arg, ~OF_KIND(KIND_OPTION), &value);
    /* Like mount(8), ignore x- options and the empty option after the comma in "ro,". */
    if (!*arg || strncmp(arg, "x-", 2) == 0 || strncmp(arg, "X-", 2) == 0)
        return 0;
    if (strcmp(arg, "remount") == 0)
        return err_set(&o->err, -EINVAL,
                       "option remount: not supported; unmount (ggufs --unmount) and mount again");
    if (!row || !row->values != !value ||
        (row->kind == KIND_COMMAND && row->id != COMMAND_HELP && row->id != COMMAND_VERSION))
        return unknown(o, arg);
    if (row->id == MOUNT_RW) /* the last of ro and rw wins */
        (void)keep_value(o, MOUNT_RO, NULL);
    const int r = keep_value(o, row->id, value ? value : row->fallback ? row->fallback : "");
    return r < 0 ? r
                 : row->kind == KIND_FUSE || row->kind == KIND_FLAG || row->kind == KIND_COMMAND;
}

/* Return 1 to leave the argument to libfuse, 0 if it was taken, or -1 with a message. */
static int on_option(void *data, const char *arg, int key, struct fuse_args *out)
{
    const int r = key == FUSE_OPT_KEY_NONOPT ? on_path(data, arg) : take_option(data, arg);
    (void)out;
    return r < 0 ? -1 : r;
}

/* Return the value given for an option that takes a value, else the default, else NULL. *row is set
 * to the option's row. */
static const char *value_of(const struct mnt_options *o, enum option_id id,
                            const struct option_row **row)
{
    *row = rows;
    while ((*row)->id != id || !(*row)->values)
        (*row)++;
    return o->given[id] ? o->given[id] : (*row)->fallback;
}

/* Report a bad value, unless an error has already been reported. */
static int bad_word(struct mnt_options *o, const char *name, const char *value, const char *takes)
{
    char shown[SHOW_MAX];
    if (o->err.code)
        return o->err.code;
    return err_set(&o->err, -EINVAL, "option %s: must be %s, not '%s'", name, takes,
                   show(shown, value, strlen(value)));
}

/* Return the index of an option's value among the words that the option allows. Reports any other
 * value and returns 0. */
static int word(struct mnt_options *o, enum option_id id)
{
    const struct option_row *row;
    const char *value = value_of(o, id, &row);
    const int place = option_word(row, value);
    if (place < 0)
        (void)bad_word(o, row->name, value, row->values);
    return place < 0 ? 0 : place;
}

/* Parse "auto", or a number of bytes with an optional K, M or G. Returns false if the text is
 * invalid. */
static bool parse_size(const char *text, uint64_t *ret)
{
    static const char units[] = "KMG";
    char *end;
    if (strcmp(text, "auto") == 0) {
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

/* Set the options whose values are words. Returns 0 or -errno. */
static int check_words(struct mnt_options *o)
{
    const struct option_row *row;
    const char *reserve = value_of(o, MOUNT_RESERVE, &row),
               *backup = value_of(o, MOUNT_BACKUP, &row),
               *subtype = value_of(o, MOUNT_SUBTYPE, &row);
    o->tree.commit = (enum live_commit)word(o, MOUNT_COMMIT);
    o->tree.strategy = (enum edit_strategy)word(o, MOUNT_RELAYOUT);
    o->tree.edit_hash_names = word(o, MOUNT_HASHNAMES) == 1;
    o->tree.views = (enum files_views)word(o, MOUNT_VIEWS);
    o->tree.tensors = word(o, MOUNT_TENSORS) == 1;
    o->tree.backup = backup;
    if (!parse_size(reserve, &o->tree.reserve))
        return bad_word(o, "reserve", reserve, "auto or bytes (K, M, G), at most 64M");
    if (strpbrk(subtype, ",\\")) /* libfuse passes it to fusermount3 unescaped */
        return bad_word(o, "subtype", subtype, "a name without commas or backslashes");
    if (backup && (!*backup || strchr(backup, '/')))
        return bad_word(o, "backup", backup, "a suffix for a file name, without a slash");
    return o->err.code;
}

/* Parse a number that consists only of digits and is at most `most`. (scanf(3), which libfuse uses,
 * would read "1x" as 1, and 2^32 as 0, which is root.) */
static unsigned number(struct mnt_options *o, enum option_id id, int base, unsigned most)
{
    char shown[SHOW_MAX], *end;
    const struct option_row *row;
    const char *text = value_of(o, id, &row);
    if (!text)
        return 0;
    errno = 0;
    unsigned long n = strtoul(text, &end, base);
    if (text[0] >= '0' && text[0] <= '9' && !errno && !*end && n <= most)
        return (unsigned)n;
    (void)err_set(&o->err, -EINVAL,
                  base == 8 ? "option %s: '%s' is not an octal number up to %o"
                            : "option %s: '%s' is not a number up to %u",
                  row->name, show(shown, text, strlen(text)), most);
    return 0;
}

/* Set the options whose values are numbers. A user or group of -1 is not valid. */
static int check_numbers(struct mnt_options *o)
{
    (void)number(o, MOUNT_MAX_THREADS, 10, INT_MAX);
    (void)number(o, MOUNT_MAX_IDLE_THREADS, 10, INT_MAX);
    o->tree.uid = (uid_t)number(o, MOUNT_UID, 10, UINT_MAX - 1);
    o->tree.gid = (gid_t)number(o, MOUNT_GID, 10, UINT_MAX - 1);
    o->tree.umask = (mode_t)number(o, MOUNT_UMASK, 8, 0777);
    o->readahead = number(o, MOUNT_READAHEAD, 10, INT_MAX);
    o->idle = number(o, MOUNT_IDLE, 10, INT_MAX);
    o->tree.history = number(o, MOUNT_HISTORY, 10, HISTORY_KEEP);
    o->tree.set_uid = o->given[MOUNT_UID] != NULL;
    o->tree.set_gid = o->given[MOUNT_GID] != NULL;
    o->tree.set_umask = o->given[MOUNT_UMASK] != NULL;
    return o->err.code;
}

/* Open the imatrix before mounting, because its path may be relative to the current directory. */
static int open_imatrix(struct mnt_options *o)
{
    char shown[SHOW_MAX];
    const char *name = o->given[MOUNT_IMATRIX];
    if (!o->tree.tensors)
        return err_set(&o->err, -EINVAL, "option imatrix: requires tensors=edit");
    const int r = imatrix_open(name, &o->importances, &o->err);
    o->tree.imatrix = o->importances;
    return r == 0 ? 0
                  : err_prefix(&o->err, r, "option imatrix: %s", show(shown, name, strlen(name)));
}

int mnt_options_parse(int argc, char **argv, struct mnt_options *o)
{
    *o = (struct mnt_options){.args = FUSE_ARGS_INIT(argc, argv)};
    if (strcmp(argv[argc - 1], "-o") == 0)
        return err_set(&o->err, -EINVAL, "option -o: what follows is missing (see ggufs --help)");
    int r = fuse_opt_parse(&o->args, o, NULL, on_option) < 0 ? o->err.code : 0;
    if (r == 0)
        r = check_numbers(o);
    if (r == 0 && fuse_parse_cmdline(&o->args, &o->cmd) < 0)
        r = err_set(&o->err, -EINVAL, "libfuse refuses the options");
    const bool mounts = !o->cmd.show_help && !o->cmd.show_version;
    const bool model = o->model && *o->model, mountpoint = o->mountpoint && *o->mountpoint;
    if (r == 0 && mounts && !(model && mountpoint))
        r = err_set(&o->err, -EINVAL, "%s is missing (see ggufs --help)",
                    model ? "MOUNTPOINT" : "MODEL");
    if (r == 0)
        r = check_words(o);
    if (r == 0 && o->given[MOUNT_IMATRIX])
        r = open_imatrix(o);
    o->tree.read_only = o->given[MOUNT_RO] != NULL;
    o->tree.partial = o->given[MOUNT_PARTIAL] != NULL;
    return r;
}

/* Add `name=value` to a list of -o options. Every reader of such a list (libfuse, fusermount3)
 * takes the character after a backslash literally. */
static int add_value(char **opts, const char *name, const char *value)
{
    char *text;
    if (asprintf(&text, "%s=%s", name, value) < 0)
        return -ENOMEM;
    const int r = fuse_opt_add_opt_escaped(opts, text) < 0 ? -ENOMEM : 0;
    free(text);
    return r;
}

int mnt_options_finish(struct mnt_options *o, const struct shelf *s)
{
    char *opts = NULL;
    const struct option_row *row;
    const char *fsname = value_of(o, MOUNT_FSNAME, &row);
    int r = add_value(&opts, "fsname", fsname ? fsname : shelf_path(s));
    if (r == 0)
        r = add_value(&opts, "subtype", value_of(o, MOUNT_SUBTYPE, &row));
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
    for (size_t i = 0; i < OPTION_IDS; i++)
        free(o->given[i]);
    imatrix_free(o->importances);
}

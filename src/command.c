/* SPDX-License-Identifier: MIT */
/* The main program of ggufs, and its commands other than mounting: see command.h. The exit status
 * of a mount is 0 (also after printing help), 1 on failure, and 2 for a wrong option. */
#include "command.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/sys.h"
#include "check/check.h"
#include "check/summary.h"
#include "command_diff.h"
#include "edit/history.h"
#include "edit/open.h"
#include "mount/proc.h"
#include "mount/session.h"
#include "mount/unmount.h"
#include "shelf/models.h"
#include "tree/history.h"
#include "usage.h"

void command_print(const struct buf *text)
{
    if (text->len > 0)
        (void)fwrite(text->data, 1, text->len, stdout);
}

int command_failed(const char *name, const char *why, int status)
{
    char shown[SHOW_MAX];
    (void)fflush(stdout); /* keeps both streams in order */
    if (name)
        (void)fprintf(stderr, "ggufs: %s: %s\n", show(shown, name, strlen(name)), why);
    else
        (void)fprintf(stderr, "ggufs: %s\n", why);
    return status;
}

int command_misused(const char *command, const char *fmt, ...)
{
    va_list ap;
    (void)fprintf(stderr, "ggufs: %s: ", command);
    va_start(ap, fmt);
    (void)vfprintf(stderr, fmt, ap);
    va_end(ap);
    (void)fputs(" (see ggufs --help)\n", stderr);
    return -1;
}

const char *command_label(const struct model_path *m, const char *folder)
{
    const char *label = model_label(m);
    const size_t n = strlen(folder);
    const char *rest = strncmp(label, folder, n) == 0 ? label + n + strspn(label + n, "/") : "";
    return *rest ? rest : label;
}

void command_progress(void *what, uint64_t done, uint64_t total)
{
    static int shown = -1;
    const int percent = !what ? -1 : total ? (int)((double)done / (double)total * 100) : 100;
    if (percent == shown)
        return;
    shown = percent;
    if (what)
        (void)fprintf(stderr, "\r%s: %d %%", (const char *)what, percent);
    else
        (void)fputs("\r\033[K", stderr);
}

/* Flush standard output. Returns `status`, or `trouble` if that fails. */
static int printed(int status, int trouble)
{
    return fflush(stdout) == 0 ? status
                               : command_failed(NULL, "cannot write to standard output", trouble);
}

/* ---- mounts ---- */

static int unmount_one(const char *mountpoint)
{
    struct err e = {0};
    const int r = mnt_unmount(mountpoint, &e);
    return r < 0 ? command_failed(NULL, e.msg, 1) : r;
}

/* Unmount each in a child process: that of root becomes the user that made the mount. */
static int unmount(const struct command_args *a)
{
    int status = 0;
    for (int i = 0; i < a->n; i++) {
        int ended = -1;
        const pid_t pid = fork();
        if (pid == 0)
            _exit(unmount_one(a->operand[i]));
        while (pid > 0 && waitpid(pid, &ended, 0) < 0 && errno == EINTR)
            ;
        status |= pid < 0 ? command_failed(NULL, strerror(errno), 1) : ended != 0;
    }
    return status;
}

static bool command_has(const struct command_args *a, enum option_id id)
{
    for (size_t i = 0; i < a->n_options; i++)
        if (a->option[i].id == id)
            return true;
    return false;
}

static int list_mounts(const struct command_args *a)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    struct err e = {0};
    if (mnt_list(command_has(a, OPTION_JSON), &text, &e) < 0)
        return command_failed(NULL, e.msg, 1);
    command_print(&text);
    return 0;
}

/* ---- models ---- */

static int recover_models(const struct command_args *a)
{
    int status = 0;
    for (int i = 0; i < a->n; i++) {
        struct err e = {0};
        struct edit_recovered found = {0};
        char shown[SHOW_MAX];
        (void)show(shown, a->operand[i], strlen(a->operand[i]));
        int r = model_recover(a->operand[i], &found, &e);
        const char *text = edit_recovered_text(&found);
        if (r < 0)
            status = command_failed(a->operand[i], e.msg, 1);
        else
            (void)printf("%s: %s\n", shown, text ? text : "nothing to recover");
    }
    return status;
}

/* Commands about the history of the keys. The daemon of a mounted model restores them. */

static void done(const char *operand, const char *what, size_t n)
{
    char shown[SHOW_MAX], line[1024];
    (void)printf("%s: %s\n", show(shown, operand, strlen(operand)),
                 show_in(line, sizeof(line), what, n));
}

/* Print only warnings, because results are printed at the end. */
static void print_warning(int priority, const char *line)
{
    if (priority <= LOG_WARNING)
        (void)fprintf(stderr, "ggufs: %s\n", line);
}

static int undo_file(const char *operand, uint64_t number, struct buf *said, struct err *e)
{
    struct tree *t = NULL;
    struct holder holder = {.model = operand};
    const struct tree_options o = {.commit = LIVE_COMMIT_CLOSE,
                                   .reserve = EDIT_RESERVE_AUTO,
                                   .history = HISTORY_KEEP,
                                   .edit_hash_names = true, /* such an edit was allowed */
                                   .wait = holder_wait,
                                   .wait_arg = &holder,
                                   .log = {.line = print_warning}};
    int r = tree_open(operand, &o, &t, e);
    if (r < 0)
        return r;
    r = tree_writable(t) ? tree_undo(t, number, said, e)
                         : err_set(e, -EROFS, "it cannot be edited: %s", tree_why_not(t));
    (void)tree_finish(t);
    tree_close(t);
    return r;
}

static int undo_edits(const struct command_args *a)
{
    CLEANUP(buf_free) struct buf said = BUF_INIT;
    struct err e = {0};
    const char *number = a->value ? a->value : "0";
    int r = mnt_undo(a->operand[0], number, &said, &e);
    if (r == 1)
        r = undo_file(a->operand[0], strtoull(number, NULL, 10), &said, &e);
    if (r < 0)
        return command_failed(a->operand[0], e.msg, 1);
    done(a->operand[0], buf_text(&said), said.len - (said.len && buf_text_end(&said)[-1] == '\n'));
    return 0;
}

/* Print the states in the history as text, or forget them. */
static int states(const char *operand, bool forget, struct buf *said, struct err *e)
{
    const struct tree_options o = {.read_only = true, .partial = true};
    struct tree *t = NULL;
    char *model = mnt_model(operand);
    if (!model)
        return err_set(e, -errno, "%s", strerror(errno));
    int r = tree_open(model, &o, &t, e);
    if (r == 0)
        r = forget ? tree_history_clear(t, e) : tree_history(t, said, e);
    tree_close(t);
    free(model);
    return r;
}

static int history(const struct command_args *a)
{
    static const char forgotten[] = "the history is forgotten";
    CLEANUP(buf_free) struct buf said = BUF_INIT;
    struct err e = {0};
    if (states(a->operand[0], a->value, &said, &e) < 0)
        return command_failed(a->operand[0], e.msg, 1);
    if (a->value)
        done(a->operand[0], forgotten, strlen(forgotten));
    else
        command_print(&said);
    return 0;
}

/* ---- --info ---- */

static int find_models(const struct command_args *a, struct models *ret)
{
    int r = 0;
    *ret = MODELS_INIT;
    for (int i = 0; i < a->n && r == 0; i++)
        r = models_add(ret, a->operand[i]);
    return r;
}

static int open_header(const struct model_path *m, struct summary *s, struct err *e)
{
    *s = (struct summary){0};
    int r = m->error ? err_set(e, m->error, "%s", m->why) : summary_open(m->path, s, e);
    s->file = m->mounted ? "" : s->file;
    return r;
}

/* Add the file `info` of a model in a mount, which shows more, such as the mount's state. */
static int read_info(const struct model_path *m, struct buf *out, struct err *e)
{
    char path[PATH_MAX], part[4096];
    (void)snprintf(path, sizeof(path), "%s/info", m->label);
    FILE *f = fopen(path, "re");
    for (size_t n; f && (n = fread(part, 1, sizeof(part), f)) > 0;)
        buf_add(out, part, n);
    const int r = !f || ferror(f) ? err_set(e, -errno, "cannot read info: %s", strerror(errno)) : 0;
    if (f)
        (void)fclose(f);
    return r;
}

/* Print the facts of each model. If there are several, each text begins with the model's path. */
static int print_texts(const struct models *all, struct buf *out)
{
    int bad = 0;
    for (size_t i = 0; i < all->n; i++, out->len = 0) {
        const struct model_path *m = &all->model[i];
        const char *label = model_label(m);
        struct summary s = {0};
        struct err e = {0};
        if (all->n > 1) {
            buf_str(out, i ? "\n" : "");
            show_all(out, label, strlen(label));
            buf_str(out, ":\n");
        }
        const int r = m->mounted ? read_info(m, out, &e) : open_header(m, &s, &e);
        if (s.g)
            summary_text(&s, out);
        if (r < 0)
            (void)command_failed(label, e.msg, 1);
        else
            command_print(out);
        bad |= r;
        gguf_free(s.g);
    }
    return bad;
}

static int table(const struct models *all, const char *folder, struct buf *out)
{
    CLEANUP(buf_free) struct buf lines = BUF_INIT;
    int bad = 0;
    buf_str(&lines, "MODEL" SUMMARY_HEAD "\n");
    for (size_t i = 0; i < all->n; i++) {
        const struct model_path *m = &all->model[i];
        const char *label = folder ? command_label(m, folder) : model_label(m);
        struct summary s;
        struct err e = {0};
        const int r = open_header(m, &s, &e);
        show_all(&lines, label, strlen(label));
        if (r < 0)
            buf_printf(&lines, "\terror: %s", e.msg);
        else
            summary_row(&s, &lines);
        buf_char(&lines, '\n');
        bad |= r;
        gguf_free(s.g);
    }
    buf_table(&lines, "llrrlr", SIZE_MAX, out);
    return bad;
}

/* Add an object for each model; that of a model that cannot be read contains the reason. */
static int json(const struct models *all, struct buf *out)
{
    struct json j = {.out = out};
    int bad = 0;
    json_begin(&j, NULL, "[\n");
    for (size_t i = 0; i < all->n; i++) {
        struct summary s;
        struct err e = {0};
        const int r = open_header(&all->model[i], &s, &e);
        json_begin(&j, NULL, "{");
        json_shown(&j, "file", model_label(&all->model[i]));
        if (r < 0)
            json_text(&j, "error", e.msg);
        else
            summary_json(&s, &j);
        json_end(&j);
        bad |= r;
        gguf_free(s.g);
    }
    json_end(&j);
    buf_char(out, '\n');
    return bad;
}

/* Print the facts as text, a table for directories, or a JSON array. The exit status is 0, 1 if a
 * model could not be read, or 2 after a usage error. */
static int info(const struct command_args *a)
{
    CLEANUP(buf_free) struct buf out = BUF_INIT;
    struct models all;
    int r = find_models(a, &all), bad = 0;
    if (r == 0 && command_has(a, OPTION_JSON))
        bad = json(&all, &out);
    else if (r == 0 && all.folders)
        bad = table(&all, a->n == 1 ? a->operand[0] : NULL, &out);
    else if (r == 0)
        bad = print_texts(&all, &out);
    models_free(&all);
    if (r < 0 || buf_error(&out))
        return command_failed(NULL, "no memory", 1);
    command_print(&out);
    return bad < 0;
}

/* ---- --check ---- */

struct check {
    struct check_options opt;
    bool as_json;
    struct buf text;
    struct json json;
    const struct model_path *model; /* the model being checked */
};

/* Report a word that is not the name of a rule. */
static int check_rule(const char *word, size_t n)
{
    char shown[SHOW_MAX];
    const char *other;
    struct nearest near = nearest_to(word, n);
    for (size_t i = 0; (other = check_any_rule_id(i)); i++) {
        if (strlen(other) == n && memcmp(other, word, n) == 0)
            return 0;
        nearest_offer(&near, other, strlen(other), i);
    }
    (void)show(shown, word, n);
    if (near.found)
        return command_misused("--check", "unknown rule '%s', did you mean '%s'?", shown,
                               check_any_rule_id(near.which));
    return command_misused("--check", "unknown rule '%s'", shown);
}

/* Collect the rules of every --ignore=RULE[,RULE] as one list of words. */
static int take_ignored(const struct command_args *a, struct buf *list)
{
    for (size_t i = 0; i < a->n_options; i++)
        if (a->option[i].id == OPTION_IGNORE)
            buf_printf(list, "%s,", a->option[i].value);
    buf_char(list, '\0');
    if (buf_error(list))
        return command_failed(NULL, "no memory", -1);
    for (char *word = (char *)list->data; *word;) {
        const size_t n = strcspn(word, ",");
        if (n && check_rule(word, n) < 0)
            return -1;
        word[n] = ' ';
        word += n + 1;
    }
    return 0;
}

/* Pass on a finding. In a store, a file has the name under which a mount of the store shows it. */
static void sink(void *arg, const struct check_finding *found)
{
    struct check *c = arg;
    const struct model_path *m = c->model;
    CLEANUP(buf_free) struct buf line = BUF_INIT;
    CLEANUP(buf_free) struct buf label = BUF_INIT;
    struct check_finding f = *found;
    if (m->label && !m->error) {
        const size_t folder = (size_t)(path_name(m->label) - m->label);
        buf_add(&label, m->label, m->shards ? folder : strlen(m->label));
        buf_str(&label, m->shards ? path_name(f.file) : "");
        buf_char(&label, '\0');
        f.file = buf_error(&label) ? f.file : buf_text(&label);
    }
    command_progress(NULL, 0, 0);
    if (!c->as_json) {
        report_line(&line, &f);
        command_print(&line);
        return;
    }
    json_begin(&c->json, NULL, "{");
    json_text(&c->json, "severity", check_severity_name[f.severity]);
    json_text(&c->json, "rule", f.rule);
    json_shown(&c->json, "file", f.file);
    json_text(&c->json, "what", f.what);
    json_text(&c->json, "where", f.where);
    json_end(&c->json);
}

static enum check_outcome check_model(struct check *c, const struct model_path *m)
{
    static const char *const result[] = {"clean", "findings", "findings", "unusable"};
    struct check_finding f = {CHECK_ERROR, CHECK_STRUCTURE, model_label(m), m->why,
                              m->label ? "store" : "directory"};
    enum check_outcome outcome = CHECK_UNUSABLE;
    c->model = m;
    c->opt.unnamed = m->mounted;
    json_begin(&c->json, NULL, "{");
    json_shown(&c->json, "file", model_label(m));
    buf_printf(json_item(&c->json, "shards"), "%zu", m->shards);
    json_begin(&c->json, "findings", "[\n");
    if (m->error)
        sink(c, &f);
    else
        outcome = check_file(m->path, &c->opt, sink, c);
    command_progress(NULL, 0, 0);
    json_end(&c->json);
    json_text(&c->json, "result", result[outcome]);
    json_end(&c->json);
    return outcome;
}

/* Check models. The exit status is 0 if there are no errors (with --strict: nor warnings), 1 if
 * there are, and 2 if a model is unusable or after a usage error. */
static int check_models(const struct command_args *a)
{
    static char what[] = "checking values";
    CLEANUP(buf_free) struct buf ignored = BUF_INIT;
    struct check c = {.opt.values = a->value != NULL, .as_json = command_has(a, OPTION_JSON)};
    const int status[] = {0, command_has(a, OPTION_STRICT), 1, 2};
    enum check_outcome worst = CHECK_CLEAN;
    struct models all;
    c.opt.progress = isatty(STDERR_FILENO) ? command_progress : NULL;
    c.opt.arg = what;
    if (take_ignored(a, &ignored) < 0)
        return 2;
    c.opt.ignore = buf_text(&ignored);
    int r = find_models(a, &all);
    c.json.out = &c.text;
    json_begin(&c.json, NULL, "[\n");
    for (size_t i = 0; i < all.n && r == 0; i++) {
        const enum check_outcome outcome = check_model(&c, &all.model[i]);
        worst = outcome > worst ? outcome : worst;
    }
    json_end(&c.json);
    buf_char(&c.text, '\n');
    if (r == 0 && c.as_json && (r = buf_error(&c.text)) == 0)
        command_print(&c.text);
    models_free(&all);
    buf_free(&c.text);
    return r < 0 ? command_failed(NULL, "no memory", 2) : status[worst];
}

/* ---- the parser ---- */

static const struct command {
    enum option_id id;
    int (*run)(const struct command_args *a);
    int trouble; /* exit status if the command cannot print */
} commands[] = {
    {COMMAND_UNMOUNT, unmount, 1},        {COMMAND_LIST, list_mounts, 1},
    {COMMAND_RECOVER, recover_models, 1}, {COMMAND_CHECK, check_models, 2},
    {COMMAND_DIFF, command_diff, 2},      {COMMAND_INFO, info, 1},
    {COMMAND_HISTORY, history, 1},        {COMMAND_UNDO, undo_edits, 1},
};

/* Find the command. It comes before the first operand, and only options may precede it. */
static const struct option_row *find_command(int argc, char **argv)
{
    const char *value;
    for (int i = 1; i < argc && argv[i][0] == '-'; i++) {
        const struct option_row *row =
            option_find(argv[i], OF_KIND(KIND_COMMAND) | OF_KIND(KIND_OPTION), &value);
        if (!row || row->kind == KIND_COMMAND)
            return row;
    }
    return NULL;
}

static int unknown_option(const struct option_row *cmd, const char *arg)
{
    char shown[SHOW_MAX];
    const struct option_row *near = option_nearest(arg, OF_KIND(KIND_OPTION), cmd->takes);
    (void)show(shown, arg, strlen(arg));
    if (near)
        return command_misused(cmd->name, "unknown option '%s', did you mean '%s'?", shown,
                               near->name);
    return command_misused(cmd->name, "unknown option '%s'", shown);
}

/* True for a value of a command or option: a word from the table, the number of a state, or any
 * text. */
static bool is_value(const struct option_row *row, const char *value)
{
    const size_t digits = strspn(value, "0123456789");
    if (strcmp(row->values, "N") == 0)
        return digits > 0 && digits <= 18 && !value[digits] && strspn(value, "0") < digits;
    return isupper((unsigned char)row->values[0]) || option_word(row, value) >= 0;
}

static int check_value(const struct option_row *cmd, const struct option_row *row,
                       const char *value)
{
    char shown[SHOW_MAX];
    if (is_value(row, value))
        return 0;
    if (strcmp(row->values, "N") == 0)
        return command_misused(cmd->name, "'%s' is not a valid value",
                               show(shown, value, strlen(value)));
    return command_misused(cmd->name, "%s must be %s, not '%s'", row->name, row->values,
                           show(shown, value, strlen(value)));
}

/* Parse an argument that begins with "-". */
static int take_command_option(const struct option_row *cmd, const char *arg,
                               struct command_args *a)
{
    const char *value;
    const struct option_row *row =
        option_find(arg, OF_KIND(KIND_COMMAND) | OF_KIND(KIND_OPTION), &value);
    const bool command = row && row->id == cmd->id;
    if (!row || (row->kind == KIND_COMMAND ? !command : !(cmd->takes & OPTION_IN_SET(row))))
        return unknown_option(cmd, arg);
    if (row->values && !value)
        return command_misused(cmd->name, "%s requires a value: %s=VALUE", row->name, row->name);
    if (value && !row->values)
        return command_misused(cmd->name, "%s takes no value", row->name);
    if (value && check_value(cmd, row, value) < 0)
        return -1;
    if (command)
        a->value = value ? value : a->value;
    else
        a->option[a->n_options++] = (struct command_given){row->id, value};
    return 0;
}

/* Report too many or too few operands. The first one may be the command's value. */
static int miscounted(const struct option_row *cmd, const char *first)
{
    char meant[64];
    const char *value;
    (void)snprintf(meant, sizeof(meant), "%s=%s", cmd->name, first);
    const struct option_row *row = option_find(meant, OF_KIND(KIND_COMMAND), &value);
    if (row && row->values && is_value(row, value))
        return command_misused(cmd->name, "did you mean '%s'?", meant);
    return command_misused(cmd->name, "takes %s%s", cmd->most == 1 ? "one " : "", cmd->wants);
}

static int parse_command(const struct option_row *cmd, int argc, char **argv,
                         struct command_args *a)
{
    bool more = true; /* options may follow */
    for (int i = 1; i < argc; i++) {
        if (more && strcmp(argv[i], "--") == 0)
            more = false;
        else if (!more || argv[i][0] != '-' || !argv[i][1])
            a->operand[a->n++] = argv[i];
        else if (take_command_option(cmd, argv[i], a) < 0)
            return -1;
    }
    const unsigned n = (unsigned)a->n;
    if (cmd->most == 0 && n > 0)
        return command_misused(cmd->name, "takes no operand");
    if (n == 0 && cmd->least == 1)
        return command_misused(cmd->name, "%s is missing", cmd->wants);
    if (n < cmd->least || n > cmd->most)
        return miscounted(cmd, a->operand[0]);
    return 0;
}

/* ---- the call ---- */

static int run_command(const struct command *c, const struct option_row *row, int argc, char **argv)
{
    struct command_args a = {.option = calloc((size_t)argc, sizeof(struct command_given)),
                             .operand = calloc((size_t)argc, sizeof(char *))};
    int status = 2;
    if (!a.option || !a.operand)
        (void)command_failed(NULL, "no memory", 2);
    else if (parse_command(row, argc, argv, &a) == 0)
        status = printed(c->run(&a), c->trouble);
    free(a.option);
    free((void *)a.operand);
    return status;
}

/* ---- the program ---- */

static int mount_model(int argc, char **argv)
{
    struct mnt_options o;
    struct err e = {0};
    int status = 0;
    if (mnt_options_parse(argc, argv, &o) < 0)
        status = command_failed(NULL, o.err.msg, 2);
    else if (o.cmd.show_help)
        (void)fputs(help, stdout);
    else if (o.cmd.show_version)
        (void)printf("ggufs %s, libfuse %s\n", GGUFS_VERSION, fuse_pkgversion());
    else if (mnt_run(&o, &e) < 0)
        status = command_failed(NULL, e.msg, 1);
    mnt_options_free(&o);
    return printed(status, 1);
}

/* Raise the limit on open files, because each file of a split model stays open and the soft limit
 * is usually 1024. */
static void allow_open_files(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return;
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
}

/*
 * Open something in place of each closed standard stream. Otherwise the next file to be opened
 * would get the number of that stream, and a daemon would close its model or its directory when it
 * redirects its streams to /dev/null. The substitute is open only for the other direction, so using
 * it fails as it would for a closed stream.
 */
static void hold_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/*
 * Buffers of this size or larger are returned to the system when they are freed. By default glibc
 * raises the threshold to 32 MiB, so that each thread's heap keeps memory for the largest values it
 * has held.
 */
#define LARGE_BUFFER (2 << 20)

static void give_memory_back(void)
{
#ifdef M_MMAP_THRESHOLD
    (void)mallopt(M_MMAP_THRESHOLD, LARGE_BUFFER);
    (void)mallopt(M_TRIM_THRESHOLD, LARGE_BUFFER); /* else each answer to a read gets new memory */
#endif
}

int main(int argc, char **argv)
{
    hold_standard_streams();
    allow_open_files();
    give_memory_back();
    const struct option_row *row = find_command(argc, argv);
    for (size_t i = 0; row && i < COUNT(commands); i++)
        if (commands[i].id == row->id)
            return run_command(&commands[i], row, argc, argv);
    return mount_model(argc, argv); /* also handles --help and --version */
}

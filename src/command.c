/* SPDX-License-Identifier: MIT */
/* The commands besides mounting: see command.h. */
#include "command.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/count.h"
#include "base/nearest.h"
#include "edit/open.h"
#include "mount/list.h"
#include "mount/unmount.h"

/* Print lines to standard error, each behind the program's name. */
static void print_lines(const struct buf *lines)
{
    const char *p = buf_text(lines), *end = buf_text_end(lines);
    while (p < end) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        int n = (int)((stop ? stop : end) - p);
        (void)fprintf(stderr, "ggufs: %.*s\n", n, p);
        p += n + 1;
    }
}

static int unmount(const struct command_args *a)
{
    int status = 0;
    for (int i = 0; i < a->n; i++) {
        CLEANUP(buf_free) struct buf lost = BUF_INIT;
        struct err e = {0};
        bool failed = mnt_unmount(a->operand[i], &lost, &e) < 0;
        print_lines(&lost);
        if (failed)
            (void)fprintf(stderr, "ggufs: %s\n", e.msg);
        status |= failed || lost.len > 0;
    }
    return status;
}

void command_print(const struct buf *text)
{
    if (text->len > 0)
        (void)fwrite(text->data, 1, text->len, stdout);
}

static int list(const struct command_args *a)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    struct err e = {0};
    if (mnt_list(command_has(a, OPTION_JSON), &text, &e) < 0) {
        (void)fprintf(stderr, "ggufs: %s\n", e.msg);
        return 1;
    }
    command_print(&text);
    if (fflush(stdout) != 0) {
        (void)fputs("ggufs: cannot write the list\n", stderr);
        return 1;
    }
    return 0;
}

static int recover(const struct command_args *a)
{
    int status = 0;
    for (int i = 0; i < a->n; i++) {
        struct err e = {0};
        struct edit_recovered found = {0};
        char shown[SHOW_MAX];
        (void)show(shown, a->operand[i], strlen(a->operand[i]));
        if (model_recover(a->operand[i], &found, &e) < 0) {
            (void)fprintf(stderr, "ggufs: %s: %s\n", shown, e.msg);
            status = 1;
        } else if (found.finished) {
            (void)printf("%s: an interrupted edit was finished\n", shown);
        } else if (found.dropped) {
            (void)printf("%s: an interrupted edit was undone\n", shown);
        } else if (found.removed) {
            (void)printf("%s: whole; what an interrupted edit had left beside it was removed\n",
                         shown);
        } else {
            (void)printf("%s: nothing to recover\n", shown);
        }
    }
    return status;
}

/* ---- the tables ---- */

static const struct {
    const char *name;
    bool value; /* NAME=VALUE */
} options[] = {
    [OPTION_JSON] = {"--json", false},    [OPTION_STRICT] = {"--strict", false},
    [OPTION_IGNORE] = {"--ignore", true}, [OPTION_QUICK] = {"--quick", false},
    [OPTION_ONLY] = {"--only", true},     [OPTION_TOLERANCE] = {"--tolerance", true},
};

#define TAKES(id) (1u << (id))

static const struct command {
    const char *name;
    const char *value; /* the only VALUE allowed in NAME=VALUE; "N": any number; NULL: no value */
    unsigned takes;    /* a set of options */
    const char *wants; /* operands; NULL: takes none */
    int (*run)(const struct command_args *a);
    bool one;         /* it takes one operand */
    bool apart;       /* it asks disks that may not answer: command_apart() */
    const char *json; /* the only VALUE allowed in --json=VALUE; NULL: no value */
} commands[] = {
    {"--unmount", NULL, 0, "MOUNTPOINT", unmount, false, false, NULL},
    {"--list", NULL, TAKES(OPTION_JSON), NULL, list, false, false, NULL},
    {"--recover", NULL, 0, "MODEL", recover, false, false, NULL},
    {"--check", "full", TAKES(OPTION_JSON) | TAKES(OPTION_STRICT) | TAKES(OPTION_IGNORE),
     "MODEL or FOLDER", command_check, false, true, NULL},
    {"--diff", NULL,
     TAKES(OPTION_JSON) | TAKES(OPTION_QUICK) | TAKES(OPTION_ONLY) | TAKES(OPTION_IGNORE) |
         TAKES(OPTION_TOLERANCE),
     "two models", command_diff, false, false, "all"},
    {"--info", NULL, TAKES(OPTION_JSON), "MODEL or FOLDER", command_info, false, true, NULL},
    {"--history", "clear", 0, "MODEL", command_history, true, false, NULL},
    {"--undo", "N", 0, "MODEL", command_undo, true, false, NULL},
};

/* ---- the parser ---- */

/* "--name" or "--name=value". */
static bool is_named(const char *arg, const char *name)
{
    size_t n = strlen(name);
    return strncmp(arg, name, n) == 0 && (arg[n] == '\0' || arg[n] == '=');
}

static const char *value_of(const char *arg)
{
    const char *is = strchr(arg, '=');
    return is ? is + 1 : NULL;
}

static size_t find_option(const char *arg)
{
    size_t i = 0;
    while (i < COUNT(options) && !is_named(arg, options[i].name))
        i++;
    return i;
}

/* Find the command: it stands before the first operand, and only options may stand before it. */
static const struct command *find_command(int argc, char **argv)
{
    for (int i = 1; i < argc && argv[i][0] == '-'; i++) {
        for (size_t k = 0; k < COUNT(commands); k++)
            if (is_named(argv[i], commands[k].name))
                return &commands[k];
        if (find_option(argv[i]) == COUNT(options))
            return NULL;
    }
    return NULL;
}

static int misused(const struct command *cmd, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static int misused(const struct command *cmd, const char *fmt, ...)
{
    va_list ap;
    (void)fprintf(stderr, "ggufs: %s: ", cmd->name);
    va_start(ap, fmt);
    (void)vfprintf(stderr, fmt, ap);
    va_end(ap);
    (void)fputs(" (see ggufs --help)\n", stderr);
    return -1;
}

static int unknown(const struct command *cmd, const char *arg)
{
    char shown[SHOW_MAX];
    struct nearest near = nearest_to(arg, strcspn(arg, "="));
    for (size_t i = 0; i < COUNT(options); i++)
        if (cmd->takes & TAKES(i))
            nearest_offer(&near, options[i].name, strlen(options[i].name), i);
    (void)show(shown, arg, strlen(arg));
    if (near.found)
        return misused(cmd, "unknown option '%s', did you mean '%s'?", shown,
                       options[near.which].name);
    return misused(cmd, "unknown option '%s'", shown);
}

/* The only value that the command has, or a number as states have them. */
static bool is_allowed(const struct command *cmd, const char *value)
{
    size_t digits = strspn(value, "0123456789");
    if (cmd->value && strcmp(cmd->value, "N") == 0)
        return digits > 0 && digits <= 18 && !value[digits] && strspn(value, "0") < digits;
    return cmd->value && strcmp(value, cmd->value) == 0;
}

/* An argument that begins with "-". */
static int take_option(const struct command *cmd, const char *arg, struct command_args *a)
{
    char shown[SHOW_MAX];
    size_t i = find_option(arg);
    const char *value = value_of(arg);
    if (is_named(arg, cmd->name)) {
        if (value && !is_allowed(cmd, value))
            return misused(cmd, "'%s' is not a valid value", show(shown, value, strlen(value)));
        a->value = value ? value : a->value;
        return 0;
    }
    if (i == COUNT(options) || !(cmd->takes & TAKES(i)))
        return unknown(cmd, arg);
    if (options[i].value && !value)
        return misused(cmd, "%s requires a value: %s=VALUE", options[i].name, options[i].name);
    bool named = i == OPTION_JSON && cmd->json && value && strcmp(value, cmd->json) == 0;
    if (!options[i].value && value && !named)
        return misused(cmd, "%s takes no value", options[i].name);
    a->option[a->n_options++] = (struct command_given){(enum command_option)i, value};
    return 0;
}

static int parse(const struct command *cmd, int argc, char **argv, struct command_args *a)
{
    bool more = true; /* options may follow */
    for (int i = 1; i < argc; i++) {
        if (more && strcmp(argv[i], "--") == 0)
            more = false;
        else if (!more || argv[i][0] != '-' || !argv[i][1])
            a->operand[a->n++] = argv[i];
        else if (take_option(cmd, argv[i], a) < 0)
            return -1;
    }
    if (cmd->wants && a->n == 0)
        return misused(cmd, "%s is missing", cmd->wants);
    if (!cmd->wants && a->n > 0)
        return misused(cmd, "takes no operand");
    if (cmd->one && a->n > 1)
        return misused(cmd, "takes one %s", cmd->wants);
    return 0;
}

bool command_has(const struct command_args *a, enum command_option id)
{
    for (size_t i = 0; i < a->n_options; i++)
        if (a->option[i].id == id)
            return true;
    return false;
}

bool command_run(int argc, char **argv, int *status)
{
    const struct command *cmd = find_command(argc, argv);
    if (!cmd)
        return false;
    struct command_args a = {.option = calloc((size_t)argc, sizeof(struct command_given)),
                             .operand = calloc((size_t)argc, sizeof(char *))};
    *status = 2;
    if (!a.option || !a.operand)
        (void)fputs("ggufs: no memory\n", stderr);
    else if (parse(cmd, argc, argv, &a) == 0)
        *status = cmd->apart ? command_apart(cmd->run, &a) : cmd->run(&a);
    free(a.option);
    free((void *)a.operand);
    return true;
}

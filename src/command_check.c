/* SPDX-License-Identifier: MIT */
/* ggufs --check: see command_check.h. Exit status: 0 clean, 1 findings, 2 unusable or misused. */
#include "command_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check/report.h"
#include "edit/split.h"

struct check {
    struct check_options opt;
    const char *wrong; /* an option that there is not */
    bool wanted, json;
    struct report *report; /* with --json */
    char **split;          /* owned: first files of the split models that were checked */
    size_t n_split, cap_split;
    bool bar;              /* a progress bar is drawn */
    struct timespec drawn; /* when it was last */
};

/* Options up to the first file or "--"; the number of the first argument behind them. */
static int parse(int argc, char **argv, struct check *c)
{
    int i = 1;
    for (; i < argc && argv[i][0] == '-' && argv[i][1]; i++) {
        if (strcmp(argv[i], "--") == 0)
            return i + 1;
        if (strcmp(argv[i], "--check") == 0)
            c->wanted = true;
        else if (strcmp(argv[i], "--check=full") == 0)
            c->wanted = c->opt.values = true;
        else if (strcmp(argv[i], "--json") == 0)
            c->json = true;
        else if (!c->wrong)
            c->wrong = argv[i];
    }
    return i;
}

/* ---- the progress bar, on a terminal ---- */

static const int bar_width = 40; /* of the string in draw_bar() */

static void clear_bar(struct check *c)
{
    if (c->bar)
        (void)fputs("\r\033[K", stderr);
    c->bar = false;
}

static void draw_bar(void *arg, uint64_t done, uint64_t total)
{
    struct check *c = arg;
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    double since =
        (double)(now.tv_sec - c->drawn.tv_sec) + 1e-9 * (double)(now.tv_nsec - c->drawn.tv_nsec);
    if (total == 0 || (c->drawn.tv_sec && since < 0.1))
        return;
    c->drawn = now;
    c->bar = true;
    double part = (double)done / (double)total;
    int full = (int)(part * (double)bar_width);
    (void)fprintf(stderr, "\r[%.*s%*s] %3.0f%% of %.1f GB", full,
                  "########################################", bar_width - full, "", 100 * part,
                  (double)total / 1e9);
    (void)fflush(stderr);
}

/* ---- findings ---- */

static void sink(void *arg, const struct check_finding *f)
{
    struct check *c = arg;
    CLEANUP(buf_free) struct buf line = BUF_INIT;
    clear_bar(c);
    if (c->report) {
        report_finding(c->report, f);
        return;
    }
    report_line(&line, f);
    (void)fwrite(line.data, 1, line.len, stdout);
}

/* ---- models ---- */

/* Whether the split model with this first file was checked before. */
static bool seen(const struct check *c, const char *first)
{
    for (size_t i = 0; i < c->n_split; i++)
        if (strcmp(c->split[i], first) == 0)
            return true;
    return false;
}

static enum check_outcome check_model(struct check *c, const char *file, size_t shards)
{
    if (c->report)
        report_file(c->report, file, shards);
    enum check_outcome outcome = check_file(file, &c->opt, sink, c);
    clear_bar(c);
    if (c->report)
        report_outcome(c->report, outcome);
    return outcome;
}

/* A split model is checked once, whichever and however many of its files are given. */
static enum check_outcome check_one(struct check *c, const char *file)
{
    struct split s;
    enum check_outcome outcome = CHECK_CLEAN;
    int r = split_find(file, &s);
    char *first = r == 0 && s.n ? split_path(&s, 0) : NULL;
    if (r < 0 || (s.n && (!first || array_grow(&c->split, &c->cap_split, c->n_split,
                                               sizeof(*c->split)) < 0))) {
        (void)fputs("ggufs: no memory\n", stderr);
        outcome = CHECK_UNUSABLE;
    } else if (!first) {
        outcome = check_model(c, file, 0);
    } else if (!seen(c, first)) {
        outcome = check_model(c, first, s.n);
        c->split[c->n_split++] = first;
        first = NULL;
    }
    free(first);
    if (r == 0)
        split_free(&s);
    return outcome;
}

static void free_all(struct check *c)
{
    for (size_t i = 0; i < c->n_split; i++)
        free(c->split[i]);
    free((void *)c->split);
    report_free(c->report);
}

static int print_json(const struct check *c)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    int r = report_json(c->report, &text);
    if (r < 0)
        (void)fprintf(stderr, "ggufs: %s\n", strerror(-r));
    else
        (void)fwrite(text.data, 1, text.len, stdout);
    return r;
}

static int check_all(struct check *c, int n, char **files)
{
    int worst = CHECK_CLEAN;
    if (c->json && !(c->report = report_new()))
        return CHECK_UNUSABLE;
    for (int i = 0; i < n; i++) {
        int outcome = (int)check_one(c, files[i]);
        worst = outcome > worst ? outcome : worst;
    }
    if (c->report && print_json(c) < 0)
        worst = CHECK_UNUSABLE;
    free_all(c);
    if (fflush(stdout) != 0) {
        (void)fputs("ggufs: cannot write the findings\n", stderr);
        worst = CHECK_UNUSABLE;
    }
    return worst;
}

bool command_check(int argc, char **argv, int *status)
{
    struct check c = {0};
    char shown[SHOW_MAX];
    int first = parse(argc, argv, &c);
    if (!c.wanted)
        return false;
    *status = CHECK_UNUSABLE;
    c.opt.arg = &c;
    c.opt.progress = isatty(STDERR_FILENO) ? draw_bar : NULL;
    if (c.wrong)
        (void)fprintf(stderr, "ggufs: --check: unknown option '%s'\n",
                      show(shown, c.wrong, strlen(c.wrong)));
    else if (first >= argc)
        (void)fputs("ggufs: --check: MODEL is missing\n", stderr);
    else
        *status = check_all(&c, argc - first, argv + first);
    return true;
}

/* SPDX-License-Identifier: MIT */
/* Implements --diff: see command_diff.h. */
#include "command_diff.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "diff/print.h"
#include "shelf/models.h"

enum { SAME, DIFFERENT, TROUBLE };

struct diff_job {
    const char *operand[2];
    struct diff_options opt; /* owns `ignore` */
    bool json, all, colours;
    struct buf text; /* owned: what to print next */
    struct json out; /* with `json` */
};

static int out_of_memory(void)
{
    return command_failed(NULL, "no memory", TROUBLE);
}

/* ---- options ---- */

static int take_tolerance(struct diff_job *j, const char *text)
{
    char shown[SHOW_MAX], *end;
    j->opt.tolerance = strtod(text, &end);
    if (*text && !*end && isfinite(j->opt.tolerance) && j->opt.tolerance >= 0)
        return 0;
    return command_misused("--diff", "--tolerance=%s: must be a number of at least 0",
                           show(shown, text, strlen(text)));
}

static int take_options(struct diff_job *j, const struct command_args *a)
{
    int r = 0;
    for (size_t i = 0; i < a->n_options && r == 0; i++) {
        const char *value = a->option[i].value;
        switch (a->option[i].id) {
        case OPTION_JSON:
            j->json = true;
            j->all = value != NULL;
            break;
        case OPTION_QUICK:
            j->opt.quick = true;
            break;
        case OPTION_ONLY:
            j->opt.keys = strcmp(value, "keys") == 0;
            j->opt.tensors = !j->opt.keys;
            break;
        case OPTION_TOLERANCE:
            r = take_tolerance(j, value);
            break;
        default: /* OPTION_IGNORE, because the parser accepts only known options */
            j->opt.ignore[j->opt.n_ignore++] = value;
        }
    }
    if (r == 0 && j->opt.quick && j->opt.tolerance >= 0)
        r = command_misused("--diff", "--quick compares no values, so it takes no --tolerance");
    return r;
}

/* ---- one pair of models ---- */

static int worse(int a, int b)
{
    return a > b ? a : b;
}

/* Print the text. Returns `status`. */
static int print_diff(struct diff_job *j, int status)
{
    if (buf_error(&j->text))
        return out_of_memory();
    command_print(&j->text);
    j->text.len = 0;
    return status;
}

/* Compare two models. When directories are compared, equal models are printed only with --json. An
 * error names the model that cannot be opened. */
static int compare_models(struct diff_job *j, const char *const path[2], const char *const label[2],
                          bool quiet)
{
    struct side side[2] = {{0}};
    struct diff d = {.side = {&side[0], &side[1]}, .opt = &j->opt};
    struct err e = {0};
    size_t k = 0;
    int r = 0;
    for (; k < 2 && r == 0; k++)
        r = side_open(&side[k], path[k], label[k], &e);
    const char *bad = r < 0 ? label[k - 1] : NULL;
    if (r == 0)
        r = diff_compare(&d, &e);
    command_progress(NULL, 0, 0);
    int status = r < 0 ? command_failed(bad, e.msg, TROUBLE) : diff_is_same(&d) ? SAME : DIFFERENT;
    if (r == 0 && j->json)
        diff_json(&d, j->all, &j->out);
    else if (r == 0 && (status == DIFFERENT || !quiet))
        diff_text(&d, j->colours, &j->text);
    status = print_diff(j, status);
    side_free(&side[0]);
    side_free(&side[1]);
    diff_free(&d);
    return status;
}

/* ---- directories of models ---- */

static int by_model_name(const void *a, const void *b, void *folder)
{
    return strcmp(command_label(a, folder), command_label(b, folder));
}

static int list_models(struct models *l, const char *operand)
{
    *l = MODELS_INIT;
    int r = models_add(l, operand);
    if (r == 0 && l->n)
        qsort_r(l->model, l->n, sizeof(*l->model), by_model_name, (void *)operand);
    return r;
}

/* Tell the name of a model that only one side has. */
static int show_only(struct diff_job *j, size_t k, const char *name)
{
    char shown[SHOW_MAX];
    if (!j->json) {
        (void)printf("only in %s: %s\n", k ? "B" : "A", show(shown, name, strlen(name)));
        return DIFFERENT;
    }
    json_begin(&j->out, NULL, "{");
    json_text(&j->out, "name", name);
    json_text(&j->out, "status", k ? "only_b" : "only_a");
    json_end(&j->out);
    return DIFFERENT;
}

static int compare_found(struct diff_job *j, const struct model_path *a, const struct model_path *b)
{
    const char *const path[2] = {a->path, b->path}, *const label[2] = {model_label(a),
                                                                       model_label(b)};
    const struct model_path *bad = a->error ? a : b->error ? b : NULL;
    return bad ? command_failed(model_label(bad), bad->why, TROUBLE)
               : compare_models(j, path, label, true);
}

/* Get the next name in either list, and from each list the model with that name, or NULL. Returns
 * false if no names are left. */
static bool next_pair(const struct diff_job *j, const struct models list[2], size_t at[2],
                      const struct model_path *ret[2])
{
    const char *name[2];
    for (size_t k = 0; k < 2; k++) {
        ret[k] = at[k] < list[k].n ? &list[k].model[at[k]] : NULL;
        name[k] = ret[k] ? command_label(ret[k], j->operand[k]) : NULL;
    }
    const int order = ret[0] && ret[1] ? strcmp(name[0], name[1]) : 0;
    if (order != 0)
        ret[order < 0] = NULL;
    at[0] += ret[0] != NULL;
    at[1] += ret[1] != NULL;
    return ret[0] || ret[1];
}

/* With --json, print one object. It is like the object for two models, but has "models" instead of
 * "keys" and "tensors". */
static int compare_folders(struct diff_job *j, const struct models list[2])
{
    const struct model_path *m[2];
    int status = SAME;
    if (j->json) {
        json_begin(&j->out, NULL, "{");
        json_text(&j->out, "a", j->operand[0]);
        json_text(&j->out, "b", j->operand[1]);
        json_begin(&j->out, "models", "[\n");
    }
    for (size_t at[2] = {0, 0}; next_pair(j, list, at, m);)
        status = worse(
            status, m[0] && m[1] ? compare_found(j, m[0], m[1])
                                 : show_only(j, !m[0], command_label(m[!m[0]], j->operand[!m[0]])));
    if (j->json) {
        json_end(&j->out);
        buf_str(json_item(&j->out, "same"), status == SAME ? "true" : "false");
        json_end(&j->out);
        buf_char(&j->text, '\n');
    }
    return print_diff(j, status);
}

/* ---- the command ---- */

static int compare_listed(struct diff_job *j, const struct models list[2])
{
    if (list[0].folders && list[1].folders)
        return compare_folders(j, list);
    if (list[0].folders || list[1].folders)
        return command_failed(j->operand[list[1].folders],
                              "is a directory of models, but the other is a model", TROUBLE);
    const char *const path[2] = {list[0].model[0].path, list[1].model[0].path};
    const int r = compare_models(j, path, j->operand, false);
    if (j->json && r != TROUBLE)
        (void)putchar('\n');
    return r;
}

static int compare_operands(struct diff_job *j)
{
    struct models list[2] = {MODELS_INIT, MODELS_INIT};
    int r = list_models(&list[0], j->operand[0]);
    if (r == 0)
        r = list_models(&list[1], j->operand[1]);
    r = r < 0 ? out_of_memory() : compare_listed(j, list);
    models_free(&list[0]);
    models_free(&list[1]);
    return r;
}

int command_diff(const struct command_args *a)
{
    static char what[] = "comparing tensors";
    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");
    struct diff_job j = {.operand = {a->operand[0], a->operand[1]},
                         .opt = {.keys = true, .tensors = true, .tolerance = -1},
                         .colours = isatty(STDOUT_FILENO) && !(none && *none) && term &&
                                    strcmp(term, "dumb") != 0};
    j.out.out = &j.text;
    j.opt.ignore = calloc(a->n_options + 1, sizeof(*j.opt.ignore));
    if (!j.opt.ignore)
        return out_of_memory();
    int r = TROUBLE;
    if (take_options(&j, a) == 0) {
        j.opt.progress = isatty(STDERR_FILENO) ? command_progress : NULL;
        j.opt.arg = what;
        quant_init();
        r = compare_operands(&j);
    }
    free((void *)j.opt.ignore);
    buf_free(&j.text);
    return r;
}

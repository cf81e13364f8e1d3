/* SPDX-License-Identifier: MIT */
/*
 * What is to be said about a model: findings by one table of rules (check.c).
 *
 *     struct check_model m = {.g = g, .src = &src, .file = "x-7B-v1.0.gguf", .label = path};
 *     r = check_rules(&m, sink, arg);      sink is called once for each finding
 *
 * A rule is a row {id, function, scope}: adding one is adding a row. A rule tells of at most CHECK_MOST
 * findings and then how many more there are.
 *
 * Severity: an error is what readers refuse or misread, or what the specification calls mandatory;
 * a warning is against its letter, or stops some readers; a note is nobody's fault.
 *
 * Threads: nothing is shared; a sink is called by the caller's thread only.
 */
#ifndef CHECK_CHECK_H
#define CHECK_CHECK_H

#include "gguf/gguf.h"

enum check_severity { CHECK_NOTE, CHECK_WARNING, CHECK_ERROR };

/* "note", "warning", "error" */
extern const char *const check_severity_name[];

/* All text is one line, safe to print, and good during the call of the sink only. */
struct check_finding {
    enum check_severity severity;
    const char *rule;  /* its id */
    const char *file;  /* the label of what was checked; not made safe to print */
    const char *what;  /* what is wrong */
    const char *where; /* in the file: a key, a tensor, bytes; "" where that means nothing */
};

typedef void check_sink(void *arg, const struct check_finding *f);

#define CHECK_MOST 20 /* findings of one rule */

/*
 * A split model is checked file by file, by the rules that are about a file, and then as a whole,
 * merged, by those that are about the model. Any other is both.
 */
enum check_scope { CHECK_ALL, CHECK_FILE, CHECK_WHOLE };

struct check_model {
    const struct gguf *g;     /* also what gguf_parse_faults() made of a broken file */
    const struct source *src; /* the file's bytes; NULL: what is between tensors is not looked at */
    const char *file;         /* its name without folders; NULL: there is none */
    const char *label;        /* what findings call the file */
    enum check_scope scope;
    size_t shards;    /* of a split model whose files go together, all of them; else 0 */
    bool faults_told; /* what the parser found was told already */
    /* Padding that is read: a note says that the rest was not. 0: all. Whole pages count. */
    uint64_t padding_most;
};

/* All rules but that of values (scan.h). 0, -ENOMEM, or -errno of reading the file. */
int check_rules(const struct check_model *m, check_sink *sink, void *arg);

/* That an interrupted edit was applied in memory to what is checked. */
void check_tell_journal(const char *label, check_sink *sink, void *arg);

/* The ids of the rules, in the order in which they are applied; NULL past the last. */
const char *check_rule_id(size_t i);
/* The same, and behind them what findings are called that are not made by a row of the table. */
const char *check_any_rule_id(size_t i);
#define CHECK_STRUCTURE "structure" /* what the parser refuses; an interrupted edit */
#define CHECK_VALUES "values"       /* scan.h */

#endif

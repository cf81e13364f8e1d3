/* SPDX-License-Identifier: MIT */
/*
 * Findings about a model, made by one table of rules (check.c).
 *
 *     struct check_model m = {.g = g, .src = &src, .file = "x-7B-v1.0.gguf", .label = path};
 *     r = check_rules(&m, sink, arg);      sink is called once for each finding
 *
 * A rule is a row {id, function, scope}; a new rule is a new row. Each rule reports at most
 * CHECK_MOST findings, then how many were left out.
 *
 * Severity: an error makes readers refuse or misread the file, or breaks a "must" of the
 * specification. A warning breaks its wording, or stops some readers. A note is not a fault.
 *
 * Threads: nothing is shared; only the caller's thread calls the sink.
 */
#ifndef CHECK_CHECK_H
#define CHECK_CHECK_H

#include "gguf/gguf.h"

enum check_severity { CHECK_NOTE, CHECK_WARNING, CHECK_ERROR };

/* "note", "warning", "error" */
extern const char *const check_severity_name[];

/* All text is one line, safe to print, and valid only during the call of the sink. */
struct check_finding {
    enum check_severity severity;
    const char *rule;  /* its id */
    const char *file;  /* the label of the file that was checked; not made safe to print */
    const char *what;  /* what is wrong */
    const char *where; /* in the file: a key, a tensor, bytes; "" if no place applies */
};

typedef void check_sink(void *arg, const struct check_finding *f);

#define CHECK_MOST 20 /* findings of one rule */

/*
 * A split model is checked file by file, by the rules about a file, and then merged, as a whole, by
 * the rules about a model. All rules apply to any other model.
 */
enum check_scope { CHECK_ALL, CHECK_FILE, CHECK_WHOLE };

struct check_model {
    const struct gguf *g;     /* may come from gguf_parse_faults(), if the file is broken */
    const struct source *src; /* the file's bytes; NULL: the bytes between tensors are not read */
    const char *file;         /* its name without folders; NULL: no name */
    const char *label;        /* names the file in findings */
    enum check_scope scope;
    size_t shards;        /* files of a split model whose files fit together; else 0 */
    bool faults_reported; /* the parser's findings were already reported */
    /*
     * At most so much padding is read, in whole pages; a note reports it if there is more. 0: all.
     */
    uint64_t padding_most;
};

/* Apply all rules but that of values (scan.h). 0, -ENOMEM, or -errno of reading the file. */
int check_rules(const struct check_model *m, check_sink *sink, void *arg);

/* Report that an interrupted edit was applied in memory before the check. */
void check_tell_journal(const char *label, check_sink *sink, void *arg);

/* The ids of the rules, in the order in which they are applied, and those of findings that no row of the table
 * makes; NULL past the last. */
const char *check_any_rule_id(size_t i);
#define CHECK_STRUCTURE "structure" /* refused by the parser; an interrupted edit */
#define CHECK_VALUES "values"       /* scan.h */

#endif

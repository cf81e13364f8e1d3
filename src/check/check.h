/* SPDX-License-Identifier: MIT */
/*
 * Rules about models, in one table (check.c), and their findings.
 *
 *     struct check_model m = {.g = g, .src = &src, .file = "x-7B-v1.0.gguf", .label = path};
 *     r = check_rules(&m, sink, arg);      sink is called once for each finding
 *
 * A rule is a row {id, scope, function}. Each rule reports at most CHECK_MOST findings, then the
 * number of those left out.
 *
 * Severity: an error makes readers refuse or misread the file, or violates a "must" of the
 * specification. A warning violates its wording, or stops some readers. A note is not a fault.
 *
 * Threads share no state. Only the caller's thread calls the sink.
 */
#ifndef CHECK_CHECK_H
#define CHECK_CHECK_H

#include "base/buf.h"
#include "gguf/value.h"
#include "model/facts.h"
#include "text/json.h"

enum check_severity { CHECK_NOTE, CHECK_WARNING, CHECK_ERROR };

/* "note", "warning", "error" */
extern const char *const check_severity_name[];

/* All text is on one line, safe to print, and valid only while the sink runs. */
struct check_finding {
    enum check_severity severity;
    const char *rule;  /* id of the rule */
    const char *file;  /* the label of the checked file; not made safe to print */
    const char *what;  /* the fault */
    const char *where; /* place in the file: a key, a tensor, bytes; "" if no place applies */
};

typedef void check_sink(void *arg, const struct check_finding *f);

#define CHECK_MOST 20 /* maximum number of findings per rule */

/*
 * Rules about files check each file of a split model, rules about models the merged model. For
 * other models all rules apply.
 */
enum check_scope { CHECK_ALL, CHECK_FILE, CHECK_WHOLE };

struct check_model {
    const struct gguf *g;     /* from gguf_parse_faults() if the file is broken */
    const struct source *src; /* the file's bytes; NULL: bytes between tensors are not read */
    const char *file;         /* file name without directories; NULL: no name */
    const char *label;        /* name of the file in findings */
    enum check_scope scope;
    size_t shards;        /* number of files of a split model whose files fit together; else 0 */
    bool faults_reported; /* the parser's findings were already reported */
    /* Maximum number of padding bytes to read, in whole pages; a note says if there are more. 0
     * means no limit. */
    uint64_t padding_most;
};

/* Apply all rules except the rule about values (scan.h). Returns 0, -ENOMEM, or -errno from reading
 * the file. */
int check_rules(const struct check_model *m, check_sink *sink, void *arg);

/* Report that an interrupted edit was applied in memory before the check. */
void check_tell_journal(const char *label, check_sink *sink, void *arg);

/* Return the id of rule i in the order of application. After the rules come the ids of findings
 * that belong to no row of the table, then NULL. */
const char *check_any_rule_id(size_t i);
#define CHECK_STRUCTURE "structure" /* faults reported by the parser, or an interrupted edit */
#define CHECK_VALUES "values"       /* scan.h */

/* ---- findings as text and as JSON ---- */

/* The worst finding about a model, not counting notes, in ascending order. */
enum check_outcome { CHECK_CLEAN, CHECK_WARNINGS, CHECK_ERRORS, CHECK_UNUSABLE };

/* Append "FILE: error: what (where)\n". The name of the file is made safe to print. */
void report_line(struct buf *out, const struct check_finding *f);

/*
 * Builds a JSON array with an object for each model, in the order of the calls:
 *   {"file": PATH, "shards": N (0: not split),
 *    "name": {"BaseName": ..., ...} or null if it does not follow the convention,
 *    "findings": [{"severity": ..., "rule": ..., "file": ..., "what": ..., "where": ...}, ...],
 *    "result": "clean|findings|unusable"}
 * Call report_begin(), then for each model report_file(), a function for each finding, and
 * report_outcome(), and finally report_end(). Errors stay in `text`.
 */
struct report {
    struct buf text; /* owned: the caller's to free */
    struct json json;
};
void report_begin(struct report *r);
void report_file(struct report *r, const char *file, size_t shards);
void report_finding(struct report *r, const struct check_finding *f);
void report_outcome(struct report *r, enum check_outcome outcome);
void report_end(struct report *r);

/* ---- for the rules: private to the check layer ---- */

/* A rule being applied. */
struct checker {
    const struct gguf *g;
    const struct source *src;
    const char *file;
    const char *label;
    struct text arch; /* general.architecture */
    const struct key_index *index;
    uint32_t at; /* number of the key or tensor to check */
    int error;   /* 0, or -errno if a rule could not be applied */
    size_t shards;
    bool faults_reported;
    uint64_t padding_left; /* bytes of padding that may still be read */
    uint64_t padding_page; /* end of the last page of padding that was read */
    bool padding_cut;      /* some padding was not read */
    const char *rule;      /* id of the rule */
    unsigned reported;     /* findings of this rule so far */
    enum check_severity last;
    check_sink *sink;
    void *arg;
};

/*
 * Report a finding about a place, which is printed unchanged: "key 'x'", "tensor 'x'", "bytes 12 to
 * 31". Strings among the format's arguments must be safe to print.
 */
void report(struct checker *c, enum check_severity s, const char *where, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void report_key(struct checker *c, enum check_severity s, uint32_t key, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void report_tensor(struct checker *c, enum check_severity s, uint32_t tensor, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void report_bytes(struct checker *c, enum check_severity s, uint64_t first, uint64_t last,
                  const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* Report the number of findings of the rule that were left out. */
void report_rest(const struct checker *c);

/* A rule sets one of the functions, which is called for each key, for each tensor, or once. */
struct rule {
    const char *id;
    enum check_scope scope; /* CHECK_FILE or CHECK_WHOLE */
    void (*key)(struct checker *c, struct text key, const struct gguf_value *v);
    void (*tensor)(struct checker *c, const struct gguf_tensor *t);
    void (*whole)(struct checker *c);
};

/* Lists of rules, each ending in a row without an id. */
extern const struct rule layout_rules[], keys_rules[], tokenizer_rules[], model_rules[],
    template_rules[], needs_rules[], name_rules[];

#endif

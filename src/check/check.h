/* SPDX-License-Identifier: MIT */
/*
 * Checks models: parses their files as far as possible, applies tables of rules, and searches the
 * values for NaN and infinity.
 *
 *     struct check_model m = {.g = g, .src = &src, .file = "x-7B-v1.0.gguf", .label = path};
 *     r = check_rules(&m, sink, arg);      sink is called once for each finding
 *
 * A rule is a row {id, scope, function}. Each rule reports at most CHECK_MOST findings, then how
 * many were omitted.
 *
 * Severity: an error makes readers refuse or misread the file, or violates a "must" of the
 * specification. A warning violates the wording of the specification, or makes some readers fail. A
 * note is not a fault.
 *
 * Threads share no state. Only the caller's thread calls the sink.
 */
#ifndef CHECK_CHECK_H
#define CHECK_CHECK_H

#include "gguf/value.h"
#include "model/facts.h"

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
 * Rules about files check each file of a split model; rules about models check the merged model.
 * For a model that is not split, all rules apply.
 */
enum check_scope { CHECK_ALL, CHECK_FILE, CHECK_WHOLE };

struct check_model {
    const struct gguf *g;     /* from gguf_parse_faults() if the file is broken */
    const struct source *src; /* the file's bytes; NULL: bytes between tensors are not read */
    const char *file;         /* file name without directories; NULL: no name */
    const char *label;        /* name of the file in findings */
    enum check_scope scope;
    size_t shards;        /* number of files of a split model, if they fit together; else 0 */
    bool faults_reported; /* the parser's findings have already been reported */
};

/* Apply all rules except the rule about values. Returns 0, -ENOMEM, or -errno from reading
 * the file. */
int check_rules(const struct check_model *m, check_sink *sink, void *arg);

/* Return the id of rule i in the order of application. After the rules come the ids of findings
 * that belong to no row of the table, then NULL. */
const char *check_any_rule_id(size_t i);
#define CHECK_STRUCTURE "structure" /* faults reported by the parser */
#define CHECK_VALUES "values"

/* Append "FILE: error: what (where)\n". The name of the file is made safe to print. */
void report_line(struct buf *out, const struct check_finding *f);

/* ---- the files of a model ---- */

/* The severity of the worst finding about a model, ignoring notes, in ascending order. */
enum check_outcome { CHECK_CLEAN, CHECK_WARNINGS, CHECK_ERRORS, CHECK_UNUSABLE };

struct check_options {
    bool values;  /* also check every value of every tensor */
    bool unnamed; /* do not check the name of the file */
    /* Ids of rules to ignore, separated by blanks, or NULL. Findings that make a model unusable are
     * always reported. */
    const char *ignore;
    /* Reports the number of tensor bytes checked. Called by any thread, but never by two at once.
     * May be NULL. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
};

/*
 * Check the model at `path`, which may be any file of a split model, or a pipe (edit/open.h), of
 * which only the header is checked. Symbolic links are followed, but the name that is checked is
 * the one in the path. The outcome is "unusable" if a mount would refuse the model; the sink
 * receives the reason as an error of the rule "structure", or "split" if the files do not fit
 * together. A finding is labelled with the path of its file, or of the first one.
 */
enum check_outcome check_file(const char *path, const struct check_options *o, check_sink *sink,
                              void *arg);

/* The NaNs and infinities in a tensor. */
struct scan_result {
    uint64_t nan, inf; /* numbers of values */
    uint64_t scales; /* number of blocks with a NaN or infinite scale, even if no value shows it */
    uint64_t zeros;  /* number of values in pieces that consist of zero bytes */
    uint64_t first;  /* the first bad element; for a scale, the first element of its block */
    bool unread;     /* the type has no values, or data is missing from the file */
};

/* Reports the progress of several scans: `done` of `total` bytes. The function may be NULL. */
struct scan_watch {
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
    uint64_t done, total;
};

/*
 * Decode and check every value of a file, on all processors. found: a zeroed result for each tensor.
 * watch: may be NULL. To be fast, needs quant_init(). Returns 0, -EIO (the file was truncated, or the
 * medium failed) or -ENOMEM.
 */
int scan_run(const struct gguf *g, const struct source *src, struct scan_watch *watch,
             struct scan_result *found);

/* ---- for the rules: private to the check layer ---- */

/* A rule being applied. */
struct checker {
    const struct check_model *m;
    const struct gguf *g;
    const char *label;
    struct text arch;      /* general.architecture */
    uint32_t at;           /* index of the key or tensor to check */
    int error;             /* 0, or -errno if a rule could not be applied */
    uint64_t padding_left; /* budget of padding bytes left to read */
    const char *rule;      /* id of the rule */
    unsigned reported;     /* findings of this rule so far */
    enum check_severity last;
    check_sink *sink;
    void *arg;
    char where[SHOW_MAX + 64]; /* the place last returned by at_key() or a similar function */
};

/* Report a finding about a place, which is printed unchanged. Strings among the format's arguments
 * must be safe to print. */
void report(struct checker *c, enum check_severity s, const char *where, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Return a place, valid until the next call: "key 'x'", "tensor 'x'", "bytes 12 to 31". */
const char *at_key(struct checker *c, uint32_t key);
const char *at_tensor(struct checker *c, uint32_t tensor);
const char *at_bytes(struct checker *c, uint64_t first, uint64_t last);

/* A rule sets one of the functions, which is called for each key, for each tensor, or once. */
struct rule {
    const char *id;
    enum check_scope scope; /* CHECK_FILE or CHECK_WHOLE */
    void (*key)(struct checker *c, struct text key, const struct gguf_value *v);
    void (*tensor)(struct checker *c, const struct gguf_tensor *t);
    void (*whole)(struct checker *c);
};

/* Lists of rules, each ending in a row without an id. */
extern const struct rule layout_rules[], keys_rules[], needs_rules[], name_rules[];

#endif

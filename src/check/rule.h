/* SPDX-License-Identifier: MIT */
/* Shared by the rules; private to the check layer. */
#ifndef CHECK_RULE_H
#define CHECK_RULE_H

#include "check/check.h"

/* A rule at work. */
struct checker {
    const struct gguf *g;
    const struct source *src;
    const char *file;
    const char *label;
    size_t shards;
    bool faults_reported;
    uint64_t padding_left; /* bytes of padding that may still be read */
    uint64_t padding_page; /* the end of the last page of padding that was read */
    bool padding_cut;      /* not all padding was read */
    const char *rule;      /* id of the rule */
    unsigned reported;     /* findings of this rule */
    enum check_severity last;
    check_sink *sink;
    void *arg;
};

/* Report a finding about a place. Strings in the format's arguments must be safe to print. */
void report(struct checker *c, enum check_severity s, const char *where, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Report how many findings of the rule were left out. */
void report_rest(const struct checker *c);

/* Places: "key 'x'", "tensor 'x'", "bytes 12 to 31". Return dst. */
#define WHERE_MAX (SHOW_MAX + 64)
const char *where_key(const struct gguf *g, uint32_t i, char dst[WHERE_MAX]);
const char *where_tensor(const struct gguf *g, uint32_t i, char dst[WHERE_MAX]);
const char *where_bytes(uint64_t first, uint64_t last, char dst[WHERE_MAX]);

struct rule {
    const char *id;
    int (*run)(struct checker *c); /* 0 or -errno */
    enum check_scope scope;        /* CHECK_FILE, CHECK_WHOLE */
};

/* Those of each file, up to a row without an id. */
extern const struct rule layout_rules[], tensors_rules[], keys_rules[], tokenizer_rules[],
    model_rules[], template_rules[], loads_rules[], shape_rules[], name_rules[];

#endif

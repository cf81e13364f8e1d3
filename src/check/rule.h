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

/* The rules: 0 or -errno. layout.c */
int rule_missing(struct checker *c);
int rule_version(struct checker *c);
int rule_order(struct checker *c);
int rule_gaps(struct checker *c);
int rule_tail(struct checker *c);
int rule_trailing(struct checker *c);
int rule_padding(struct checker *c);
int rule_alignment(struct checker *c);

/* tensors.c */
int rule_tensor_name(struct checker *c);
int rule_tensor_dims(struct checker *c);
int rule_tensor_type(struct checker *c);
int rule_known_name(struct checker *c);
int rule_quantization(struct checker *c);
int rule_blocks(struct checker *c);

/* loads.c */
int rule_tensors(struct checker *c);

/* shape.c */
int rule_shape(struct checker *c);

/* template.c */
int rule_template(struct checker *c);

/* tokenizer.c */
int rule_tokenizer(struct checker *c);

/* keys.c */
int rule_key_syntax(struct checker *c);
int rule_key_type(struct checker *c);
int rule_utf8(struct checker *c);
int rule_bool(struct checker *c);
int rule_nested(struct checker *c);
int rule_architecture(struct checker *c);
int rule_required(struct checker *c);
int rule_split(struct checker *c);

/* model.c */
int rule_tokens(struct checker *c);
int rule_token_types(struct checker *c);
int rule_token_ids(struct checker *c);
int rule_vocabulary(struct checker *c);
int rule_heads(struct checker *c);
int rule_per_layer(struct checker *c);
/* The first block that the model has: not 0 of a file with nothing but blocks that predict tokens. */
uint64_t model_first_block(const struct gguf *g);
int rule_values(struct checker *c);

/* name.c */
int rule_size_label(struct checker *c);
int rule_file_name(struct checker *c);

#endif

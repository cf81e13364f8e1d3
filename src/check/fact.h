/* SPDX-License-Identifier: MIT */
/* A fact of the table in summary.c, and the facts about running a model. Private to summary*.c. */
#ifndef CHECK_FACT_H
#define CHECK_FACT_H

#include "check/summary.h"

struct fact {
    const char *label;  /* NULL: only in JSON */
    const char *member; /* of the object; NULL: only as a line */
    const char *key;    /* that the functions look up */
    /* The value, in one line or more; it writes nothing if the model has none. NULL: the number. */
    void (*text)(const struct summary *s, const struct fact *f, struct buf *out);
    /* The member's value, if that is a number; false if the model has none. */
    bool (*number)(const struct summary *s, const struct fact *f, uint64_t *ret);
    /* The member's value, if that is neither the number nor the text. *ret stays NULL: the model has
     * none. 0, -ENOMEM. */
    int (*json)(const struct summary *s, const struct fact *f, cJSON **ret);
    size_t at, width; /* parsed_number: a field of struct gguf */
};

/* "4.2 GiB", or plain bytes below 1 KiB. */
void fact_size_text(struct buf *out, uint64_t bytes);

void fact_bits_text(const struct summary *s, const struct fact *f, struct buf *out);
int fact_bits_json(const struct summary *s, const struct fact *f, cJSON **ret);
void fact_file_type_text(const struct summary *s, const struct fact *f, struct buf *out);
/* A number that may differ by layer: "11008", "by layer". */
void fact_layers_text(const struct summary *s, const struct fact *f, struct buf *out);
void fact_rope_text(const struct summary *s, const struct fact *f, struct buf *out);
void fact_experts_text(const struct summary *s, const struct fact *f, struct buf *out);
/* Bytes of keys and values in F16, for a token and for the whole context. */
bool fact_kv_token(const struct summary *s, const struct fact *f, uint64_t *ret);
bool fact_kv_context(const struct summary *s, const struct fact *f, uint64_t *ret);
void fact_kv_text(const struct summary *s, const struct fact *f, struct buf *out);
void fact_special_text(const struct summary *s, const struct fact *f, struct buf *out);
int fact_special_json(const struct summary *s, const struct fact *f, cJSON **ret);
void fact_template_text(const struct summary *s, const struct fact *f, struct buf *out);
int fact_template_json(const struct summary *s, const struct fact *f, cJSON **ret);
void fact_base_models(const struct summary *s, const struct fact *f, struct buf *out);
/* The first of some keys that has a text. */
void fact_source_text(const struct summary *s, const struct fact *f, struct buf *out);

#endif

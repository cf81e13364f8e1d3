/* SPDX-License-Identifier: MIT */
/* Findings as text for people and as JSON for machines. */
#ifndef CHECK_REPORT_H
#define CHECK_REPORT_H

#include <cjson/cJSON.h>

#include "base/buf.h"
#include "check/file.h"

/* Append a whole path of any length, made safe to print. */
void report_path(struct buf *out, const char *path);

/* The parts of a file's name (without folders) as an object, or null if the name does not follow the
 * convention. NULL: no memory. cJSON_Delete() it. */
cJSON *report_name(const char *file);

/* "FILE: error: what (where)\n". The name of the file is made safe to print. */
void report_line(struct buf *out, const struct check_finding *f);

/*
 * JSON: an array with an object for each model, in the order of the calls:
 *   {"file": PATH, "shards": N (0: not split), "result": "clean|findings|unusable",
 *    "name": {"BaseName": ..., ...} or null if it does not follow the convention,
 *    "findings": [{"severity": ..., "rule": ..., "file": ..., "what": ...,
 *                  "where": ...}, ...]}
 */
struct report;
struct report *report_new(void); /* NULL: no memory */
void report_free(struct report *r);
void report_file(struct report *r, const char *file, size_t shards);
void report_finding(struct report *r, const struct check_finding *f); /* of the last file */
void report_outcome(struct report *r, enum check_outcome outcome);    /* of the last file */
/* Append the text. 0, or -ENOMEM, also if an earlier call had no memory. */
int report_json(const struct report *r, struct buf *out);

#endif

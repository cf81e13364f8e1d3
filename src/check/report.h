/* SPDX-License-Identifier: MIT */
/* Findings as text for people and as JSON for machines. */
#ifndef CHECK_REPORT_H
#define CHECK_REPORT_H

#include "base/buf.h"
#include "check/file.h"
#include "text/json.h"

/* Append a whole path of any length, made safe to print. */
void report_path(struct buf *out, const char *path);

/* The same as a member of an object. */
void report_path_json(struct json *j, const char *name, const char *path);

/* The parts of a file's name (without folders) as an object, or null if the name does not follow the
 * convention. */
void report_name_json(struct json *j, const char *name, const char *file);

/* "FILE: error: what (where)\n". The name of the file is made safe to print. */
void report_line(struct buf *out, const struct check_finding *f);

/*
 * JSON: an array with an object for each model, in the order of the calls:
 *   {"file": PATH, "shards": N (0: not split),
 *    "name": {"BaseName": ..., ...} or null if it does not follow the convention,
 *    "findings": [{"severity": ..., "rule": ..., "file": ..., "what": ..., "where": ...}, ...],
 *    "result": "clean|findings|unusable"}
 * report_begin(), then for each model report_file(), its findings and report_outcome(); report_end(). Errors stay
 * in `text`.
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

#endif

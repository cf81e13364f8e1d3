/* SPDX-License-Identifier: MIT */
/* Prints and reads stories: see story.h. draw.c draws them. */
#include "story.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "disk.h"

const char *const names[NAMES] = {"r.a",  "r.b",      "r.c",  "r.d",    "r.e",
                                  "r.f",  "one",      "two",  "three",  "four",
                                  "r.a~", ".r.b.swp", "4913", "123456", "#r.c.tmp"};
const char *const calls[CALLS] = {"create", "openat", "pread",  "pwrite", "ftruncate", "fsync",
                                  "flock",  "lseek",  "copy",   "clone",  "fstat",     "fstatat",
                                  "fchmod", "rename", "unlink", "link",   "list"};

/*
 * The words and their arguments: s slot, f flags, o name, t second name, c call, n first, m second
 * and l third number, a actor, h how.
 */
static const struct {
    const char *word, *form;
} forms[WORDS] = {
    [W_OPEN] = {"open", "sof"},    [W_WRITE] = {"write", "sn"}, [W_HALF] = {"half", "sn"},
    [W_CLOSE] = {"close", "s"},    [W_FORK] = {"fork", "s"},    [W_FSYNC] = {"fsync", "s"},
    [W_CUT] = {"cut", "s"},        [W_PUT] = {"put", "on"},     [W_MV] = {"mv", "ot"},
    [W_RM] = {"rm", "o"},          [W_SYNC] = {"sync", ""},     [W_TRUNC] = {"trunc", "o"},
    [W_READ] = {"read", "o"},      [W_LIST] = {"list", ""},     [W_MODEL] = {"model", ""},
    [W_PASS] = {"pass", "n"},      [W_FAIL] = {"fail", "cnml"}, [W_ROOM] = {"room", "n"},
    [W_BRIEF] = {"brief", ""},     [W_SLOW] = {"slow", "n"},    [W_MEND] = {"mend", ""},
    [W_SIGNAL] = {"signal", "ah"}, [W_ALTER] = {"alter", ""},   [W_REPLACE] = {"replace", ""},
    [W_TYPE] = {"type", "on"},     [W_SHAPE] = {"shape", "on"}, [W_ADD] = {"add", "onm"},
    [W_RMR] = {"rmr", "o"},        [W_UNDO] = {"undo", ""},     [W_POWER] = {"power", "n"},
    [W_KILL] = {"kill", "n"},      [W_TERM] = {"term", ""},     [W_NOMEM] = {"nomem", "n"},
    [W_SHORT] = {"short", "n"},    [W_JSON] = {"json", ""},     [W_RETYPE] = {"retype", "on"},
    [W_NPY] = {"npy", "onm"},      [W_SPOIL] = {"spoil", "s"},  [W_RMDIR] = {"rmdir", "o"},
};

static const char *const commits[] = {"auto", "close", "sync"};
static const char *const strategies[] = {"auto", "inplace", "copy"};
static const char *const features[] = {"clones", "no-exchange", "no-nameless", "no-range"};
static const char *const actors[] = {"A", "B", "C", "D", "Z"};
static const char *const hows[] = {"late", "stop"};
static const struct {
    const char *name;
    unsigned bit;
} flags[] = {
    {"w", F_WRITE}, {"trunc", F_TRUNC}, {"creat", F_CREAT}, {"excl", F_EXCL}, {"f32", F_F32}};

/* Where an argument is in a step, and its words if it is not a number. */
static const struct {
    char form;
    size_t at;
    const char *const *list;
    unsigned n;
} arguments[] = {
    {'s', offsetof(struct step, slot), NULL, 0},
    {'o', offsetof(struct step, name), names, NAMES},
    {'t', offsetof(struct step, to), names, NAMES},
    {'c', offsetof(struct step, call), calls, CALLS},
    {'a', offsetof(struct step, n), actors, ACTORS},
    {'h', offsetof(struct step, n2), hows, 2},
    {'n', offsetof(struct step, n), NULL, 0},
    {'m', offsetof(struct step, n2), NULL, 0},
    {'l', offsetof(struct step, n3), NULL, 0},
};

static size_t argument_of(char form)
{
    size_t i = 0;
    while (arguments[i].form != form)
        i++;
    return i;
}

static void print_flags(const struct step *s, FILE *to)
{
    (void)fprintf(to, " %s", s->flags & F_WRITE ? "w" : "r");
    for (size_t i = 1; i < sizeof(flags) / sizeof(*flags); i++)
        if (s->flags & flags[i].bit)
            (void)fprintf(to, " %s", flags[i].name);
}

static void print_step(const struct step *s, FILE *to)
{
    (void)fprintf(to, "%s %s", actors[s->actor], forms[s->word].word);
    for (const char *f = forms[s->word].form; *f; f++) {
        if (*f == 'f') {
            print_flags(s, to);
            continue;
        }
        const size_t i = argument_of(*f);
        const unsigned v = *(const unsigned *)((const char *)s + arguments[i].at);
        if (arguments[i].list)
            (void)fprintf(to, " %s", arguments[i].list[v]);
        else
            (void)fprintf(to, " %u", v);
    }
    (void)fprintf(to, "\n");
}

void story_print(const struct story *s, void *file)
{
    FILE *to = file;
    (void)fprintf(to, "mount %s %s", commits[s->commit], strategies[s->strategy]);
    for (unsigned i = 0; i < FEATURES; i++)
        if (s->features & 1u << i)
            (void)fprintf(to, " %s", features[i]);
    (void)fprintf(to, "%s%s%s\n", s->tensors ? " tensors" : "", s->history ? " history" : "",
                  s->split ? " split" : "");
    for (unsigned i = 0; i < s->n; i++)
        print_step(&s->step[i], to);
}

/* ---- read ---- */

static int place(const char *word, const char *const *list, unsigned n)
{
    for (unsigned i = 0; word && i < n; i++)
        if (strcmp(word, list[i]) == 0)
            return (int)i;
    return -1;
}

static bool read_flags(struct step *s, char **rest)
{
    for (const char *word; (word = strtok_r(NULL, " ", rest));) {
        bool known = strcmp(word, "r") == 0;
        for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++)
            if (strcmp(word, flags[i].name) == 0) {
                s->flags |= flags[i].bit;
                known = true;
            }
        if (!known)
            return false;
    }
    return true;
}

static bool read_argument(struct step *s, char form, char **rest)
{
    if (form == 'f')
        return read_flags(s, rest);
    const size_t i = argument_of(form);
    const char *word = strtok_r(NULL, " ", rest);
    const int v = arguments[i].list ? place(word, arguments[i].list, arguments[i].n)
                  : word            ? atoi(word)
                                    : -1;
    *(unsigned *)((char *)s + arguments[i].at) = (unsigned)v;
    return v >= 0 && s->slot < SLOTS;
}

static bool read_step(char *line, struct step *ret)
{
    char *rest;
    int who = place(strtok_r(line, " ", &rest), actors, ACTORS);
    const char *word = strtok_r(NULL, " ", &rest);
    *ret = (struct step){.actor = (unsigned)who};
    while (word && ret->word < WORDS && strcmp(word, forms[ret->word].word) != 0)
        ret->word++;
    if (who < 0 || !word || ret->word == WORDS)
        return false;
    for (const char *f = forms[ret->word].form; *f; f++)
        if (!read_argument(ret, *f, &rest))
            return false;
    return true;
}

static bool read_mount(char *line, struct story *ret)
{
    char *rest;
    const char *word = strtok_r(line, " ", &rest);
    int commit = place(strtok_r(NULL, " ", &rest), commits, 3);
    int strategy = place(strtok_r(NULL, " ", &rest), strategies, 3);
    if (!word || strcmp(word, "mount") != 0 || commit < 0 || strategy < 0)
        return false;
    ret->commit = (uint8_t)commit;
    ret->strategy = (uint8_t)strategy;
    while ((word = strtok_r(NULL, " ", &rest))) {
        const int feature = place(word, features, FEATURES);
        ret->features |= (uint8_t)(feature < 0 ? 0 : 1u << feature);
        ret->tensors |= strcmp(word, "tensors") == 0;
        ret->split |= strcmp(word, "split") == 0;
        ret->history |= strcmp(word, "history") == 0;
    }
    return true;
}

bool story_read(const char *text, struct story *ret, unsigned *line)
{
    char one[200];
    bool first = true;
    memset(ret, 0, sizeof(*ret));
    for (*line = 1; *text; ++*line) {
        size_t n = strcspn(text, "\n");
        (void)snprintf(one, sizeof(one), "%.*s", (int)n, text);
        text += n + (text[n] != 0);
        if (strncmp(one, "# seed ", 7) == 0)
            ret->seed = strtoull(one + 7, NULL, 10);
        if (one[0] == '#' || one[0] == '\0')
            continue;
        if (ret->n == STEPS || !(first ? read_mount(one, ret) : read_step(one, &ret->step[ret->n])))
            return false;
        ret->n += !first;
        first = false;
    }
    return !first;
}

/* SPDX-License-Identifier: MIT */
/* Checks the contents of a directory of models: see shelf_shows.h. */
#include "shelf_shows.h"

#include "cu_main.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "shelf/place.h"
#include "shelf_top.h"

static void show_item(struct reach *r, const struct item *i, const char *name, unsigned depth,
                      struct buf *out);

/* Check that an entry found by its name agrees with the listing. */
static void check_found(struct reach *r, const struct place *p, const char *name,
                        const struct item *want)
{
    struct item i;
    CU_ASSERT_EQUAL_FATAL(place_find(r, p, name, &i), 0);
    CU_ASSERT_EQUAL(i.kind, want->kind);
    CU_ASSERT_EQUAL(i.shards, want->shards);
    CU_ASSERT_EQUAL(i.store, want->store);
    if (i.kind == ITEM_FOLDER)
        CU_ASSERT_TRUE(place_same(&i.place, &want->place));
    CU_ASSERT_TRUE(i.real ? want->real && strcmp(i.real, want->real) == 0 : !want->real);
    item_free(&i);
}

static void show_place(struct reach *r, const struct place *p, unsigned depth, struct buf *out)
{
    struct listing l = LISTING_INIT;
    CU_ASSERT_EQUAL_FATAL(place_list(r, p, &l), 0);
    for (size_t n = 0; n < l.n; n++) {
        struct item i;
        const struct ref ref = l.entry[n].ref;
        int e = place_item(r, p, &ref, &i);
        if (e == 0) {
            check_found(r, p, l.entry[n].name, &i);
            show_item(r, &i, l.entry[n].name, depth, out);
            item_free(&i);
        } else if (ref.sure != REF_UNSURE || e != -ENOENT) {
            buf_printf(out, "%*s%s ?\n", (int)(2 * depth), "", l.entry[n].name);
        }
    }
    listing_free(&l);
}

static void show_item(struct reach *r, const struct item *i, const char *name, unsigned depth,
                      struct buf *out)
{
    buf_printf(out, "%*s%s", (int)(2 * depth), "", name);
    if (i->kind == ITEM_FOLDER) {
        buf_str(out, i->store ? "/ store\n" : "/\n");
        show_place(r, &i->place, depth + 1, out);
        return;
    }
    const char *real = i->real && strncmp(i->real, shelf_top, strlen(shelf_top)) == 0
                           ? i->real + strlen(shelf_top) + 1
                           : i->real;
    buf_printf(out, " %s%s%s", i->kind == ITEM_TEXT ? "text " : "", real ? real : "-",
               i->store ? " store" : "");
    if (i->shards)
        buf_printf(out, " %zu", i->shards);
    if (i->error.code)
        buf_printf(out, " (%s)", i->error.msg);
    buf_char(out, '\n');
}

void check_below(const char *below, bool strict, const struct line *lines, size_t n,
                 const char *want)
{
    CLEANUP(buf_free) struct buf out = BUF_INIT;
    char path[4096];
    struct reach r;
    struct place p;
    shelf_top_make();
    for (size_t i = 0; i < n; i++)
        shelf_top_add(lines[i].what, lines[i].name, lines[i].text);
    (void)snprintf(path, sizeof(path), "%s/%s", shelf_top, below);
    CU_ASSERT_EQUAL_FATAL(reach_begin(&r, path, strict, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(place_top(&r, &p), 0);
    show_place(&r, &p, 0, &out);
    buf_char(&out, '\0');
    CU_ASSERT_STRING_EQUAL((const char *)out.data, want);
    if (strcmp((const char *)out.data, want) != 0)
        (void)fprintf(stderr, "---- shown:\n%s---- wanted:\n%s", (const char *)out.data, want);
    place_free(&p);
    reach_end(&r);
    shelf_top_remove();
}

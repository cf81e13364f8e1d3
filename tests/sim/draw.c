/* SPDX-License-Identifier: MIT */
/* Draws random stories (story.h), built from the ways in which programs save files. */
#include <errno.h>
#include <string.h>

#include "disk.h"
#include "oracle.h"
#include "story.h"

static struct story *to;
static uint64_t lots;
static unsigned token;

static unsigned draw(unsigned n)
{
    lots = lots * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)((lots >> 33) % n);
}

static void add(struct step s)
{
    if (to->n < STEPS)
        to->step[to->n++] = s;
}

/* At most one of the members may be drawn, because the order within an expression is unspecified. */
#define ADD(who, what, ...) add((struct step){.actor = (who), .word = (what), __VA_ARGS__})

/* Returns a new value, or the last one once all are used. */
static unsigned value(void)
{
    return token < TOKENS - 1 ? ++token : token;
}

static void on(unsigned actor, enum word word, unsigned slot)
{
    ADD(actor, word, .slot = slot);
}

static void plain(unsigned actor, enum word word)
{
    on(actor, word, 0);
}

static void named(unsigned actor, enum word word, unsigned name)
{
    ADD(actor, word, .name = name);
}

static void put(unsigned actor, unsigned name)
{
    ADD(actor, W_PUT, .name = name, .n = value());
}

static void mv(unsigned actor, unsigned from, unsigned into)
{
    ADD(actor, W_MV, .name = from, .to = into);
}

static void open_as(unsigned actor, unsigned slot, unsigned name, unsigned flags)
{
    if (name >= KEYS && name < REGS && draw(3) == 0)
        flags |= F_F32;
    ADD(actor, W_OPEN, .slot = slot, .name = name, .flags = flags);
}

/* Writes a text that is refused, usually after an earlier one was accepted. */
static void spoil(unsigned actor, unsigned slot)
{
    if (draw(3))
        on(actor, W_FSYNC, slot);
    on(actor, W_SPOIL, slot);
}

/* Sometimes writes in two parts. Between them, a child process may exit, which closes the file. */
static void write_as(unsigned actor, unsigned slot)
{
    if (draw(4) == 0) {
        ADD(actor, W_HALF, .slot = slot, .n = value());
        if (draw(2)) {
            on(actor, W_FORK, slot);
            on(actor, W_CLOSE, slot);
        }
    }
    ADD(actor, W_WRITE, .slot = slot, .n = value());
    if (draw(6) == 0)
        spoil(actor, slot);
}

/* ---- ways of saving ---- */

static void vim(unsigned a, unsigned key)
{
    mv(a, key, REGS + draw(2));
    open_as(a, 0, key, F_WRITE | F_CREAT | F_EXCL);
    write_as(a, 0);
    if (draw(2))
        on(a, W_FSYNC, 0);
    on(a, W_CLOSE, 0);
    named(a, W_RM, REGS);
}

static void by_rename(unsigned a, unsigned key)
{
    unsigned helper =
        draw(4) == 0 ? KEYS_THERE + draw(KEYS - KEYS_THERE) : REGS + draw(NAMES - REGS);
    bool early = draw(4) == 0; /* os.replace() before close() */
    open_as(a, 0, helper, F_WRITE | F_CREAT | F_TRUNC);
    write_as(a, 0);
    if (draw(3) == 0)
        on(a, W_FSYNC, 0);
    if (!early)
        on(a, W_CLOSE, 0);
    mv(a, helper, key);
    if (early && draw(2))
        spoil(a, 0);
    on(a, W_CLOSE, 0);
}

/* Closes a duplicate, then the file, as NumPy does. */
static void twice(unsigned a, unsigned key)
{
    open_as(a, 1, key, F_WRITE | F_TRUNC | F_CREAT);
    on(a, W_FORK, 1);
    write_as(a, 1);
    on(a, W_CLOSE, 1);
    if (draw(2))
        write_as(a, 1);
    on(a, W_CLOSE, 1);
}

static void in_place(unsigned a, unsigned key)
{
    open_as(a, 2, key, F_WRITE | draw(2) * F_TRUNC);
    for (unsigned n = 1 + draw(3); n; n--) {
        write_as(a, 2);
        if (draw(2))
            on(a, W_FSYNC, 2);
    }
    on(a, W_CLOSE, 2);
}

static void install(unsigned a, unsigned key)
{
    named(a, W_RM, key);
    open_as(a, 0, key, F_WRITE | F_CREAT | F_EXCL);
    write_as(a, 0);
    on(a, W_CLOSE, 0);
}

/* Tries again with the same value. */
static void again(unsigned a, unsigned name)
{
    const unsigned n = value();
    open_as(a, 1, name, F_WRITE);
    for (unsigned i = 2 + draw(2); i; i--) {
        ADD(a, W_WRITE, .slot = 1, .n = n);
        on(a, W_FSYNC, 1);
    }
    on(a, W_CLOSE, 1);
}

/* Makes a backup and restores it, before or after the file is written. */
static void put_back(unsigned a, unsigned key)
{
    open_as(a, 0, key, F_WRITE | draw(2) * F_TRUNC);
    if (draw(2))
        write_as(a, 0);
    mv(a, key, REGS);
    mv(a, REGS, key);
    if (draw(2))
        write_as(a, 0);
    on(a, W_CLOSE, 0);
}

/* Stores to a numpy.memmap. */
static void mapping(unsigned a, unsigned tensor)
{
    open_as(a, 0, tensor, F_WRITE);
    for (unsigned n = 1 + draw(2); n; n--) {
        ADD(a, draw(4) ? W_WRITE : W_HALF, .n = value());
        if (draw(2))
            on(a, W_FSYNC, 0);
    }
    on(a, W_CLOSE, 0);
}

static void add_tensor(unsigned a, unsigned tensor)
{
    const unsigned form = draw(60);
    ADD(a, W_ADD, .name = tensor, .n = value(), .n2 = form);
    if (draw(4) == 0)
        plain(a, W_SYNC);
    else if (draw(3) == 0)
        ADD(a, W_PASS, .n = 1 + draw(6000));
}

static void add_other(unsigned a, unsigned tensor)
{
    add_tensor(a, draw(2) ? tensor : KEYS + TENSORS_THERE + draw(2));
}

static void numpy(unsigned a, unsigned tensor)
{
    const unsigned form = draw(4 * FORMS);
    ADD(a, W_NPY, .name = tensor, .n = value(), .n2 = form);
}

static void look(unsigned a)
{
    if (draw(2))
        named(a, W_READ, draw(NAMES));
    else if (draw(2))
        plain(a, W_LIST);
    else
        plain(a, draw(2) ? W_JSON : W_MODEL);
}

/* One program adds a tensor, which another one removes about when it is judged. */
static void contend(unsigned a)
{
    const unsigned tensor = KEYS + TENSORS_THERE;
    if (a == 0) {
        add_tensor(a, tensor);
        plain(a, W_SYNC);
    }
    for (unsigned n = draw(12); a == 1 && n; n--)
        named(a, W_READ, tensor);
    for (unsigned n = 3; a == 1 && n; n--)
        named(a, W_RMDIR, tensor);
}

static void new_form(unsigned a, unsigned tensor)
{
    const unsigned form = draw(FORMS);
    ADD(a, draw(3) ? W_TYPE : W_SHAPE, .name = tensor, .n = form);
}

static void remove_tensor(unsigned a, unsigned tensor)
{
    named(a, draw(3) ? W_RMR : W_RMDIR, tensor);
    if (draw(2))
        add_tensor(a, tensor);
}

/* As sync FILE does. */
static void sync_tensor(unsigned a, unsigned tensor)
{
    open_as(a, 2, tensor, 0);
    on(a, W_FSYNC, 2);
    on(a, W_CLOSE, 2);
}

typedef void way(unsigned actor, unsigned name);

/* Does to a tensor what users do besides writing raw and f32. */
static void tensors(unsigned a, unsigned favourite)
{
    static way *const ways[] = {new_form,  new_form,  mapping,       mapping,
                                add_other, add_other, remove_tensor, remove_tensor,
                                numpy,     numpy,     numpy,         sync_tensor};
    ways[draw(12)](a, draw(3) ? favourite : KEYS + draw(REGS - KEYS));
}

/* Adds a call of any kind. */
static void anything(unsigned a)
{
    static const enum word on_slots[] = {W_CLOSE, W_CLOSE, W_FORK, W_FSYNC, W_CUT};
    const unsigned slot = draw(3), what = draw(8), flags = F_WRITE | draw(4) * F_TRUNC;
    if (what < 2)
        open_as(a, slot, draw(to->tensors ? REGS : KEYS), flags);
    else if (what < 4)
        write_as(a, slot);
    else if (what == 4)
        named(a, W_TRUNC, draw(KEYS));
    else if (what == 5)
        plain(a, W_SYNC);
    else
        on(a, on_slots[draw(5)], slot);
}

static void save(unsigned a, unsigned key)
{
    static way *const ways[] = {put, put, vim, by_rename, by_rename, twice, in_place, install};
    static const uint8_t of_tensors[] = {0, 0, 5, 6};
    ways[key >= KEYS ? of_tensors[draw(4)] : draw(8)](a, key);
}

static void client(unsigned a, unsigned steps, unsigned favourite)
{
    const unsigned upto = to->n + steps;
    while (to->n < upto && to->n < STEPS) {
        const unsigned key = draw(3) ? favourite : draw(to->tensors ? REGS : KEYS), what = draw(9);
        if (key < KEYS && draw(20) == 0) {
            ADD(a, W_RETYPE, .name = key, .n = draw(3));
        } else if (draw(12) == 0) {
            (draw(2) || key >= KEYS ? again : put_back)(a, key);
        } else if (to->tensors && favourite >= KEYS && draw(3) == 0) {
            tensors(a, favourite);
        } else if (what < 3) {
            save(a, key);
        } else if (what == 3) {
            look(a);
        } else if (what == 4 && key < KEYS) {
            const unsigned other = draw(NAMES);
            mv(a, other, draw(4) ? key : draw(NAMES));
        } else if (what == 5) {
            named(a, W_RM, draw(NAMES));
        } else if (what == 6) {
            if (to->history && draw(3) == 0)
                plain(a, W_UNDO);
            if (draw(4) == 0)
                ADD(a, W_PASS, .n = 1 + draw(3000));
        } else {
            anything(a);
        }
    }
}

/* ---- faults and events: each returns whether it is the last one ---- */

static bool fault(void)
{
    static const unsigned errors[] = {EIO, EIO, ENOSPC, ENOSPC, EDQUOT};
    const unsigned call = draw(2) ? draw(CALLS) : 3, n = 1 + draw(6), error = errors[draw(5)];
    ADD(DISK, W_FAIL, .call = call, .n = n, .n2 = error, .n3 = draw(3) ? 1 : 1 + draw(20));
    return false;
}

/* Makes a sync fail: the bytes written before it may never reach the disk, but remain readable. */
static void failed_sync(void)
{
    const unsigned n = 1 + draw(8);
    ADD(DISK, W_FAIL, .call = 5, .n = n, .n2 = EIO, .n3 = 1 + draw(4));
    if (draw(2))
        ADD(DISK, W_PASS, .n = draw(4000));
}

static bool fill(void)
{
    if (draw(2))
        ADD(DISK, W_ROOM, .n = draw(30000));
    else
        plain(DISK, W_MEND);
    return false;
}

static bool hinder(void)
{
    plain(DISK, W_BRIEF);
    ADD(DISK, W_SLOW, .n = 1 + draw(2500));
    return false;
}

static bool send_signal(void)
{
    const unsigned client = draw(CLIENTS);
    ADD(DISK, W_SIGNAL, .n = client, .n2 = draw(2));
    return false;
}

static bool end(void)
{
    static const enum word ends[] = {W_POWER, W_POWER, W_KILL, W_KILL, W_TERM};
    if (draw(3) == 0)
        (void)fault();
    if (draw(2))
        failed_sync();
    const enum word how = ends[draw(5)];
    ADD(DISK, how, .n = draw(3) ? draw(100) : 0);
    return true;
}

static bool lack_memory(void)
{
    if (draw(2)) {
        ADD(DISK, W_NOMEM, .n = 1 + draw(draw(2) ? 10 : 200));
        return false;
    }
    ADD(DISK, W_SHORT, .n = 1 + draw(200));
    ADD(DISK, W_PASS, .n = draw(draw(2) ? 3 : 3000));
    plain(DISK, W_MEND);
    return false;
}

static bool other_program(void)
{
    plain(DISK, draw(2) ? W_ALTER : W_REPLACE);
    return true;
}

static void befall(void)
{
    static bool (*const events[])(void) = {fault,       fill, hinder,      send_signal,
                                           send_signal, end,  lack_memory, other_program};
    bool (*const event)(void) = events[draw(8)];
    bool last = false;
    for (unsigned n = 1 + draw(4); n && !last; n--) {
        if (draw(2))
            ADD(DISK, W_PASS, .n = draw(2) ? draw(3) : draw(2000));
        last = event();
    }
}

struct story story_draw(uint64_t seed)
{
    static const uint8_t strategies[] = {0, 0, 0, 0, 1, 1, 2, 2};
    static struct story s;
    lots = seed * 2 + 1;
    memset(&s, 0, sizeof(s));
    to = &s;
    token = TOKEN_FIRST + KEYS_THERE + TENSORS_THERE - 1;
    s.tensors = draw(2);
    s.history = draw(5) == 0;
    s.commit = (uint8_t)draw(3);
    s.features = draw(3) == 0 ? CLONES : 0;
    s.strategy = strategies[draw(8)];
    const unsigned clients = 1 + draw(CLIENTS),
                   favourite = s.tensors && draw(4) ? KEYS + draw(2) : draw(KEYS);
    const bool contended = s.tensors && draw(5) == 0;
    for (unsigned a = 0; a < clients; a++) {
        if (contended)
            contend(a);
        client(a, 3 + draw(20), favourite);
    }
    if (draw(3))
        befall();
    if (draw(4) == 0)
        s.features |= (uint8_t)(2 << draw(FEATURES - 1));
    s.split = !s.tensors && draw(3) == 0;
    return s;
}

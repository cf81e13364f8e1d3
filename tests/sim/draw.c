/* SPDX-License-Identifier: MIT */
/* Draws random stories (story.h), built from the ways in which programs save files. */
#include <errno.h>
#include <string.h>

#include "disk.h"
#include "oracle.h"
#include "story.h"

static struct story *to;
static bool wide;
static uint64_t lots;
static unsigned token;

static uint32_t draw(uint32_t n)
{
    lots = lots * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((lots >> 33) % n);
}

static struct step *add(unsigned actor, enum word word)
{
    static struct step none;
    if (to->n == STEPS)
        return &none;
    struct step *s = &to->step[to->n++];
    *s = (struct step){.actor = (uint8_t)actor, .word = (uint8_t)word};
    return s;
}

/* Returns a new value, or the last one once all are used. */
static uint32_t value(void)
{
    return token < TOKENS - 1 ? ++token : token;
}

static void on(unsigned actor, enum word word, unsigned slot)
{
    add(actor, word)->slot = (uint8_t)slot;
}

static void named(unsigned actor, enum word word, unsigned name)
{
    add(actor, word)->name = (uint8_t)name;
}

static void put(unsigned actor, unsigned name)
{
    struct step *s = add(actor, W_PUT);
    s->name = (uint8_t)name;
    s->n = value();
}

static void mv(unsigned actor, unsigned from, unsigned into)
{
    struct step *s = add(actor, W_MV);
    s->name = (uint8_t)from;
    s->to = (uint8_t)into;
}

static void open_as(unsigned actor, unsigned slot, unsigned name, unsigned flags)
{
    struct step *s = add(actor, W_OPEN);
    s->slot = (uint8_t)slot;
    s->name = (uint8_t)name;
    s->flags = (uint8_t)(flags | (name >= KEYS && name < REGS && draw(3) == 0 ? F_F32 : 0));
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
    if (wide && draw(4) == 0) {
        struct step *half = add(actor, W_HALF);
        half->slot = (uint8_t)slot;
        half->n = value();
        if (draw(2)) {
            on(actor, W_FORK, slot);
            on(actor, W_CLOSE, slot);
        }
    }
    struct step *s = add(actor, W_WRITE);
    s->slot = (uint8_t)slot;
    s->n = value();
    if (wide && draw(6) == 0)
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
        wide && draw(4) == 0 ? KEYS_THERE + draw(KEYS - KEYS_THERE) : REGS + draw(NAMES - REGS);
    bool early = draw(4) == 0; /* os.replace() before close() */
    open_as(a, 0, helper, F_WRITE | F_CREAT | F_TRUNC);
    write_as(a, 0);
    if (draw(3) == 0)
        on(a, W_FSYNC, 0);
    if (!early)
        on(a, W_CLOSE, 0);
    mv(a, helper, key);
    if (early && wide && draw(2))
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
    open_as(a, 2, key, F_WRITE | (draw(2) ? F_TRUNC : 0));
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
    const uint32_t n = value();
    open_as(a, 1, name, F_WRITE);
    for (unsigned i = 2 + draw(2); i; i--) {
        struct step *s = add(a, W_WRITE);
        s->slot = 1;
        s->n = n;
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
        struct step *s = add(a, draw(4) ? W_STORE : W_HALVES);
        s->n = value();
        if (draw(2))
            on(a, W_FSYNC, 0);
    }
    on(a, W_CLOSE, 0);
}

static void add_tensor(unsigned a, unsigned tensor)
{
    struct step *s = add(a, W_ADD);
    s->name = (uint8_t)tensor;
    s->n = value();
    s->n2 = draw(54);
    if (draw(4) == 0)
        add(a, W_SYNC);
    else if (draw(3) == 0)
        add(a, W_PASS)->n = 1 + draw(6000);
}

/* Writes a NumPy view, about half the time with the header of numpy.save(). */
static void numpy(unsigned a, unsigned tensor)
{
    static const uint8_t ways[] = {0, 0, 0, 1, 1, 2, 3, 3, 3, 4, 4, 5, 5, 6, 6, 6};
    struct step *s = add(a, W_NPY);
    s->name = (uint8_t)tensor;
    s->n = value();
    s->n2 = draw(3) + 3 * (draw(2) ? draw(9) : 0);
    s->n3 = ways[draw(16)];
    s->n3 += draw(4) ? 0 : 7;  /* f16.npy */
    s->n3 += draw(3) ? 0 : 14; /* fsync */
}

static void look(unsigned a)
{
    switch (draw(4)) {
    case 0:
        add(a, W_LIST);
        break;
    case 1:
        add(a, wide && draw(2) ? W_JSON : W_MODEL);
        break;
    default:
        named(a, W_READ, draw(NAMES));
    }
}

/* One program adds a tensor, which another one removes about when it is judged. */
static void contend(unsigned a)
{
    const unsigned tensor = KEYS + TENSORS_THERE;
    if (a == 0) {
        add_tensor(a, tensor);
        add(a, W_SYNC);
    }
    for (unsigned n = draw(12); a == 1 && n; n--)
        named(a, W_READ, tensor);
    for (unsigned n = 3; a == 1 && n; n--)
        named(a, W_RMDIR, tensor);
}

/* Does to a tensor what users do besides writing raw and f32. */
static void tensors(unsigned a, unsigned favourite)
{
    unsigned tensor = draw(3) ? favourite : KEYS + draw(REGS - KEYS);
    struct step *s;
    switch (draw(14)) {
    case 0:
    case 1:
        s = add(a, draw(3) ? W_TYPE : W_SHAPE);
        s->name = (uint8_t)tensor;
        s->n = draw(FORMS);
        break;
    case 2:
    case 3:
        mapping(a, tensor);
        break;
    case 4:
    case 5:
        add_tensor(a, draw(2) ? tensor : KEYS + TENSORS_THERE + draw(2));
        break;
    case 6:
    case 7:
        named(a, wide && draw(3) == 0 ? W_RMDIR : W_RMR, tensor);
        if (draw(2))
            add_tensor(a, tensor);
        break;
    case 8:
        named(a, W_TRUNC, tensor);
        break;
    case 9:
    case 10:
    case 11:
    case 12:
        numpy(a, tensor);
        break;
    default: /* sync FILE */
        open_as(a, 2, tensor, 0);
        on(a, W_FSYNC, 2);
        on(a, W_CLOSE, 2);
    }
}

/* Adds a call of any kind. */
static void anything(unsigned a)
{
    static const uint8_t on_slots[] = {W_CLOSE, W_CLOSE, W_FORK, W_FSYNC, W_CUT};
    /* one draw per expression, because the order within one is unspecified */
    unsigned slot = draw(3), flags;
    switch (draw(8)) {
    case 0:
    case 1:
        flags = F_WRITE | draw(4) * F_TRUNC;
        open_as(a, slot, draw(to->tensors ? REGS : KEYS), flags);
        break;
    case 2:
    case 3:
        write_as(a, slot);
        break;
    case 4:
        named(a, W_TRUNC, draw(KEYS));
        break;
    case 5:
        add(a, W_SYNC);
        break;
    default:
        on(a, (enum word)on_slots[draw(5)], slot);
    }
}

static void save(unsigned a, unsigned key)
{
    static void (*const ways[])(unsigned, unsigned) = {put,       put,   vim,      by_rename,
                                                       by_rename, twice, in_place, install};
    static const uint8_t of_tensors[] = {0, 0, 5, 6};
    ways[key >= KEYS ? of_tensors[draw(4)] : draw(8)](a, key);
}

static void client(unsigned a, unsigned steps, unsigned favourite)
{
    unsigned upto = to->n + steps;
    while (to->n < upto && to->n < STEPS) {
        unsigned key = draw(3) ? favourite : draw(to->tensors ? REGS : KEYS), other;
        if (wide && key < KEYS && draw(20) == 0) {
            struct step *s = add(a, W_RETYPE);
            s->name = (uint8_t)key;
            s->n = draw(3);
            continue;
        }
        if (wide && draw(12) == 0) {
            (draw(2) || key >= KEYS ? again : put_back)(a, key);
            continue;
        }
        if (to->tensors && favourite >= KEYS && draw(3) == 0) {
            tensors(a, favourite);
            continue;
        }
        switch (draw(9)) {
        case 0:
        case 1:
        case 2:
            save(a, key);
            break;
        case 3:
            look(a);
            break;
        case 4:
            other = key >= KEYS ? KEYS + draw(4) : draw(NAMES);
            if (key < KEYS)
                mv(a, other, draw(4) ? key : draw(NAMES));
            else if (draw(2))
                mv(a, key, other);
            else
                mv(a, other, key);
            break;
        case 5:
            named(a, W_RM, draw(NAMES));
            break;
        case 6:
            if (to->history && draw(3) == 0)
                add(a, W_UNDO);
            if (draw(4) == 0)
                add(a, W_PASS)->n = 1 + draw(3000);
            break;
        default:
            anything(a);
        }
    }
}

/* ---- faults and events ---- */

static void fault(void)
{
    static const int errors[] = {EIO, EIO, ENOSPC, ENOSPC, EDQUOT};
    struct step *s = add(DISK, W_FAIL);
    s->call = (uint8_t)(draw(2) ? draw(CALLS) : 3);
    s->n = 1 + draw(6);
    s->n2 = (uint32_t)errors[draw(5)];
    s->n3 = draw(3) ? 1 : 1 + draw(20);
}

/* Makes a sync fail: the bytes written before it may never reach the disk, but remain readable. */
static void failed_sync(void)
{
    struct step *s = add(DISK, W_FAIL);
    s->call = 5;
    s->n = 1 + draw(8);
    s->n2 = EIO;
    s->n3 = 1 + draw(4);
    if (draw(2))
        add(DISK, W_PASS)->n = draw(4000);
}

static void befall(unsigned kinds)
{
    for (unsigned n = 1 + draw(4); n; n--) {
        if (draw(2))
            add(DISK, W_PASS)->n = draw(2) ? draw(3) : draw(2000);
        switch (kinds) {
        case 1:
            fault();
            break;
        case 2:
            if (draw(2))
                add(DISK, W_ROOM)->n = draw(30000);
            else
                add(DISK, W_MEND);
            break;
        case 7:
            (void)add(DISK, draw(2) ? W_ALTER : W_REPLACE);
            return;
        case 6:
            if (wide && draw(2)) {
                add(DISK, W_SHORT)->n = 1 + draw(200);
                add(DISK, W_PASS)->n = draw(draw(2) ? 3 : 3000);
                add(DISK, W_MEND);
                break;
            }
            (void)(add(DISK, W_NOMEM)->n = 1 + draw(draw(2) ? 10 : 200));
            break;
        case 3:
            add(DISK, W_BRIEF);
            add(DISK, W_SLOW)->n = 1 + draw(2500);
            break;
        case 5:
            if (draw(3) == 0)
                fault();
            if (draw(2))
                failed_sync();
            static const uint8_t ends[] = {W_POWER, W_POWER, W_KILL, W_KILL, W_TERM};
            add(DISK, (enum word)ends[draw(5)])->n = draw(3) ? draw(100) : 0;
            return;
        default: {
            struct step *s = add(DISK, W_SIGNAL);
            s->n = draw(CLIENTS);
            s->n2 = draw(2);
        }
        }
    }
}

struct story story_draw(uint64_t seed, bool also_new)
{
    static struct story s;
    lots = seed * 2 + 1;
    (void)draw(2);
    (void)draw(2);
    memset(&s, 0, sizeof(s));
    to = &s;
    wide = also_new;
    token = TOKEN_FIRST + KEYS_THERE + TENSORS_THERE - 1;
    s.tensors = draw(2);
    s.history = draw(5) == 0;
    s.commit = (uint8_t)draw(3);
    s.features = draw(3) == 0 ? CLONES : 0;
    static const uint8_t strategies[] = {0, 0, 0, 0, 1, 1, 2, 2};
    s.strategy = strategies[draw(8)];
    unsigned clients = 1 + draw(CLIENTS),
             favourite = s.tensors && draw(4) ? KEYS + draw(2) : draw(KEYS);
    const bool contended = wide && s.tensors && draw(5) == 0;
    for (unsigned a = 0; a < clients; a++) {
        if (contended)
            contend(a);
        client(a, 3 + draw(20), favourite);
    }
    unsigned what = draw(12);
    if (what >= 4)
        befall(what == 9 ? 5 : what >= 10 ? what - 4 : what - 3);
    if (wide && draw(4) == 0)
        s.features |= (uint8_t)(2 << draw(FEATURES - 1));
    s.split = wide && !s.tensors && draw(3) == 0;
    return s;
}

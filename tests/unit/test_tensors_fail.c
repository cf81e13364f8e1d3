/* SPDX-License-Identifier: MIT */
/* Every kind of tensor edit while calls fail; edit_case.h has the cases. */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/bytes.h"
#include "model/store.h"
#include "edit_case.h"
#include "viewfile.h"

static uint8_t bytes[20001];

static int rename_tensor(struct tree *t)
{
    return do_rename_tensor(t, "b", "renamed");
}

static int remove_tensor(struct tree *t)
{
    int r = do_rmdir_tensor(t, "b");
    return r < 0 ? r : do_sync(t);
}

static int replace_raw(struct tree *t)
{
    memset(bytes, 7, sizeof(bytes));
    return viewfile_put(t, "b", "raw", bytes, sizeof(bytes));
}

/* Overwrite part of a view through a handle that does not truncate. */
static int change_raw(struct tree *t)
{
    struct viewfile v;
    int r = viewfile_open(t, "b", "raw", O_RDWR, &v);
    if (r < 0)
        return r;
    r = viewfile_pwrite(&v, 5000, "new bytes", 9);
    int closed = viewfile_close(&v);
    return r < 0 ? r : closed;
}

static int replace_values(struct tree *t)
{
    static uint8_t values[2048 * 4]; /* little-endian, like f32 */
    for (size_t i = 0; i < sizeof(values) / 4; i++) {
        float value = (float)i;
        uint32_t bits;
        memcpy(&bits, &value, sizeof(bits));
        put_u32(values + 4 * i, bits, false);
    }
    return viewfile_put(t, "c", "f32", values, sizeof(values));
}

/* Save an array of a different shape, and thus of a different length. */
static int save(struct tree *t)
{
    static const char text[] = "{'descr':'<f4','fortran_order':False,'shape':(3,64)}";
    uint8_t file[128 + 3 * 64 * 4] = "\x93NUMPY\x01\x00\x76";
    memset(file + 10, ' ', 118);
    memcpy(file + 10, text, sizeof(text) - 1);
    file[127] = '\n';
    return viewfile_put(t, "c", "f32.npy", file, sizeof(file));
}

static int reshape(struct tree *t)
{
    return viewfile_put(t, "c", "shape", "4 512\n", 6);
}

static int convert(struct tree *t)
{
    return viewfile_put(t, "c", "type", "Q8_0\n", 5);
}

/* Add a tensor as `cp -r` does. */
static int add(struct tree *t)
{
    int r = do_mkdir_tensor(t, "new");
    if (r == 0)
        r = viewfile_put_with(t, "new", "type", O_CREAT, "I8\n", 3);
    if (r == 0)
        r = viewfile_put_with(t, "new", "shape", O_CREAT, "100\n", 4);
    if (r == 0)
        r = viewfile_put_with(t, "new", "raw", O_CREAT, bytes, 100);
    return r < 0 ? r : do_sync(t);
}

/* Unlink first, as tar and install do. */
static int unlinked_first(struct tree *t)
{
    int r = viewfile_unlink(t, "b", "raw");
    memset(bytes, 11, sizeof(bytes));
    return r < 0 ? r : viewfile_put_with(t, "b", "raw", O_CREAT, bytes, sizeof(bytes));
}

/* Release a handle without a close, as after a mapping. */
static int released(struct tree *t)
{
    struct viewfile v;
    int r = viewfile_open(t, "b", "raw", O_RDWR, &v);
    if (r < 0)
        return r;
    r = viewfile_pwrite(&v, 100, "mapped", 6);
    int synced = viewfile_sync(&v);
    viewfile_release(&v);
    return r < 0 ? r : synced;
}

/* Called after any failure; edits another tensor. */
static int next(struct tree *t)
{
    float values[5] = {1, 2, 3, 4, 5};
    return viewfile_put(t, "a", "f32", values, sizeof(values));
}

static const struct edit_kind kinds[] = {
    {"rename", rename_tensor, false},  {"remove", remove_tensor, true},
    {"raw", replace_raw, false},       {"part of raw", change_raw, false},
    {"values", replace_values, false}, {"NumPy array", save, false},
    {"shape", reshape, false},         {"type", convert, false},
    {"new tensor", add, false},        {"unlink and create", unlinked_first, false},
    {"mapping", released, false},
};
const struct edit_suite edit_suite = {kinds, COUNT(kinds), true, next};

static CU_TestInfo tests[] = {
    {"if any call fails, the old file stays, shown and editable", test_fail},
    {"a kill at any call leaves the old or the new file", test_kill},
    {"a power cut at any call leaves the old or the new file", test_power},
    CU_TEST_INFO_NULL,
};

CU_MAIN("tensors_fail", tests)

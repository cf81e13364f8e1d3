/* SPDX-License-Identifier: MIT */
/*
 * Treats arbitrary bytes as a model's history: as a whole file, and as the content of a record with
 * a valid sum. What an undo accepts can be restored.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "edit/change.h"
#include "edit/history.h"
#include "edit/plan.h"

#define MODEL "/m"

static char home[40];
static char path[128];

static void remove_home(void)
{
    char at[64];
    (void)unlink(path);
    (void)snprintf(at, sizeof(at), "%s/ggufs/history", home);
    for (int i = 0; i < 3; i++, *strrchr(at, '/') = '\0')
        (void)rmdir(at);
}

static void make_home(void)
{
    char at[64];
    if (path[0])
        return;
    (void)snprintf(home, sizeof(home), "%s/ggufs-fuzz-XXXXXX",
                   access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp");
    FUZZ_CHECK(mkdtemp(home));
    (void)snprintf(at, sizeof(at), "%s/ggufs", home);
    FUZZ_CHECK(mkdir(at, 0700) == 0);
    (void)snprintf(at, sizeof(at), "%s/ggufs/history", home);
    FUZZ_CHECK(mkdir(at, 0700) == 0);
    (void)snprintf(path, sizeof(path), "%s/%016llx", at, (unsigned long long)xxh64(0, MODEL, 2));
    (void)atexit(remove_home);
}

static void put_file(const void *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FUZZ_CHECK(fd >= 0 && write(fd, bytes, n) == (ssize_t)n && close(fd) == 0);
}

/* Make a model whose keys are restored: two keys and a tensor. */
static struct gguf *make_base(bool big)
{
    uint8_t image[256] = {0};
    struct gguf *g = NULL;
    memcpy(image, "GGUF", 4);
    put_u32(image + 4, 3, big);
    put_u64(image + 8, 1, big);
    put_u64(image + 16, 2, big);
    put_u64(image + 24, 3, big);
    memcpy(image + 32, "a.a", 3);
    put_u32(image + 35, GGUF_U8, big);
    put_u64(image + 40, 4, big);
    memcpy(image + 48, "none", 4);
    put_u32(image + 52, GGUF_U32, big);
    put_u64(image + 60, 1, big);
    memcpy(image + 68, "t", 1);
    put_u32(image + 69, 1, big);
    put_u64(image + 73, 4, big);
    struct source s = source_mem(image, 160);
    FUZZ_CHECK(gguf_parse(&s, 0, &g, NULL) == 0);
    return g;
}

static void check_err(int r, const struct err *e)
{
    FUZZ_CHECK(r < 0 ? e->code == r && e->msg[0] && !strchr(e->msg, '\n') : r == 0);
}

static void restore(const struct gguf *g, const struct gguf *keys)
{
    CLEANUP(edit_change_free) struct edit_change c;
    CLEANUP(edit_plan_free) struct edit_plan p = EDIT_PLAN_INIT;
    struct edit_options o = EDIT_OPTIONS_INIT;
    struct err e = {0};
    edit_change_init(&c, &(struct edit_base){.g = g});
    int r = edit_restore(&c, keys, &e);
    check_err(r, &e);
    if (r == 0)
        r = edit_plan_make(&c, &o, &p, &e);
    check_err(r, &e);
    FUZZ_CHECK(r < 0 || edit_keys_id(p.next) == edit_keys_id(keys));
}

/* Undo, list and append to what is in the file. */
static void use(const struct gguf *base)
{
    CLEANUP(history_close) struct history h = HISTORY_INIT;
    struct err e = {0};
    FUZZ_CHECK(history_open(&h, &sys_libc, home, MODEL, 3, &e) == 0);
    for (uint64_t number = 0; number < 3; number++) {
        CLEANUP(history_pick_free) struct history_pick pick;
        int r = history_pick(&h, number, base, &pick, &e);
        check_err(r, &e);
        if (r == 0)
            restore(base, pick.keys);
        FUZZ_CHECK(!memchr(r == 0 ? buf_text(&pick.said) : "", '\n', pick.said.len));
    }
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    check_err(history_text(&h, edit_keys_id(base), &text, &e), &e);
    CLEANUP(edit_change_free) struct edit_change c;
    CLEANUP(edit_plan_free) struct edit_plan p = EDIT_PLAN_INIT;
    edit_change_init(&c, &(struct edit_base){.g = base});
    FUZZ_CHECK(edit_rename(&c, "a.a", 3, "b.b", 3, &e) == 0);
    FUZZ_CHECK(edit_plan_make(&c, &EDIT_OPTIONS_INIT, &p, &e) == 0);
    const struct history_edit edit = {&c, p.next, 0, 9000};
    CLEANUP(history_pick_free) struct history_pick pick;
    FUZZ_CHECK(history_append(&h, &edit, &e) == 0);
    history_end(&h, true, 9000);
    FUZZ_CHECK(history_pick(&h, 0, p.next, &pick, &e) == 0);
}

/* Put the bytes, as the id of the keys before it and old slots, into a record with a valid sum, after
 * which the keys are the base's. */
static void dress(const uint8_t *data, size_t size, const struct gguf *base)
{
    CLEANUP(buf_free) struct buf file = BUF_INIT;
    buf_str(&file, "GGUFSHS6");
    for (int i = 0; i < 3; i++)
        buf_uint(&file, 0, 8, false);
    buf_uint(&file, 2, 8, false);
    buf_str(&file, MODEL);
    put_u64(file.data + 8, xxh64(0, file.data + 16, file.len - 16), false);
    const size_t at = file.len;
    buf_zero(&file, 8);
    const uint64_t head[] = {48 + size, 1, 0, 1000, get_u64(data, false), edit_keys_id(base)};
    for (size_t i = 0; i < sizeof(head) / sizeof(head[0]); i++)
        buf_uint(&file, head[i], 8, false);
    buf_add(&file, data + 8, size - 8);
    FUZZ_CHECK(!buf_error(&file));
    put_u64(file.data + at, xxh64(0, file.data + at + 8, file.len - at - 8), false);
    put_file(file.data, file.len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *base = make_base(size % 2);
    make_home();
    put_file(data, size);
    use(base);
    if (size >= 8) {
        dress(data, size, base);
        use(base);
    }
    gguf_free(base);
    return 0;
}

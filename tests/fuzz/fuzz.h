/* SPDX-License-Identifier: MIT */
/*
 * Every harness defines LLVMFuzzerTestOneInput(), which must return for any bytes. A failed
 * FUZZ_CHECK ends the process, as a sanitizer does.
 *
 * A harness is linked with replay.c (a main() that runs files; `meson test`), or, with the option
 * fuzz=true, with libFuzzer.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_CHECK(promise)                                                                    \
    do {                                                                                       \
        if (!(promise)) {                                                                      \
            (void)fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #promise); \
            abort();                                                                           \
        }                                                                                      \
    } while (0)

/* Check that a message is one printable line. */
static inline void fuzz_line(const char *line)
{
    FUZZ_CHECK(line[0]);
    for (const char *p = line; *p; p++)
        FUZZ_CHECK((unsigned char)*p >= 0x20 && *p != 0x7f);
}

#endif

/* SPDX-License-Identifier: MIT */
/*
 * SHA-256, by libcrypto where the program was built with it.
 *
 * Threads: a digest belongs to one thread at a time.
 */
#ifndef DERIVE_DIGEST_H
#define DERIVE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIGEST_BYTES 32
#define DIGEST_HEX (2 * (size_t)DIGEST_BYTES)

/* "OpenSSL 3.0.19 ..."; NULL: there is no SHA-256 in this build, and digest_new() fails. */
const char *digest_library(void);

struct digest;
struct digest *digest_new(void); /* NULL: no memory */
/* May run under map_guard(): it allocates and locks nothing. */
void digest_add(struct digest *d, const void *bytes, size_t n);
/* The hash of all that was added. 0, -EIO: the library failed. */
int digest_end(struct digest *d, uint8_t dst[DIGEST_BYTES]);
void digest_free(struct digest *d); /* may be NULL */

/* In lower-case hex, without an end. */
void digest_hex(const uint8_t hash[DIGEST_BYTES], char dst[DIGEST_HEX]);

#endif

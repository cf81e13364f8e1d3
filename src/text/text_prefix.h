/* SPDX-License-Identifier: MIT */
/* Refuses a text while it is still being written. Threads: any. */
#ifndef TEXT_TEXT_PREFIX_H
#define TEXT_TEXT_PREFIX_H

#include "text/text_parse.h"

/*
 * Check the first n bytes of a text that is still being written: 0, or the error that text_parse()
 * would return whatever follows. Some such errors are missed, but no text that may become valid is
 * refused (strings are not checked, as they may equal the old value). Looks at the first line of an
 * array, and at 4096 bytes at most.
 */
int text_prefix_check(uint32_t type, uint32_t elem, const uint8_t *text, size_t n);

#endif

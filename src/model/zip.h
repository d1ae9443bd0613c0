/* zip: the members of a zip file, as torch.save writes it: stored, not compressed.
 *
 * A zip ends in its directory: names, sizes and places of its members, each of which has a header of its own before its data:
 *
 *     header, name, data     of each member, perhaps padded
 *     directory              an entry a member
 *     end of the directory   how many entries, where they start; where 32 bits are not enough, a record of 64 before it
 *
 * Sizes are taken from the directory, since torch leaves those in the headers empty. What two readers could see differently is refused:
 * members that overlap, two of one name, a header with another name than its entry. Nothing is unpacked, so a file cannot grow. */
#pragma once
#include "api/config.h"
#include "base/platform.h"
#include "base/text.h"
#include "base/map.h"

typedef struct llm__zip_item {
    llm__str name;
    const uint8_t *data;
    uint64_t size;
    uint64_t begin, end; /* in the file, header included */
} llm__zip_item;

typedef struct llm__zip {
    llm__zip_item *item; /* (n) in the order of the directory */
    size_t n, cap;
    llm__map by_name;
} llm__zip;

/* 1 if bytes begin as a zip file with members does. */
LLM__PRIVATE int llm__zip_is(const uint8_t *data, size_t size);

/* Reads the directory of a zip file that lies at data, and checks all members. The caller closes *out, after errors too. */
LLM__PRIVATE llm_result llm__zip_open(const char *path, const uint8_t *data, size_t size, llm__zip *out);

/* The member of a name, or NULL. */
LLM__PRIVATE const llm__zip_item *llm__zip_find(const llm__zip *z, llm__str name);

LLM__PRIVATE void llm__zip_close(llm__zip *z);

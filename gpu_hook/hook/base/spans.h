/* An ordered set of address spans that do not overlap, each within a record of its owner's: a
 * treap, so that adding, removing and finding cost little however many there are. No lock and no
 * memory of its own. */
#ifndef ALIQUOT_SPANS_H
#define ALIQUOT_SPANS_H

#include <stddef.h>
#include <stdint.h>

struct span { /* of the record that begins with it */
    uint64_t start, bytes;
    uint32_t priority;
    struct span *left, *right;
};

struct spans {
    struct span *root;
    uint32_t seed;
};

void spans_add(struct spans *spans, struct span *added);
void spans_remove(struct spans *spans, const struct span *removed);

/* Return the span that holds the address; NULL: none does. */
void *spans_at(const struct spans *spans, uint64_t address);

/* Return the first span that ends after the address; NULL: none does. A span's successor is the
 * first one after its end. */
void *spans_from(const struct spans *spans, uint64_t address);

static inline uint64_t span_end(const struct span *span)
{
    return span->start + span->bytes;
}

#endif

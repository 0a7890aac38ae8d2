/* The yardstick where there is no link to measure against: processors that copy every byte
 * twice, through slots like the ring's, between memory whose pages are in the state of a swap's. */
#ifndef ALIQUOT_BENCH_COPY_TWICE_H
#define ALIQUOT_BENCH_COPY_TWICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns nanoseconds. Out: from memory that is mapped, into a new mapping of a file whose pages
 * exist. In (`to_fresh`): from such a mapping, into pages that do not exist yet, as a device's
 * at first. */
uint64_t copy_twice(size_t bytes, unsigned threads, bool to_fresh);

#endif

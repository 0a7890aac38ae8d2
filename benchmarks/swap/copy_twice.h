/* The yardstick where there is no link to measure against: processors that copy every byte twice, through slots like the
 * ring's, from memory and into memory whose pages are as those of a swap. */
#ifndef ALIQUOT_BENCH_COPY_TWICE_H
#define ALIQUOT_BENCH_COPY_TWICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Nanoseconds. Out: from memory that is mapped, into a mapping, made anew, of a file whose pages are there. In (`to_fresh`):
 * from such a mapping, into pages that are not there yet, as a device's are. */
uint64_t copy_twice(size_t bytes, unsigned threads, bool to_fresh);

#endif

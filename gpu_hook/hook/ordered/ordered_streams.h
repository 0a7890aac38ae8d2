/* The streams in whose order memory was freed: whether one has got there, and how another waits
 * for it. Callers hold the mutex of ordered_pools.c. */
#ifndef ALIQUOT_ORDERED_STREAMS_H
#define ALIQUOT_ORDERED_STREAMS_H

#include "ordered/ordered_heap.h"

#define ORDERED_NO_STREAM UINT64_MAX /* the id of none: freed while captures forbade to wait */

/* Return the stream as its own function would take it: a thread's default stream has a name. */
CUstream ordered_stream_name(CUstream stream, bool is_per_thread);

/* False: the driver has no ids of streams, or the stream is none. */
bool ordered_stream_id(CUstream stream, uint64_t *id);

/* Return the stream's cache of this heap, made where it is missing; NULL: no memory for it. */
struct ordered_cache *ordered_cache_of(struct ordered_heap *heap, CUstream stream, uint64_t id);

/* Note that memory was freed in the stream's order, before this call. */
void ordered_cache_freed(struct ordered_cache *cache);

/* Put the mark behind every free. Not while the stream captures. False: the driver refused. */
bool ordered_cache_set_mark(struct ordered_cache *cache);

/* Return whether the stream has reached every free. Not while any stream captures. */
bool ordered_cache_is_done(const struct ordered_cache *cache);

/* Wait for the context of a cache whose stream is not known. Not while any stream captures. */
bool ordered_cache_wait(const struct ordered_cache *cache);

/* End an empty cache's own things. */
void ordered_cache_end(struct ordered_cache *cache);

#endif

/* The division of memory that a pool of ours has reserved: chunks of addresses, cut into blocks.
 * A free block belongs to a cache: the idle one, or that of the stream in whose order it was
 * freed. Nothing here calls the driver; callers hold the mutex of ordered_pools.c. */
#ifndef ALIQUOT_ORDERED_HEAP_H
#define ALIQUOT_ORDERED_HEAP_H

#include "interpose/driver.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ORDERED_BINS 48u /* by powers of two */

struct ordered_block {
    uint64_t start, bytes, asked; /* asked: what the program knows of one in use */
    uint64_t id;
    struct ordered_chunk *chunk;
    struct ordered_block *before, *after;   /* by address, within the chunk */
    struct ordered_cache *cache;            /* NULL: in use */
    struct ordered_block *previous, *next;  /* within the cache's bin */
};

struct ordered_chunk { /* one swappable allocation */
    struct ordered_chunk *next;
    struct ordered_heap *heap; /* gone, perhaps, once the chunk was taken from it */
    int device;
    uint64_t start, bytes;
    struct ordered_block *first;
};

/* Free blocks that later work of one stream may use. */
struct ordered_cache {
    struct ordered_cache *next;
    uint64_t stream_id;
    CUstream stream;    /* NULL with `is_ended`: no longer there */
    CUcontext context;  /* of the stream */
    CUevent mark;       /* NULL: none was needed yet */
    bool is_marked;     /* the mark stands behind every free */
    bool is_eager;      /* a mark is set at each free: later the stream cannot be named, or asked */
    bool is_ended;
    uint64_t bytes;
    struct ordered_block *bins[ORDERED_BINS];
};

struct ordered_heap { /* of one pool */
    struct ordered_heap *next;
    CUmemoryPool handle; /* NULL: destroyed */
    int device;
    bool is_loose; /* holds unused bytes above its threshold */
    uint64_t threshold, most; /* most 0: no limit of its own */
    uint64_t used, used_high, reserved, reserved_high;
    uint64_t uses; /* allocations, those on their way included */
    struct ordered_chunk *chunks;
    struct ordered_cache idle, *caches;
};

/* Add memory as one idle block. False: no memory for the records. */
bool ordered_heap_add(struct ordered_heap *heap, uint64_t start, uint64_t bytes);

/* Take a block from a cache. NULL: it has none that is large enough. */
struct ordered_block *ordered_heap_take(struct ordered_cache *cache, uint64_t bytes);

/* Give a block in use to a cache. */
void ordered_heap_give(struct ordered_block *block, struct ordered_cache *cache);

/* Make all blocks of a stream's cache idle. */
void ordered_heap_settle(struct ordered_heap *heap, struct ordered_cache *cache);

/* Take the chunks that are idle as a whole, while at least `keep` bytes stay reserved. The caller
 * releases the memory, then calls ordered_chunk_end. */
struct ordered_chunk *ordered_heap_remove_idle(struct ordered_heap *heap, uint64_t keep);
void ordered_chunk_end(struct ordered_chunk *chunk);

/* Return the block in use that holds the address, or NULL. */
const struct ordered_block *ordered_heap_find(const struct ordered_heap *heap, uint64_t address,
                                              bool *is_within);

#endif

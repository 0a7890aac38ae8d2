/* The inside of pools, for the files that make them up. pools.mutex guards all of it. `parts` is
 * also under the window's lock, which is taken second. */
#ifndef SOFTGPU_POOLS_STATE_H
#define SOFTGPU_POOLS_STATE_H

#include <pthread.h>
#include <sys/mman.h>

#include "device/machine.h"
#include "pools/pools.h"
#include "device/ranges.h"
#include "queue/streams.h"
#include "memory/window_state.h"

enum pool_reuse { REUSE_EVENTS, REUSE_OPPORTUNISTIC, REUSE_INTERNAL, REUSE_KINDS };

/* A CUmemoryPool is a pointer to this. */
struct pool {
    CUdevice device;
    unsigned physical;
    int is_default, is_destroyed;
    uint64_t used, used_high, reserved, reserved_high;
    uint64_t threshold, most_bytes; /* most_bytes 0: the device is the limit */
    int reuse[REUSE_KINDS];
    CUmemAccess_flags access[MACHINE_DEVICES];
    struct chunk *chunks;
    struct part *freed; /* parts that are freed, but not yet free for all */
    int is_shareable;      /* its memory lies in pieces of a file */
    int is_imported;       /* another process's: no allocations, but pointers that are told */
    struct backing backing; /* of these two */
    struct ranges pieces;  /* of the file; owners are struct chunk */
    unsigned imports;      /* pointers imported from it */
    struct pool *next;
};

/* A reservation of device memory, charged whole. */
struct chunk {
    uint64_t start, bytes;
    struct ranges parts; /* owners are struct part */
    unsigned taken;      /* parts, freed ones too */
    uint64_t piece;      /* of a shareable pool's file; 0: none */
    struct chunk *next;
};

/* An allocation, or one whose free is queued in a stream. */
struct part {
    struct allocation allocation; /* first: the window sees this */
    struct chunk *chunk;
    uint64_t freed_on;            /* the stream's id; 0: in use */
    struct pending_free *pending; /* NULL: the stream has reached the free */
    struct part *next_freed;
};

/* A free in a stream's queue: the payload of a work item. */
struct pending_free {
    uint64_t address;  /* of memory that is no pool's */
    struct part *part; /* NULL: not a pool's, or the memory has a new owner already */
    struct work_item *work;
    unsigned physical;
    struct pending_free *next;
};

struct pools {
    pthread_mutex_t mutex;
    struct pool *all; /* destroyed ones too, while parts of them live */
    struct pool *defaults[MACHINE_DEVICES], *current[MACHINE_DEVICES]; /* by visible ordinal */
    struct pending_free *pending;
    uint64_t chunk_bytes;
};

extern struct pools pools;

/* All below: under the mutex. */

struct pool *pool_new(CUdevice device, int is_default); /* or NULL */
/* Memory for an allocation that `stream` may use from now on. When it is still in use elsewhere,
 * *wait is the work item that the stream must wait for, held. */
CUresult pool_take(struct pool *pool, struct context *context, uint64_t bytes, const struct stream *stream,
                   uint64_t *address, struct work_item **wait);
struct part *pool_part(uint64_t address); /* the allocation that starts there, or NULL */
/* The allocation that starts at `address` becomes a freed part of the stream; NULL when there is
 * none. */
struct part *pool_begin_free(uint64_t address, uint64_t stream_id);
/* The stream has reached the free; with `is_known`, the host knows it. */
void pool_reach_free(struct part *part, int is_known);
/* Frees that the host knows to be done are free for all. */
void pool_settle(struct pool *pool);
/* Releases unused chunks while at least `keep` bytes stay reserved; 1 if something went. */
int pool_release(struct pool *pool, uint64_t keep);
/* Gives a pool a file, and each of its chunks a piece of it: 0, or -1. */
int pool_share(struct pool *pool);
int pool_share_chunk(struct pool *pool, struct chunk *chunk);
void pool_unshare_chunk(struct pool *pool, struct chunk *chunk);
void pool_close_share(struct pool *pool);
/* Lets go of the imported pointer at `address`: 0, or -1 when there is none. */
int pool_give_import(uint64_t address);
/* Unlinks and frees a destroyed pool that holds nothing. */
void pool_end_if_empty(struct pool *pool);

#endif

/* The division of what a pool reserves. A pool looks for memory in the driver's order: freed
 * earlier in the same stream, free for every stream, new from the device, and at last what another
 * stream will free. */
#include <stdlib.h>

#include "pools/pools_state.h"

#define PART_UNIT 512ull

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static void count(struct pool *pool, int64_t used, int64_t reserved)
{
    pool->used += (uint64_t)used;
    pool->reserved += (uint64_t)reserved;
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
}

static void unlink_freed(struct pool *pool, const struct part *part)
{
    struct part **link = &pool->freed;
    while (*link != part)
        link = &(*link)->next_freed;
    *link = part->next_freed;
    if (part->pending)
        part->pending->part = NULL;
}

/* Makes a freed part's memory free for all. */
static void dissolve(struct pool *pool, struct part *part)
{
    uint64_t free_start, free_end;
    unlink_freed(pool, part);
    window_lock();
    ranges_give_back(&part->chunk->parts, part->allocation.start, &free_start, &free_end);
    window_unlock();
    part->chunk->taken--;
    free(part);
}

void pool_settle(struct pool *pool)
{
    for (struct part *part = pool->freed, *next; part; part = next) {
        next = part->next_freed;
        if (part->pending == NULL)
            dissolve(pool, part);
    }
}

int pool_release(struct pool *pool, uint64_t keep)
{
    int has_released = 0;
    for (struct chunk **link = &pool->chunks; *link;) {
        struct chunk *chunk = *link;
        if (chunk->taken || pool->reserved - chunk->bytes < keep) {
            link = &chunk->next;
            continue;
        }
        *link = chunk->next;
        window_lock();
        ranges_remove(&chunk->parts, chunk->start);
        window_unlock();
        pool_unshare_chunk(pool, chunk);
        window_release(chunk->start);
        count(pool, 0, -(int64_t)chunk->bytes);
        free(chunk);
        has_released = 1;
    }
    return has_released;
}

static CUresult reserve(struct pool *pool, uint64_t bytes)
{
    if (pool->most_bytes && (bytes > pool->most_bytes || pool->reserved > pool->most_bytes - bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct chunk *chunk = calloc(1, sizeof *chunk);
    if (chunk == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = window_reserve(pool->physical, bytes, &chunk->parts, &chunk->start);
    if (result) {
        free(chunk);
        return result;
    }
    chunk->bytes = bytes;
    window_lock();
    int failed = pool_share_chunk(pool, chunk) != 0 || ranges_insert(&chunk->parts, chunk->start, bytes, NULL) != 0;
    window_unlock();
    if (failed) {
        pool_unshare_chunk(pool, chunk);
        window_release(chunk->start);
        free(chunk);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    chunk->next = pool->chunks;
    pool->chunks = chunk;
    count(pool, 0, (int64_t)bytes);
    return CUDA_SUCCESS;
}

/* Reserves more memory for an allocation of `bytes`: a whole number of chunks, or only the bytes
 * themselves where that is too much. */
static CUresult grow(struct pool *pool, uint64_t bytes)
{
    uint64_t least = round_up(bytes, MACHINE_LARGE_UNIT);
    CUresult result = reserve(pool, round_up(bytes, pools.chunk_bytes));
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        result = reserve(pool, least);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        for (struct pool *other = pools.all; other; other = other->next)
            if (other->physical == pool->physical)
                pool_release(other, 0);
        result = reserve(pool, least);
    }
    return result;
}

/* Takes a part that is free for every stream. */
static int place_free(struct pool *pool, struct part *part, uint64_t bytes)
{
    for (struct chunk *chunk = pool->chunks; chunk; chunk = chunk->next) {
        window_lock();
        uint64_t start = ranges_take(&chunk->parts, bytes, part);
        part->allocation.start = start;
        window_unlock();
        if (start) {
            chunk->taken++;
            part->chunk = chunk;
            return 0;
        }
    }
    return -1;
}

/* The smallest freed part that is large enough; of one stream, or with 0 of any. */
static struct part *find_freed(struct pool *pool, uint64_t bytes, uint64_t stream_id)
{
    struct part *best = NULL;
    for (struct part *part = pool->freed; part; part = part->next_freed)
        if ((stream_id == 0 || part->freed_on == stream_id) && part->allocation.charged >= bytes &&
            (best == NULL || part->allocation.charged < best->allocation.charged))
            best = part;
    return best;
}

/* Takes from a freed part; the rest of it stays freed. */
static int place_freed(struct pool *pool, struct part *part, uint64_t bytes, uint64_t stream_id, struct work_item **wait)
{
    struct part *freed = find_freed(pool, bytes, stream_id);
    if (freed == NULL)
        return -1;
    uint64_t start = freed->allocation.start;
    window_lock();
    int failed = ranges_split(&freed->chunk->parts, start, bytes, part);
    if (!failed) {
        part->allocation.start = start;
        freed->allocation.start += bytes;
        freed->allocation.charged -= bytes;
    }
    window_unlock();
    if (failed)
        return -1;
    part->chunk = freed->chunk;
    if (wait && freed->pending) {
        *wait = freed->pending->work;
        work_hold(*wait);
    }
    if (freed->allocation.charged) {
        freed->chunk->taken++;
    } else {
        unlink_freed(pool, freed);
        free(freed);
    }
    return 0;
}

CUresult pool_take(struct pool *pool, struct context *context, uint64_t bytes, const struct stream *stream,
                   uint64_t *address, struct work_item **wait)
{
    *wait = NULL;
    struct part *part = bytes > 1ull << 48 ? NULL : calloc(1, sizeof *part);
    if (part == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t charged = round_up(bytes, PART_UNIT);
    part->allocation = (struct allocation){
        .bytes = bytes, .charged = charged, .context = context, .device = pool->physical, .pool = pool};
    window_lock();
    part->allocation.id = window_new_id();
    window_unlock();
    int failed = place_freed(pool, part, charged, stream->id, NULL);
    if (failed)
        failed = place_free(pool, part, charged);
    CUresult result = failed ? grow(pool, charged) : CUDA_SUCCESS;
    if (failed && result == CUDA_SUCCESS)
        failed = place_free(pool, part, charged);
    if (failed && pool->reuse[REUSE_INTERNAL])
        failed = place_freed(pool, part, charged, 0, wait);
    if (failed) {
        free(part);
        return result ? result : CUDA_ERROR_OUT_OF_MEMORY;
    }
    count(pool, (int64_t)charged, 0);
    *address = part->allocation.start;
    return CUDA_SUCCESS;
}

struct part *pool_part(uint64_t address)
{
    window_lock();
    struct allocation *allocation = window_look_up(address);
    int is_part = allocation && allocation->kind == ALLOCATION_PLAIN && allocation->start == address &&
                  allocation->pool && !allocation->is_dying;
    window_unlock();
    return is_part ? (struct part *)allocation : NULL;
}

struct part *pool_begin_free(uint64_t address, uint64_t stream_id)
{
    struct part *part = pool_part(address);
    if (part == NULL)
        return NULL;
    struct allocation *allocation = &part->allocation;
    struct pool *pool = allocation->pool;
    window_lock();
    allocation->is_dying = 1;
    window_unlock();
    part->freed_on = stream_id;
    part->next_freed = pool->freed;
    pool->freed = part;
    count(pool, -(int64_t)allocation->charged, 0);
    return part;
}

void pool_reach_free(struct part *part, int is_known)
{
    struct pool *pool = part->allocation.pool;
    part->pending = NULL;
    if (is_known || pool->reuse[REUSE_OPPORTUNISTIC] || pool->is_destroyed)
        dissolve(pool, part);
    pool_end_if_empty(pool);
}

#include "ordered/ordered_heap.h"

#include <stdlib.h>

#define LOOKS 32u /* at blocks of the request's own bin, where some are too small */

static unsigned bin_of(uint64_t bytes)
{
    unsigned bin = 63u - (unsigned)__builtin_clzll(bytes | 1);
    return bin < ORDERED_BINS ? bin : ORDERED_BINS - 1;
}

static void unlink_block(struct ordered_block *block)
{
    struct ordered_cache *cache = block->cache;
    if (block->previous)
        block->previous->next = block->next;
    else
        cache->bins[bin_of(block->bytes)] = block->next;
    if (block->next)
        block->next->previous = block->previous;
    cache->bytes -= block->bytes;
    block->cache = NULL;
    block->previous = block->next = NULL;
}

static void link_block(struct ordered_block *block, struct ordered_cache *cache)
{
    struct ordered_block **head = &cache->bins[bin_of(block->bytes)];
    block->cache = cache;
    block->previous = NULL;
    block->next = *head;
    if (*head)
        (*head)->previous = block;
    *head = block;
    cache->bytes += block->bytes;
}

/* Join a free block with the free one behind it, of the same cache. Both are unlinked. */
static void join(struct ordered_block *block, struct ordered_block *behind)
{
    block->bytes += behind->bytes;
    block->after = behind->after;
    if (behind->after)
        behind->after->before = block;
    free(behind);
}

void ordered_heap_give(struct ordered_block *block, struct ordered_cache *cache)
{
    struct ordered_block *before = block->before, *after = block->after;
    if (after && after->cache == cache) {
        unlink_block(after);
        join(block, after);
    }
    if (before && before->cache == cache) {
        unlink_block(before);
        join(before, block);
        block = before;
    }
    link_block(block, cache);
}

bool ordered_heap_add(struct ordered_heap *heap, uint64_t start, uint64_t bytes)
{
    struct ordered_chunk *chunk = calloc(1, sizeof *chunk);
    struct ordered_block *block = calloc(1, sizeof *block);
    if (!chunk || !block) {
        free(chunk);
        free(block);
        return false;
    }
    *block = (struct ordered_block){.start = start, .bytes = bytes, .chunk = chunk};
    *chunk = (struct ordered_chunk){heap->chunks, heap, heap->device, start, bytes, block};
    heap->chunks = chunk;
    heap->reserved += bytes;
    if (heap->reserved > heap->reserved_high)
        heap->reserved_high = heap->reserved;
    link_block(block, &heap->idle);
    return true;
}

/* Cut off what is too much. Without memory for a record the block stays whole. */
static void split(struct ordered_block *block, uint64_t bytes, struct ordered_cache *cache)
{
    struct ordered_block *rest = block->bytes > bytes ? calloc(1, sizeof *rest) : NULL;
    if (!rest)
        return;
    *rest = (struct ordered_block){.start = block->start + bytes,
                                   .bytes = block->bytes - bytes,
                                   .chunk = block->chunk,
                                   .before = block,
                                   .after = block->after};
    if (block->after)
        block->after->before = rest;
    block->after = rest;
    block->bytes = bytes;
    link_block(rest, cache);
}

/* Blocks of the request's own bin may be too small; those of higher ones never are. */
static struct ordered_block *find(const struct ordered_cache *cache, uint64_t bytes)
{
    unsigned bin = bin_of(bytes), looks = 0;
    struct ordered_block *found = cache->bins[bin];
    while (found && found->bytes < bytes)
        found = (bin == ORDERED_BINS - 1 || ++looks < LOOKS) ? found->next : NULL;
    while (!found && ++bin < ORDERED_BINS)
        found = cache->bins[bin];
    return found && found->bytes >= bytes ? found : NULL;
}

struct ordered_block *ordered_heap_take(struct ordered_cache *cache, uint64_t bytes)
{
    struct ordered_block *block = cache->bytes >= bytes ? find(cache, bytes) : NULL;
    if (!block)
        return NULL;
    unlink_block(block);
    split(block, bytes, cache);
    return block;
}

void ordered_heap_settle(struct ordered_heap *heap, struct ordered_cache *cache)
{
    for (unsigned bin = 0; bin < ORDERED_BINS && cache->bytes; bin++)
        while (cache->bins[bin]) {
            struct ordered_block *block = cache->bins[bin];
            unlink_block(block);
            ordered_heap_give(block, &heap->idle);
        }
}

struct ordered_chunk *ordered_heap_remove_idle(struct ordered_heap *heap, uint64_t keep)
{
    struct ordered_chunk *removed = NULL;
    for (struct ordered_chunk **link = &heap->chunks; *link;) {
        struct ordered_chunk *chunk = *link;
        bool is_idle = chunk->first->cache == &heap->idle && !chunk->first->after;
        if (!is_idle || heap->reserved - chunk->bytes < keep) {
            link = &chunk->next;
            continue;
        }
        *link = chunk->next;
        unlink_block(chunk->first);
        heap->reserved -= chunk->bytes;
        chunk->next = removed;
        removed = chunk;
    }
    return removed;
}

void ordered_chunk_end(struct ordered_chunk *chunk)
{
    free(chunk->first);
    free(chunk);
}

const struct ordered_block *ordered_heap_find(const struct ordered_heap *heap, uint64_t address,
                                              bool *is_within)
{
    for (const struct ordered_chunk *chunk = heap->chunks; chunk; chunk = chunk->next) {
        if (address < chunk->start || address - chunk->start >= chunk->bytes)
            continue;
        *is_within = true;
        const struct ordered_block *block = chunk->first;
        while (block && address - block->start >= block->bytes)
            block = block->after;
        bool is_seen = block && !block->cache && address - block->start < block->asked;
        return is_seen ? block : NULL;
    }
    return NULL;
}

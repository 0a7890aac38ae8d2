#include "copy_engine/copy_chunks.h"


#include <stdbool.h>
#include <stdlib.h>

/* The position of the cut. */
struct place {
    size_t extent, skip;
};

/* The longest chunk from the place on; moves the place behind it. */
static struct copy_chunk cut_one(const struct extent *extents, size_t count, size_t most_bytes,
                                 struct place *place)
{
    const struct extent *first = &extents[place->extent];
    struct copy_chunk chunk = {.host_offset = first->host_offset + place->skip,
                               .extent = place->extent,
                               .skip = place->skip,
                               .device = first->device};
    while (place->extent < count && chunk.bytes < most_bytes) {
        const struct extent *extent = &extents[place->extent];
        bool follows = extent->host_offset + place->skip == chunk.host_offset + chunk.bytes;
        if (extent->device != chunk.device || !follows)
            break;
        size_t left = extent->bytes - place->skip, room = most_bytes - chunk.bytes;
        size_t part = left < room ? left : room;
        chunk.bytes += part;
        place->skip += part;
        if (place->skip == extent->bytes)
            *place = (struct place){place->extent + 1, 0};
    }
    return chunk;
}

/* Rounded up: a chunk ends at its full size, at a gap, or at the last extent of a run. */
static size_t count_at_most(const struct extent *extents, size_t count, size_t most_bytes)
{
    size_t chunks = 0;
    for (size_t i = 0; i < count; i++)
        chunks += extents[i].bytes / most_bytes + 2;
    return chunks;
}

static int compare_turns(const void *left, const void *right)
{
    const struct copy_chunk *a = left, *b = right;
    if (a->turn != b->turn)
        return a->turn < b->turn ? -1 : 1;
    return a->device != b->device            ? a->device - b->device
           : a->host_offset < b->host_offset ? -1
                                             : 1;
}

static void give_turns(struct copy_chunk *chunks, size_t count)
{
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first; end < count && chunks[end].device == chunks[first].device; end++)
            ;
        for (size_t i = first; i < end; i++)
            chunks[i].turn = ((double)(i - first) + 0.5) / (double)(end - first);
    }
}

struct copy_chunk *copy_chunks_cut(const struct extent *extents, size_t count, size_t most_bytes,
                                   size_t *chunk_count)
{
    struct copy_chunk *chunks =
        malloc((count_at_most(extents, count, most_bytes) + 1) * sizeof *chunks);
    struct place place = {0, 0};
    size_t made = 0;
    if (!chunks)
        return NULL;
    while (place.extent < count) {
        if (extents[place.extent].bytes == 0)
            place.extent++;
        else
            chunks[made++] = cut_one(extents, count, most_bytes, &place);
    }
    give_turns(chunks, made);
    qsort(chunks, made, sizeof *chunks, compare_turns);
    *chunk_count = made;
    return chunks;
}

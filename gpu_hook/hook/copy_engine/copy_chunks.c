#include "copy_engine/copy_chunks.h"


#include <stdbool.h>
#include <stdlib.h>

/* Where the cutting stands. */
struct place {
    size_t piece, skip;
};

/* The longest window from the place on; moves the place behind it. */
static struct window cut_one(const struct piece *pieces, size_t count, size_t most_bytes, struct place *place)
{
    const struct piece *first = &pieces[place->piece];
    struct window window = {
        .host_offset = first->host_offset + place->skip, .piece = place->piece, .skip = place->skip,
        .device = first->device};
    while (place->piece < count && window.bytes < most_bytes) {
        const struct piece *piece = &pieces[place->piece];
        bool follows = piece->host_offset + place->skip == window.host_offset + window.bytes;
        if (piece->device != window.device || !follows)
            break;
        size_t left = piece->bytes - place->skip, room = most_bytes - window.bytes;
        size_t part = left < room ? left : room;
        window.bytes += part;
        place->skip += part;
        if (place->skip == piece->bytes)
            *place = (struct place){place->piece + 1, 0};
    }
    return window;
}

/* Rounded up: a window ends at its full size, at a gap, or at the last piece of a run. */
static size_t count_at_most(const struct piece *pieces, size_t count, size_t most_bytes)
{
    size_t windows = 0;
    for (size_t i = 0; i < count; i++)
        windows += pieces[i].bytes / most_bytes + 2;
    return windows;
}

static int compare_turns(const void *left, const void *right)
{
    const struct window *a = left, *b = right;
    if (a->turn != b->turn)
        return a->turn < b->turn ? -1 : 1;
    return a->device != b->device ? a->device - b->device : a->host_offset < b->host_offset ? -1 : 1;
}

static void give_turns(struct window *windows, size_t count)
{
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first; end < count && windows[end].device == windows[first].device; end++)
            ;
        for (size_t i = first; i < end; i++)
            windows[i].turn = ((double)(i - first) + 0.5) / (double)(end - first);
    }
}

struct window *windows_cut(const struct piece *pieces, size_t count, size_t most_bytes, size_t *window_count)
{
    struct window *windows = malloc((count_at_most(pieces, count, most_bytes) + 1) * sizeof *windows);
    struct place place = {0, 0};
    size_t made = 0;
    if (!windows)
        return NULL;
    while (place.piece < count) {
        if (pieces[place.piece].bytes == 0)
            place.piece++;
        else
            windows[made++] = cut_one(pieces, count, most_bytes, &place);
    }
    give_turns(windows, made);
    qsort(windows, made, sizeof *windows, compare_turns);
    *window_count = made;
    return windows;
}

/* Addresses without memory of their own: reservations, and other processes' memory. */
#include <stdlib.h>
#include <sys/mman.h>

#include "device/machine.h"
#include "device/ranges.h"
#include "memory/window_state.h"

uint64_t window_take_addresses(uint64_t bytes, uint64_t alignment, uint64_t hint)
{
    struct allocation *taken = calloc(1, sizeof *taken);
    uint64_t start = 0;
    if (taken == NULL)
        return 0;
    if (hint && hint % alignment == 0)
        start = ranges_take_at(window_addresses(), hint, bytes, taken);
    if (start == 0)
        start = ranges_take_aligned(window_addresses(), bytes, alignment, taken);
    *taken = (struct allocation){.kind = ALLOCATION_RESERVED, .start = start, .bytes = bytes};
    if (start == 0)
        free(taken);
    return start;
}

int window_find_addresses(uint64_t address, uint64_t *start, uint64_t *bytes)
{
    struct allocation *taken = window_look_up(address);
    if (taken == NULL || taken->kind != ALLOCATION_RESERVED)
        return -1;
    *start = taken->start;
    *bytes = taken->bytes;
    return 0;
}

void window_give_addresses(uint64_t start)
{
    uint64_t free_start, free_end;
    struct allocation *taken = window_look_up(start);
    /* A copy that ran into an unmapping may have left pages. */
    madvise(window_bytes(start), taken->bytes, MADV_DONTNEED);
    ranges_give_back(window_addresses(), start, &free_start, &free_end);
    free(taken);
}

int window_import(const struct allocation *imported, const struct backing *backing, uint64_t inset, uint64_t *address)
{
    struct allocation *own = malloc(sizeof *own);
    if (own == NULL)
        return -1;
    *own = *imported;
    own->kind = ALLOCATION_IMPORTED;
    window_lock();
    uint64_t start = ranges_take_aligned(window_addresses(), backing->bytes, MACHINE_LARGE_UNIT, own), free_start, free_end;
    own->start = start + inset;
    own->id = window_new_id();
    int failed = start == 0 || backing_map(backing, window_bytes(start), backing->bytes, PROT_READ | PROT_WRITE) != 0;
    if (failed && start)
        ranges_give_back(window_addresses(), start, &free_start, &free_end);
    window_unlock();
    *address = own->start;
    if (failed)
        free(own);
    return failed ? -1 : 0;
}

int window_give_import(uint64_t address)
{
    uint64_t free_start, free_end;
    window_lock();
    struct allocation *own = window_look_up(address);
    if (own && (own->kind != ALLOCATION_IMPORTED || own->start != address))
        own = NULL;
    if (own) {
        const struct range *range = ranges_find(window_addresses(), address);
        window_clear(range->start, range->bytes);
        ranges_give_back(window_addresses(), range->start, &free_start, &free_end);
    }
    window_unlock();
    int failed = own == NULL ? -1 : 0;
    free(own);
    return failed;
}

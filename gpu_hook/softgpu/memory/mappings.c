/* One ordered map for the mappings of all reservations. */
#include "memory/mappings.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "device/ranges.h"
#include "memory/window_state.h"

static struct {
    struct ranges map; /* owners are struct mapping */
} mappings;

struct mapping *mappings_at(uint64_t address)
{
    struct range *range = ranges_find(&mappings.map, address);
    return range ? range->owner : NULL;
}

int mappings_are_none(uint64_t start, uint64_t bytes)
{
    struct range *next = ranges_next_owned(&mappings.map, start);
    return mappings_at(start) == NULL && (next == NULL || next->start >= start + bytes);
}

int mappings_add(struct physical *physical, uint64_t start, uint64_t bytes)
{
    struct mapping *mapping = calloc(1, sizeof *mapping);
    if (mapping == NULL || !mappings_are_none(start, bytes) ||
        backing_map(&physical->backing, window_bytes(start), bytes, PROT_READ | PROT_WRITE) != 0) {
        free(mapping);
        return -1;
    }
    *mapping = (struct mapping){.start = start, .bytes = bytes, .id = window_new_id(), .physical = physical};
    if (ranges_insert(&mappings.map, start, bytes, mapping) != 0) {
        window_clear(start, bytes);
        free(mapping);
        return -1;
    }
    physical->mappings++;
    return 0;
}

int mappings_fill(uint64_t start, uint64_t bytes)
{
    const struct mapping *mapping = mappings_at(start);
    uint64_t end = start + bytes;
    while (mapping && mapping->start == start && mapping->bytes <= end - start) {
        start += mapping->bytes;
        if (start == end)
            return 1;
        mapping = mappings_at(start);
    }
    return 0;
}

/* An address that the host could access faults again. */
static void close_to_host(const struct mapping *mapping)
{
    if (mapping->physical->device == MACHINE_DEVICES)
        mmap((void *)mapping->start, mapping->bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

struct mapping *mappings_remove(uint64_t start, uint64_t bytes)
{
    struct mapping *taken = NULL;
    window_clear(start, bytes);
    for (uint64_t at = start; at < start + bytes;) {
        struct mapping *mapping = mappings_at(at);
        at += mapping->bytes;
        close_to_host(mapping);
        ranges_remove(&mappings.map, mapping->start);
        mapping->next = taken;
        taken = mapping;
    }
    return taken;
}

int mappings_find(uint64_t address, struct allocation *found)
{
    const struct mapping *mapping = mappings_at(address);
    if (mapping == NULL)
        return -1;
    *found = (struct allocation){.kind = ALLOCATION_MAPPED, .start = mapping->start, .bytes = mapping->bytes,
                                 .device = mapping->physical->device, .id = mapping->id};
    return 0;
}

int mappings_describe(uint64_t address, struct mapping_view *view)
{
    const struct mapping *mapping = mappings_at(address);
    *view = (struct mapping_view){.is_mapped = mapping != NULL};
    if (mapping) {
        view->mapping = *mapping;
        view->properties = mapping->physical->properties;
        view->memory_id = mapping->physical->id;
    }
    return window_find_addresses(address, &view->reserved_start, &view->reserved_bytes);
}

int mappings_allow(uint64_t address, uint64_t bytes, unsigned device, enum rights rights)
{
    uint64_t end;
    if (__builtin_add_overflow(address, bytes, &end))
        return 0;
    for (;;) {
        const struct mapping *mapping = mappings_at(address);
        if (mapping == NULL || (mapping->rights[device] & rights) != rights)
            return 0;
        address = mapping->start + mapping->bytes;
        if (address >= end)
            return 1;
    }
}

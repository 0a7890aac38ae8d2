#include "swap/extents.h"

#include "accounting/devices.h"
#include "charging/graph_memory.h"
#include "base/log.h"
#include "agent_link/page.h"
#include "swap/extents_walk.h"
#include "accounting/pin_reasons.h"
#include "vmm/vmm.h"

#include <stdlib.h>

/* Calls that change the tables are stopped, so no thread holds their locks for long. The mover
 * takes them all the same, because queries go on. */

struct part { /* of the list: one swappable allocation, or one handle */
    struct extent extent;
    struct swappable *swappable;
    struct handle *handle;
};

struct parts {
    struct part *all;
    size_t count, capacity;
    bool has_failed;
};

static void add(struct parts *parts, const struct part *part)
{
    if (parts->count == parts->capacity) {
        size_t capacity = parts->capacity ? parts->capacity * 2 : 64;
        struct part *larger = realloc(parts->all, capacity * sizeof *larger);
        if (!larger) {
            parts->has_failed = true;
            return;
        }
        parts->all = larger;
        parts->capacity = capacity;
    }
    parts->all[parts->count++] = *part;
}

static struct {
    bool is_out; /* written on the mover's thread alone */
} state;

static bool leaves(const struct handle *handle)
{
    return handle->is_named && !handle->pin_reasons && handle->is_out == state.is_out;
}

bool extents_are_out(void)
{
    return state.is_out;
}

void extents_set_out(bool is_out)
{
    state.is_out = is_out;
}

struct swappable *extents_next_swappable(const struct spans *table, const struct swappable *before)
{
    struct swappable *swappable = spans_from(table, before ? span_end(&before->span) : 0);
    while (swappable && (swappable->pin_reasons || swappable->is_out != state.is_out))
        swappable = spans_from(table, span_end(&swappable->span));
    return swappable;
}

struct handle *extents_next_handle(const struct handle *before)
{
    struct handle *handle = handles_next(before);
    while (handle && !leaves(handle))
        handle = handles_next(handle);
    return handle;
}

struct mapping *extents_next_mapping(const struct mapping *before)
{
    struct mapping *mapping = handles_mapping_from(before ? span_end(&before->span) : 0);
    while (mapping && !leaves(mapping->handle))
        mapping = handles_mapping_from(span_end(&mapping->span));
    return mapping;
}

struct spans *extents_lock(void)
{
    vmm_lock();
    return swappable_lock();
}

void extents_unlock(void)
{
    swappable_unlock();
    vmm_unlock();
}

/* Return a whole mapping that the memory's own device may write, if the program has one. */
static void find_addresses(void)
{
    for (struct handle *handle = extents_next_handle(NULL); handle;
         handle = extents_next_handle(handle))
        handle->copy_address = 0;
    for (struct mapping *mapping = extents_next_mapping(NULL); mapping;
         mapping = extents_next_mapping(mapping)) {
        struct handle *handle = mapping->handle;
        if (mapping->span.bytes == handle->bytes &&
            mapping->writers >> handle->requested.location.id & 1)
            handle->copy_address = mapping->span.start;
    }
}

CUresult extents_map_scratch(struct handle *handle)
{
    CUmemAccessDesc access = {.location = handle->requested.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = driver()->cuMemMap(handle->scratch, handle->bytes, 0, handle->real, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver()->cuMemSetAccess(handle->scratch, handle->bytes, &access, 1);
    if (result != CUDA_SUCCESS)
        driver()->cuMemUnmap(handle->scratch, handle->bytes);
    handle->is_scratch_mapped = result == CUDA_SUCCESS;
    return result;
}

/* Reserve addresses for a copy where no mapping of the program can serve. */
static bool reserve_scratch(struct handle *handle)
{
    if (!handle->scratch &&
        driver()->cuMemAddressReserve(&handle->scratch, handle->bytes, 0, 0, 0) != CUDA_SUCCESS) {
        handle->scratch = 0;
        return false;
    }
    handle->copy_address = handle->scratch;
    return handle->is_out || handle->is_scratch_mapped ||
           extents_map_scratch(handle) == CUDA_SUCCESS;
}

static void collect(struct parts *parts, const struct spans *table)
{
    for (struct swappable *swappable = extents_next_swappable(table, NULL); swappable;
         swappable = extents_next_swappable(table, swappable))
        add(parts, &(struct part){.extent = {swappable->span.start, swappable->span.bytes,
                                             swappable->device, swappable->host_offset},
                                  .swappable = swappable});
    find_addresses();
    for (struct handle *handle = extents_next_handle(NULL); handle;
         handle = extents_next_handle(handle)) {
        if (!handle->copy_address && !reserve_scratch(handle))
            parts->has_failed = true;
        add(parts, &(struct part){.extent = {handle->copy_address, handle->bytes,
                                             handle->requested.location.id, handle->host_offset},
                                  .handle = handle});
    }
}

static int compare(const void *left, const void *right)
{
    const struct extent *one = &((const struct part *)left)->extent,
                        *other = &((const struct part *)right)->extent;
    /* an address to copy through may be another by now; the places are as they were */
    if (state.is_out)
        return one->host_offset < other->host_offset ? -1 : 1;
    if (one->device != other->device)
        return one->device < other->device ? -1 : 1;
    return one->address < other->address ? -1 : one->address > other->address;
}

/* Resident: lay the host copy out anew. */
static void lay_out(struct parts *parts)
{
    uint64_t offset = 0;
    for (size_t i = 0; i < parts->count; i++) {
        struct part *part = &parts->all[i];
        part->extent.host_offset = offset;
        if (part->swappable)
            part->swappable->host_offset = offset;
        else
            part->handle->host_offset = offset;
        offset += part->extent.bytes;
    }
}

size_t extents_list(struct extent **extents)
{
    struct parts parts = {.all = NULL};
    *extents = NULL;
    collect(&parts, extents_lock());
    if (!parts.has_failed && parts.count) {
        qsort(parts.all, parts.count, sizeof *parts.all, compare);
        if (!state.is_out)
            lay_out(&parts);
        *extents = calloc(parts.count, sizeof **extents);
        for (size_t i = 0; *extents && i < parts.count; i++)
            (*extents)[i] = parts.all[i].extent;
    }
    extents_unlock();
    free(parts.all);
    if (parts.has_failed || (parts.count && !*extents)) {
        LOG("event=no_pieces reason=\"no memory for the list, or no address to copy through\"");
        extents_finish();
        return EXTENTS_FAILED;
    }
    return parts.count;
}

void extents_finish(void)
{
    extents_lock();
    for (struct handle *handle = handles_next(NULL); handle; handle = handles_next(handle)) {
        if (handle->is_scratch_mapped)
            driver()->cuMemUnmap(handle->scratch, handle->bytes);
        if (handle->scratch)
            driver()->cuMemAddressFree(handle->scratch, handle->bytes);
        handle->scratch = 0;
        handle->is_scratch_mapped = false;
    }
    extents_unlock();
}

/* Return the reasons for bytes that are charged and counted for no allocation: pools and graphs
 * reserve more than their allocations. */
static uint32_t count_kept(int device, uint64_t bytes)
{
    uint64_t of_graphs = graph_memory_is_used() ? graph_memory_reserved(device) : 0;
    return (of_graphs ? ALIQUOT_PIN_GRAPH : 0) | (bytes > of_graphs ? ALIQUOT_PIN_POOL : 0);
}

uint32_t extents_pinned(int device, uint64_t *bytes)
{
    uint32_t reasons = pin_reasons_of(device, bytes);
    int index = devices_page_index(device);
    uint64_t charged = index < 0 ? 0 : page_read(&page_hook()->devices[index].charged_bytes);
    uint64_t counted = *bytes + pin_reasons_bytes(device, PIN_NONE);
    if (charged > counted) {
        reasons |= count_kept(device, charged - counted);
        *bytes += charged - counted;
    }
    return pin_reasons_has_ipc() && reasons ? reasons | ALIQUOT_PIN_IPC : reasons;
}

void extents_reset(void)
{
    state.is_out = false;
}

#include "swap/extents.h"

#include "accounting/devices.h"
#include "charging/graph_memory.h"
#include "base/log.h"
#include "agent_link/page.h"
#include "swap/extents_walk.h"
#include "accounting/pin_reasons.h"
#include "vmm/vmm.h"

#include <stdlib.h>

/* Calls that change the tables are stopped, so that nobody else holds their locks for long; they are taken all the same,
 * for questions go on. */

struct part { /* of the list: one elastic allocation, or one handle */
    struct piece piece;
    struct elastic *elastic;
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
    return handle->is_named && !handle->staying && handle->is_out == state.is_out;
}

bool pieces_are_out(void)
{
    return state.is_out;
}

void pieces_set_out(bool is_out)
{
    state.is_out = is_out;
}

struct elastic *pieces_next_elastic(const struct spans *table, const struct elastic *before)
{
    struct elastic *elastic = spans_from(table, before ? span_end(&before->span) : 0);
    while (elastic && (elastic->staying || elastic->is_out != state.is_out))
        elastic = spans_from(table, span_end(&elastic->span));
    return elastic;
}

struct handle *pieces_next_handle(const struct handle *before)
{
    struct handle *handle = handles_next(before);
    while (handle && !leaves(handle))
        handle = handles_next(handle);
    return handle;
}

struct mapping *pieces_next_mapping(const struct mapping *before)
{
    struct mapping *mapping = handles_mapping_from(before ? span_end(&before->span) : 0);
    while (mapping && !leaves(mapping->handle))
        mapping = handles_mapping_from(span_end(&mapping->span));
    return mapping;
}

struct spans *pieces_lock(void)
{
    vmm_lock();
    return elastic_lock();
}

void pieces_unlock(void)
{
    elastic_unlock();
    vmm_unlock();
}

/* A whole mapping that the memory's own device may write, if the program has one. */
static void find_addresses(void)
{
    for (struct handle *handle = pieces_next_handle(NULL); handle; handle = pieces_next_handle(handle))
        handle->copy_address = 0;
    for (struct mapping *mapping = pieces_next_mapping(NULL); mapping; mapping = pieces_next_mapping(mapping)) {
        struct handle *handle = mapping->handle;
        if (mapping->span.bytes == handle->bytes && mapping->writers >> handle->asked.location.id & 1)
            handle->copy_address = mapping->span.start;
    }
}

CUresult pieces_map_scratch(struct handle *handle)
{
    CUmemAccessDesc access = {.location = handle->asked.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = driver()->cuMemMap(handle->scratch, handle->bytes, 0, handle->real, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver()->cuMemSetAccess(handle->scratch, handle->bytes, &access, 1);
    if (result != CUDA_SUCCESS)
        driver()->cuMemUnmap(handle->scratch, handle->bytes);
    handle->is_scratch_mapped = result == CUDA_SUCCESS;
    return result;
}

/* Where else a copy reaches it. */
static bool reserve_scratch(struct handle *handle)
{
    if (!handle->scratch && driver()->cuMemAddressReserve(&handle->scratch, handle->bytes, 0, 0, 0) != CUDA_SUCCESS) {
        handle->scratch = 0;
        return false;
    }
    handle->copy_address = handle->scratch;
    return handle->is_out || handle->is_scratch_mapped || pieces_map_scratch(handle) == CUDA_SUCCESS;
}

static void collect(struct parts *parts, const struct spans *table)
{
    for (struct elastic *elastic = pieces_next_elastic(table, NULL); elastic; elastic = pieces_next_elastic(table, elastic))
        add(parts, &(struct part){.piece = {elastic->span.start, elastic->span.bytes, elastic->device,
                                            elastic->host_offset},
                                  .elastic = elastic});
    find_addresses();
    for (struct handle *handle = pieces_next_handle(NULL); handle; handle = pieces_next_handle(handle)) {
        if (!handle->copy_address && !reserve_scratch(handle))
            parts->has_failed = true;
        add(parts, &(struct part){.piece = {handle->copy_address, handle->bytes, handle->asked.location.id,
                                            handle->host_offset},
                                  .handle = handle});
    }
}

static int compare(const void *left, const void *right)
{
    const struct piece *one = &((const struct part *)left)->piece, *other = &((const struct part *)right)->piece;
    if (state.is_out) /* an address to copy through may be another by now; the places are as they were */
        return one->host_offset < other->host_offset ? -1 : 1;
    if (one->device != other->device)
        return one->device < other->device ? -1 : 1;
    return one->address < other->address ? -1 : one->address > other->address;
}

/* Resident: the host copy is laid out anew. */
static void lay_out(struct parts *parts)
{
    uint64_t offset = 0;
    for (size_t i = 0; i < parts->count; i++) {
        struct part *part = &parts->all[i];
        part->piece.host_offset = offset;
        if (part->elastic)
            part->elastic->host_offset = offset;
        else
            part->handle->host_offset = offset;
        offset += part->piece.bytes;
    }
}

size_t pieces_list(struct piece **pieces)
{
    struct parts parts = {.all = NULL};
    *pieces = NULL;
    collect(&parts, pieces_lock());
    if (!parts.has_failed && parts.count) {
        qsort(parts.all, parts.count, sizeof *parts.all, compare);
        if (!state.is_out)
            lay_out(&parts);
        *pieces = calloc(parts.count, sizeof **pieces);
        for (size_t i = 0; *pieces && i < parts.count; i++)
            (*pieces)[i] = parts.all[i].piece;
    }
    pieces_unlock();
    free(parts.all);
    if (parts.has_failed || (parts.count && !*pieces)) {
        LOG("event=no_pieces reason=\"no memory for the list, or no address to copy through\"");
        pieces_finish();
        return PIECES_FAILED;
    }
    return parts.count;
}

void pieces_finish(void)
{
    pieces_lock();
    for (struct handle *handle = handles_next(NULL); handle; handle = handles_next(handle)) {
        if (handle->is_scratch_mapped)
            driver()->cuMemUnmap(handle->scratch, handle->bytes);
        if (handle->scratch)
            driver()->cuMemAddressFree(handle->scratch, handle->bytes);
        handle->scratch = 0;
        handle->is_scratch_mapped = false;
    }
    pieces_unlock();
}

/* What is charged for nothing that was counted: pools keep, and graphs keep, more than their allocations. */
static uint32_t count_kept(int device, uint64_t bytes)
{
    uint64_t of_graphs = graph_memory_is_used() ? graph_memory_reserved(device) : 0;
    return (of_graphs ? ALIQUOT_STAYS_GRAPH : 0) | (bytes > of_graphs ? ALIQUOT_STAYS_POOL : 0);
}

uint32_t pieces_staying(int device, uint64_t *bytes)
{
    uint32_t reasons = staying_reasons(device, bytes);
    int index = devices_page_index(device);
    uint64_t charged = index < 0 ? 0 : page_read(&page_hook()->devices[index].charged_bytes);
    uint64_t counted = *bytes + staying_bytes(device, STAYING_NOT);
    if (charged > counted) {
        reasons |= count_kept(device, charged - counted);
        *bytes += charged - counted;
    }
    return staying_has_ipc() && reasons ? reasons | ALIQUOT_STAYS_IPC : reasons;
}

void pieces_reset(void)
{
    state.is_out = false;
}

/* The memory of a device that graphs have reserved, and how much of it they use. Launches of one
 * stream follow each other and use the same memory. Launches of other streams need memory of their
 * own, until they have ended. */
#include <errno.h>

#include "driver/driver.h"
#include "graphs/graph_memory_state.h"
#include "implemented.h"
#include "managed/managed.h"
#include "device/slots.h"

struct reserve {
    uint64_t beyond; /* of allocations that outlive launches */
    uint64_t reserved, used_high, reserved_high;
};

static struct {
    struct reserve devices[MACHINE_DEVICES];
    struct graph_lease *leases;
} reserves;

pthread_mutex_t graph_memory_mutex = PTHREAD_MUTEX_INITIALIZER;

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

uint64_t graph_memory_round(uint64_t bytes)
{
    return round_up(bytes, 512);
}

static int is_busy(const struct graph_lease *lease)
{
    return lease->is_pinned || (lease->end && !work_is_done(lease->end, NULL));
}

static uint64_t need_of(const struct graph_lease *lease, unsigned physical)
{
    return lease->is_mapped ? lease->within[physical] + lease->beyond[physical] : 0;
}

/* Count the largest lease of each stream, and the memory that outlives launches. */
static uint64_t count_used(unsigned physical)
{
    uint64_t used = reserves.devices[physical].beyond;
    for (const struct graph_lease *lease = reserves.leases; lease; lease = lease->next) {
        int is_largest = need_of(lease, physical) != 0;
        for (const struct graph_lease *other = reserves.leases; other && is_largest; other = other->next)
            if (other != lease && other->stream_id == lease->stream_id) {
                uint64_t mine = need_of(lease, physical), its = need_of(other, physical);
                is_largest = mine > its || (mine == its && lease < other);
            }
        used += is_largest ? need_of(lease, physical) : 0;
    }
    return round_up(used, MACHINE_LARGE_UNIT);
}

static void note_highs(unsigned physical)
{
    struct reserve *reserve = &reserves.devices[physical];
    uint64_t used = count_used(physical);
    if (used > reserve->used_high)
        reserve->used_high = used;
    if (reserve->reserved > reserve->reserved_high)
        reserve->reserved_high = reserve->reserved;
}

void graph_reserve_count(unsigned physical, int64_t bytes)
{
    reserves.devices[physical].beyond += (uint64_t)bytes;
}

CUresult graph_reserve_grow(unsigned physical)
{
    struct reserve *reserve = &reserves.devices[physical];
    /* Memory that ended graphs still hold is used again first. */
    for (struct graph_lease *lease = reserves.leases; lease && count_used(physical) > reserve->reserved;
         lease = lease->next)
        if (lease->is_mapped && lease->end && !is_busy(lease))
            lease->is_mapped = 0;
    uint64_t used = count_used(physical);
    if (used > reserve->reserved) {
        int failed = managed_charge(physical, used - reserve->reserved);
        if (failed)
            return failed == ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_SYSTEM_NOT_READY;
        reserve->reserved = used;
    }
    note_highs(physical);
    return CUDA_SUCCESS;
}

void graph_lease_map(struct graph_lease *lease, unsigned long long stream_id)
{
    if (!lease->is_listed) {
        lease->next = reserves.leases;
        reserves.leases = lease;
        lease->is_listed = 1;
    }
    lease->stream_id = stream_id;
    lease->is_mapped = 1;
    work_drop(lease->end);
    lease->end = NULL;
}

void graph_lease_set_end(struct graph_lease *lease, struct work_item *end)
{
    work_hold(end);
    work_drop(lease->end);
    lease->end = end;
}

void graph_lease_drop(struct graph_lease *lease)
{
    struct graph_lease **link = &reserves.leases;
    while (*link && *link != lease)
        link = &(*link)->next;
    if (*link)
        *link = lease->next;
    work_drop(lease->end);
    *lease = (struct graph_lease){0};
}

int graph_reserve_trim(unsigned physical)
{
    struct reserve *reserve = &reserves.devices[physical];
    for (struct graph_lease *lease = reserves.leases; lease; lease = lease->next)
        if (!is_busy(lease))
            lease->is_mapped = 0;
    uint64_t used = count_used(physical), surplus = reserve->reserved > used ? reserve->reserved - used : 0;
    if (surplus == 0)
        return 0;
    graph_memory_forget_pages(physical);
    slots_refund(&driver.attachment, physical, surplus);
    reserve->reserved = used;
    return 1;
}

void graph_reserve_reset(unsigned physical)
{
    struct reserve *reserve = &reserves.devices[physical];
    for (struct graph_lease *lease = reserves.leases; lease; lease = lease->next)
        lease->within[physical] = lease->beyond[physical] = 0;
    if (reserve->reserved)
        slots_refund(&driver.attachment, physical, reserve->reserved);
    *reserve = (struct reserve){0};
}

CUresult impl_cuDeviceGraphMemTrim(CUdevice device)
{
    if (driver_check_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&graph_memory_mutex);
    graph_reserve_trim(driver.physical[device]);
    pthread_mutex_unlock(&graph_memory_mutex);
    return CUDA_SUCCESS;
}

CUresult impl_cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
    if (driver_check_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (value == NULL || (unsigned)attr > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned physical = driver.physical[device];
    const struct reserve *reserve = &reserves.devices[physical];
    pthread_mutex_lock(&graph_memory_mutex);
    uint64_t values[] = {[CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT] = count_used(physical),
                         [CU_GRAPH_MEM_ATTR_USED_MEM_HIGH] = reserve->used_high,
                         [CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT] = reserve->reserved,
                         [CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH] = reserve->reserved_high};
    pthread_mutex_unlock(&graph_memory_mutex);
    *(cuuint64_t *)value = values[attr];
    return CUDA_SUCCESS;
}

/* A program can set only the high marks, and only to the current values, written as 0. */
CUresult impl_cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
    if (driver_check_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (value == NULL || *(cuuint64_t *)value ||
        (attr != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH && attr != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH))
        return CUDA_ERROR_INVALID_VALUE;
    unsigned physical = driver.physical[device];
    struct reserve *reserve = &reserves.devices[physical];
    pthread_mutex_lock(&graph_memory_mutex);
    if (attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        reserve->used_high = count_used(physical);
    else
        reserve->reserved_high = reserve->reserved;
    pthread_mutex_unlock(&graph_memory_mutex);
    return CUDA_SUCCESS;
}

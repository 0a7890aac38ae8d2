#include "accounting/swappability.h"

#include "accounting/devices.h"
#include "interpose/driver.h"
#include "base/log.h"
#include "agent_link/page.h"

#include <string.h>

#define LEAST_GRAIN ((size_t)2 << 20)
#define USUAL_CHUNK ((size_t)64 << 20)

/* the facts of a device never change, so several threads may find them out at once */
struct facts {
    uint32_t is_known; /* written last */
    uint32_t has_virtual_memory;
    size_t grain;
    uint64_t peers; /* bits of devices that reach its memory, itself included */
};

static struct {
    struct facts devices[DEVICES_MAX];
    uint32_t is_stopped; /* swappability_stop */
} state;

/* Plain memory can be copied between any two devices, whether a context let the other in or not;
 * virtual memory only where the device may reach it. So every device that can reach the memory,
 * and that the program uses, gets access. On a machine with many devices, each mapping costs as
 * much again for every device that it is opened to. */
static uint64_t find_peers(int device)
{
    uint64_t peers = 1ull << device;
    for (int other = 0; other < devices_count() && other < DEVICES_MAX; other++) {
        int can_reach = 0;
        if (other != device &&
            driver()->cuDeviceCanAccessPeer(&can_reach, other, device) == CUDA_SUCCESS && can_reach)
            peers |= 1ull << other;
    }
    return peers;
}

static CUmemAllocationProp properties_on(int device)
{
    CUmemAllocationProp properties;
    memset(&properties, 0, sizeof properties);
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    return properties;
}

static const struct facts *facts_of(int device)
{
    struct facts *facts = &state.devices[device];
    if (__atomic_load_n(&facts->is_known, __ATOMIC_ACQUIRE))
        return facts;
    int has_virtual_memory = 0;
    size_t grain = 0;
    CUmemAllocationProp properties = properties_on(device);
    driver()->cuDeviceGetAttribute(&has_virtual_memory,
                                   CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
    if (has_virtual_memory &&
        driver()->cuMemGetAllocationGranularity(
            &grain, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) != CUDA_SUCCESS)
        has_virtual_memory = 0;
    if (!has_virtual_memory)
        LOG("event=memory_stays device=%d reason=\"the device has no virtual memory management\"",
            device);
    facts->grain = grain > LEAST_GRAIN ? grain : LEAST_GRAIN;
    facts->peers = has_virtual_memory ? find_peers(device) : 0;
    facts->has_virtual_memory = has_virtual_memory != 0;
    __atomic_store_n(&facts->is_known, 1, __ATOMIC_RELEASE);
    return facts;
}

enum aliquot_residency_mode swappability_mode(void)
{
    return __atomic_load_n(&page_agent()->residency_mode, __ATOMIC_RELAXED);
}

bool swappability_wants(int device, size_t bytes)
{
    return swappability_mode() == ALIQUOT_RESIDENCY_VMM && bytes &&
           bytes >= page_read(&page_agent()->least_swappable_bytes) && device < DEVICES_MAX &&
           !__atomic_load_n(&state.is_stopped, __ATOMIC_RELAXED) &&
           facts_of(device)->has_virtual_memory;
}

uint32_t swappability_refusal(int device, size_t bytes)
{
    if (swappability_mode() == ALIQUOT_RESIDENCY_MANAGED &&
        bytes < page_read(&page_agent()->least_swappable_bytes))
        return ALIQUOT_PIN_SMALL;
    if (swappability_mode() != ALIQUOT_RESIDENCY_VMM || device >= DEVICES_MAX ||
        !facts_of(device)->has_virtual_memory)
        return ALIQUOT_PIN_MODE;
    if (bytes < page_read(&page_agent()->least_swappable_bytes))
        return ALIQUOT_PIN_SMALL;
    return __atomic_load_n(&state.is_stopped, __ATOMIC_RELAXED) ? ALIQUOT_PIN_IPC
                                                                : ALIQUOT_PIN_NO_AGENT;
}

void swappability_stop(void)
{
    __atomic_store_n(&state.is_stopped, 1, __ATOMIC_RELAXED);
}

void swappability_reset(void)
{
    state.is_stopped = 0;
}

static size_t round_up(size_t bytes, size_t grain)
{
    return bytes > SIZE_MAX - grain ? SIZE_MAX / grain * grain
                                    : (bytes + grain - 1) / grain * grain;
}

size_t swappability_grain(int device)
{
    return facts_of(device)->grain;
}

size_t swappability_chunk_bytes(int device)
{
    size_t asked = page_read(&page_agent()->chunk_bytes), grain = swappability_grain(device);
    return asked ? (asked > grain ? asked / grain * grain : grain) : round_up(USUAL_CHUNK, grain);
}

uint64_t swappability_rounded(int device, size_t bytes)
{
    return round_up(bytes, swappability_grain(device));
}

uint64_t swappability_peers(int device)
{
    return facts_of(device)->peers;
}

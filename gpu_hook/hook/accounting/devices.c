#include "accounting/devices.h"

#include "interpose/driver.h"
#include "agent_link/page.h"

#include <string.h>

static struct { /* the words first: every start touches them */
    int count;     /* 0: not asked yet */
    uint64_t used; /* atomic; bits */
    struct {
        uint8_t uuid[16];
        bool is_known; /* written with release after uuid; two threads may both write the same */
    } devices[DEVICES_MAX];
} state;

int devices_count(void)
{
    int count = __atomic_load_n(&state.count, __ATOMIC_RELAXED);
    if (count == 0 && driver()->cuDeviceGetCount(&count) == CUDA_SUCCESS) {
        count = count < DEVICES_MAX ? count : DEVICES_MAX;
        __atomic_store_n(&state.count, count, __ATOMIC_RELAXED);
    }
    return count;
}

bool devices_uuid(int device, uint8_t uuid[16])
{
    if (device < 0 || device >= devices_count())
        return false;
    if (!__atomic_load_n(&state.devices[device].is_known, __ATOMIC_ACQUIRE)) {
        CUuuid found;
        /* The first version, for MIG too: it names the parent, as NVML does for the agent. */
        if (driver()->cuDeviceGetUuid(&found, device) != CUDA_SUCCESS)
            return false;
        memcpy(state.devices[device].uuid, found.bytes, 16);
        __atomic_store_n(&state.devices[device].is_known, true, __ATOMIC_RELEASE);
    }
    memcpy(uuid, state.devices[device].uuid, 16);
    return true;
}

int devices_page_index(int device)
{
    uint8_t uuid[16];
    return devices_uuid(device, uuid) ? page_device_index(uuid) : -1;
}

int devices_current(void)
{
    CUdevice device;
    return driver()->cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : -1;
}

void devices_use(int device)
{
    if (device >= 0 && device < DEVICES_MAX)
        __atomic_fetch_or(&state.used, 1ull << device, __ATOMIC_ACQ_REL);
}

uint64_t devices_used(void)
{
    return __atomic_load_n(&state.used, __ATOMIC_ACQUIRE);
}

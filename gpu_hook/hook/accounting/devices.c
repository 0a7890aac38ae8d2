#include "accounting/devices.h"

#include "interpose/driver.h"
#include "agent_link/page.h"

#include <string.h>

static struct { /* the words first: every start touches them */
    int count;     /* 0: not asked yet */
    uint64_t used; /* atomic; bits */
    struct device {
        uint64_t known; /* 1 + the generation of the grant under which the driver told uuid; 0: never */
        uint64_t uuid[2]; /* guarded by known: read before and after them */
        uint32_t place;   /* 1 + its index in the agent's page; 0: it was never found there */
        bool is_writing;
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

static bool read_known(const struct device *device, uint64_t wanted, uint64_t uuid[2])
{
    if (__atomic_load_n(&device->known, __ATOMIC_ACQUIRE) != wanted)
        return false;
    for (int i = 0; i < 2; i++)
        uuid[i] = __atomic_load_n(&device->uuid[i], __ATOMIC_ACQUIRE);
    return __atomic_load_n(&device->known, __ATOMIC_RELAXED) == wanted;
}

/* No lock, which a fork could leave held: a thread that meets another here leaves it to that one. */
static void keep(struct device *device, uint64_t wanted, const uint64_t uuid[2])
{
    if (__atomic_exchange_n(&device->is_writing, true, __ATOMIC_ACQUIRE))
        return;
    __atomic_store_n(&device->known, 0, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 2; i++)
        __atomic_store_n(&device->uuid[i], uuid[i], __ATOMIC_RELEASE);
    __atomic_store_n(&device->known, wanted, __ATOMIC_RELEASE);
    __atomic_store_n(&device->is_writing, false, __ATOMIC_RELEASE);
}

/* A driver may go on to tell the device before a move. A kernel's devices keep their places in the
 * agent's page, whatever devices stand there. */
static bool find_uuid(int device, uint64_t uuid[2])
{
    CUuuid found;
    uint8_t raw[16];
    /* The first version, for MIG too: it names the parent, as NVML does for the agent. */
    if (driver()->cuDeviceGetUuid(&found, device) != CUDA_SUCCESS)
        return false;
    memcpy(raw, found.bytes, sizeof raw);
    uint32_t *place = &state.devices[device].place;
    int index = page_device_index(raw);
    if (index >= 0)
        __atomic_store_n(place, (uint32_t)index + 1, __ATOMIC_RELAXED);
    else
        page_device_uuid((int)__atomic_load_n(place, __ATOMIC_RELAXED) - 1, raw);
    memcpy(uuid, raw, sizeof raw);
    return true;
}

/* The driver is asked once for each generation of the grant: the kernel may have been moved to
 * another device, which keeps the number of the one before. */
bool devices_uuid(int device, uint8_t uuid[16])
{
    uint64_t words[2], wanted = page_read(&page_agent()->generation) + 1;
    if (device < 0 || device >= devices_count())
        return false;
    if (!read_known(&state.devices[device], wanted, words)) {
        if (!find_uuid(device, words))
            return false;
        keep(&state.devices[device], wanted, words);
    }
    memcpy(uuid, words, 16);
    return true;
}

int devices_page_index(int device)
{
    uint8_t uuid[16];
    return devices_uuid(device, uuid) ? page_device_index(uuid) : -1;
}

void devices_registered(void)
{
    for (int device = 0; device < devices_count(); device++)
        devices_page_index(device);
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

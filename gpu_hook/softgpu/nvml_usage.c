/* Memory, processes and utilisation, from the slots. */
#include <time.h>

#include "engine.h"
#include "nvml_observer.h"
#include "slots.h"

#define NO_INSTANCE 0xFFFFFFFFu
#define RECENT_NANOSECONDS 1000000000ull
#define WINDOW_NANOSECONDS ((MACHINE_BINS - 1) * MACHINE_BIN_NANOSECONDS)

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    struct seat *seat;
    unsigned index;
    nvmlReturn_t result = observer_device(device, &seat, &index);
    if (result || memory == NULL)
        return result ? result : NVML_ERROR_INVALID_ARGUMENT;
    slots_reap(seat);
    memory->total = seat->machine->memory_bytes;
    memory->used = slots_used(seat->machine, index);
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    nvmlMemory_t plain;
    if (memory == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (memory->version != nvmlMemory_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t result = nvmlDeviceGetMemoryInfo(device, &plain);
    if (result)
        return result;
    memory->total = plain.total;
    memory->reserved = 0;
    memory->used = plain.used;
    memory->free = plain.free;
    return NVML_SUCCESS;
}

struct process {
    unsigned pid;
    unsigned long long bytes;
};

/* Live processes with a context or memory on the device; how many. */
static unsigned list_processes(struct seat *seat, unsigned index, struct process list[MACHINE_SLOTS])
{
    unsigned count = 0;
    slots_reap(seat);
    for (int i = 0; i < MACHINE_SLOTS; i++) {
        struct slot *slot = &seat->machine->slots[i];
        unsigned pid = (unsigned)atomic_load(&slot->pid);
        unsigned long long bytes = atomic_load(&slot->devices[index].bytes);
        if (pid && (bytes || atomic_load(&slot->devices[index].contexts)))
            list[count++] = (struct process){pid, bytes};
    }
    return count;
}

/* Shared by the three versions: fills *count, and says whether `list` may be copied out. */
static nvmlReturn_t answer_list(nvmlDevice_t device, unsigned *count, const void *infos, struct process *list,
                                unsigned *found)
{
    struct seat *seat;
    unsigned index;
    nvmlReturn_t result = observer_device(device, &seat, &index);
    if (result || count == NULL)
        return result ? result : NVML_ERROR_INVALID_ARGUMENT;
    *found = list_processes(seat, index, list);
    unsigned room = *count;
    *count = *found;
    if (*found > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    return *found && infos == NULL ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *infoCount,
                                                            nvmlProcessInfo_t *infos)
{
    struct process list[MACHINE_SLOTS];
    unsigned found = 0;
    nvmlReturn_t result = answer_list(device, infoCount, infos, list, &found);
    for (unsigned i = 0; result == NVML_SUCCESS && i < found; i++)
        infos[i] = (nvmlProcessInfo_t){list[i].pid, list[i].bytes, NO_INSTANCE, NO_INSTANCE};
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *infoCount,
                                                            nvmlProcessInfo_v2_t *infos)
{
    struct process list[MACHINE_SLOTS];
    unsigned found = 0;
    nvmlReturn_t result = answer_list(device, infoCount, infos, list, &found);
    for (unsigned i = 0; result == NVML_SUCCESS && i < found; i++)
        infos[i] = (nvmlProcessInfo_v2_t){list[i].pid, list[i].bytes, NO_INSTANCE, NO_INSTANCE};
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *infoCount,
                                                         nvmlProcessInfo_v1_t *infos)
{
    struct process list[MACHINE_SLOTS];
    unsigned found = 0;
    nvmlReturn_t result = answer_list(device, infoCount, infos, list, &found);
    for (unsigned i = 0; result == NVML_SUCCESS && i < found; i++)
        infos[i] = (nvmlProcessInfo_v1_t){list[i].pid, list[i].bytes};
    return result;
}

/* There is no graphics engine, and no MPS. */
static nvmlReturn_t answer_none(nvmlDevice_t device, unsigned *count)
{
    struct seat *seat;
    unsigned index;
    nvmlReturn_t result = observer_device(device, &seat, &index);
    if (result || count == NULL)
        return result ? result : NVML_ERROR_INVALID_ARGUMENT;
    *count = 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *infoCount,
                                                             nvmlProcessInfo_t *infos)
{
    return answer_none(device, infoCount);
}

EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int *infoCount,
                                                             nvmlProcessInfo_v2_t *infos)
{
    return answer_none(device, infoCount);
}

EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int *infoCount,
                                                          nvmlProcessInfo_v1_t *infos)
{
    return answer_none(device, infoCount);
}

EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *infoCount,
                                                               nvmlProcessInfo_t *infos)
{
    return answer_none(device, infoCount);
}

static unsigned percent(uint64_t part, uint64_t whole)
{
    return whole ? (unsigned)((double)part * 100 / (double)whole + 0.5) : 0;
}

/* Over the last second. Memory bandwidth is not simulated: its utilisation is 0. */
EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    struct seat *seat;
    unsigned index;
    nvmlReturn_t result = observer_device(device, &seat, &index);
    if (result || utilization == NULL)
        return result ? result : NVML_ERROR_INVALID_ARGUMENT;
    uint64_t now = machine_now(), since = now > RECENT_NANOSECONDS ? now - RECENT_NANOSECONDS : 0;
    utilization->gpu = percent(engine_busy(seat->machine->devices[index].bins, since, now), now - since);
    utilization->memory = 0;
    return NVML_SUCCESS;
}

/* One sample for each process that was busy after lastSeenTimeStamp, over the whole time since then (at most 6.3 s): a
 * reader that adds up percent times interval gets the busy time. Timestamps are microseconds since the epoch. */
EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *utilization,
                                                    unsigned int *processSamplesCount,
                                                    unsigned long long lastSeenTimeStamp)
{
    struct seat *seat;
    unsigned index, found = 0;
    nvmlReturn_t result = observer_device(device, &seat, &index);
    if (result || processSamplesCount == NULL)
        return result ? result : NVML_ERROR_INVALID_ARGUMENT;
    uint64_t now = machine_now(), since = now > WINDOW_NANOSECONDS ? now - WINDOW_NANOSECONDS : 0;
    struct timespec real;
    clock_gettime(CLOCK_REALTIME, &real);
    uint64_t offset = (uint64_t)real.tv_sec * 1000000000ull + (uint64_t)real.tv_nsec - now;
    if (lastSeenTimeStamp * 1000 > since + offset)
        since = lastSeenTimeStamp * 1000 - offset;
    if (since >= now)
        return NVML_ERROR_NOT_FOUND;
    for (int i = 0; i < MACHINE_SLOTS; i++) {
        struct slot *slot = &seat->machine->slots[i];
        unsigned pid = (unsigned)atomic_load(&slot->pid);
        uint64_t busy = pid ? engine_busy(slot->devices[index].bins, since, now) : 0;
        if (busy == 0)
            continue;
        if (utilization && found < *processSamplesCount)
            utilization[found] = (nvmlProcessUtilizationSample_t){.pid = pid, .timeStamp = (now + offset) / 1000,
                                                                  .smUtil = percent(busy, now - since)};
        found++;
    }
    unsigned room = *processSamplesCount;
    *processSamplesCount = found;
    if (found == 0)
        return NVML_ERROR_NOT_FOUND;
    return utilization == NULL || found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

/* Memory and utilisation, from the slots. */
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "device/bins.h"
#include "device/engine.h"
#include "device/limits.h"
#include "nvml/nvml_observer.h"
#include "device/pids.h"
#include "device/slots.h"

#define RECENT_NANOSECONDS 1000000000ull
#define WINDOW_NANOSECONDS ((MACHINE_BINS - 1) * MACHINE_BIN_NANOSECONDS)

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    struct attachment *attachment;
    unsigned index;
    nvmlReturn_t result = observer_device(device, &attachment, &index);
    if (result || memory == NULL)
        return result ? result : NVML_ERROR_INVALID_ARGUMENT;
    slots_reap(attachment);
    struct limits_view view = limits_view(attachment, index);
    memory->total = view.total_bytes;
    memory->used = view.used_bytes;
    memory->free = view.free_bytes;
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

static unsigned percent(uint64_t part, uint64_t whole)
{
    return whole ? (unsigned)((double)part * 100 / (double)whole + 0.5) : 0;
}

/* Over the last second. Memory bandwidth is not simulated: its utilisation is 0. */
EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    struct attachment *attachment;
    unsigned index;
    nvmlReturn_t result = observer_device(device, &attachment, &index);
    if (result || utilization == NULL)
        return result ? result : NVML_ERROR_INVALID_ARGUMENT;
    engine_settle(attachment, index);
    uint64_t now = machine_now(), since = now > RECENT_NANOSECONDS ? now - RECENT_NANOSECONDS : 0;
    utilization->gpu = percent(bins_busy(attachment->machine->devices[index].bins, since, now), now - since);
    utilization->memory = 0;
    return NVML_SUCCESS;
}

struct window {
    uint64_t since, now; /* CLOCK_MONOTONIC */
    uint64_t offset;     /* from there to nanoseconds since the epoch, NVML's clock */
};

/* From the last look to now, at most 6.3 s. False: nothing can be known of it. */
static bool find_window(unsigned long long last_seen_microseconds, struct window *window)
{
    struct timespec real;
    window->now = machine_now();
    window->since = window->now > WINDOW_NANOSECONDS ? window->now - WINDOW_NANOSECONDS : 0;
    clock_gettime(CLOCK_REALTIME, &real);
    window->offset = (uint64_t)real.tv_sec * 1000000000ull + (uint64_t)real.tv_nsec - window->now;
    if (last_seen_microseconds > (window->since + window->offset) / 1000)
        window->since = last_seen_microseconds * 1000 - window->offset;
    return last_seen_microseconds < (window->now + window->offset) / 1000;
}

/* One sample for each process that was busy in the window, over all of it: a reader that adds up
 * percent times interval gets the busy time. */
static unsigned sample_processes(struct attachment *attachment, unsigned index, const struct window *window,
                                 nvmlProcessUtilizationSample_t samples[MACHINE_SLOTS])
{
    unsigned found = 0;
    for (int i = 0; i < MACHINE_SLOTS; i++) {
        struct slot *slot = &attachment->machine->slots[i];
        uint64_t busy = bins_busy(slot->devices[index].bins, window->since, window->now);
        unsigned pid = busy ? (unsigned)pids_of_slot(attachment->machine, i) : 0;
        if (pid)
            samples[found++] = (nvmlProcessUtilizationSample_t){
                .pid = pid, .timeStamp = (window->now + window->offset) / 1000,
                .smUtil = percent(busy, window->now - window->since)};
    }
    return found;
}

EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *utilization,
                                                    unsigned int *processSamplesCount,
                                                    unsigned long long lastSeenTimeStamp)
{
    struct attachment *attachment;
    unsigned index;
    struct window window;
    nvmlProcessUtilizationSample_t samples[MACHINE_SLOTS];
    nvmlReturn_t result = observer_device(device, &attachment, &index);
    if (result || processSamplesCount == NULL)
        return result ? result : NVML_ERROR_INVALID_ARGUMENT;
    engine_settle(attachment, index);
    if (!find_window(lastSeenTimeStamp, &window))
        return NVML_ERROR_NOT_FOUND;
    unsigned room = utilization ? *processSamplesCount : 0;
    unsigned found = sample_processes(attachment, index, &window, samples);
    *processSamplesCount = found;
    if (found == 0)
        return NVML_ERROR_NOT_FOUND;
    if (found > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(utilization, samples, found * sizeof *samples);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                          nvmlProcessesUtilizationInfo_t *procesesUtilInfo)
{
    nvmlProcessesUtilizationInfo_t *asked = procesesUtilInfo;
    nvmlProcessUtilizationSample_t samples[MACHINE_SLOTS];
    unsigned found = MACHINE_SLOTS;
    if (asked == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (asked->version != nvmlProcessesUtilizationInfo_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t result = nvmlDeviceGetProcessUtilization(device, samples, &found, asked->lastSeenTimeStamp);
    if (result)
        return result;
    unsigned room = asked->procUtilArray ? asked->processSamplesCount : 0;
    asked->processSamplesCount = found;
    if (found > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < found; i++)
        asked->procUtilArray[i] = (nvmlProcessUtilizationInfo_v1_t){
            .timeStamp = samples[i].timeStamp, .pid = samples[i].pid, .smUtil = samples[i].smUtil};
    return NVML_SUCCESS;
}

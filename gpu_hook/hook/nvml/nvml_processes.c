/* The processes on the device, as the kernel may know them: its own ones, under their own pids,
 * with the bytes that are charged to them. A kernel does not see the processes of other kernels. */
#include "nvml/nvml_view.h"

#include <stdlib.h>

#define NO_INSTANCE 0xFFFFFFFFu
#define SLACK 32 /* processes that may come between two looks */
#define LOOKS 4

enum list { COMPUTE = 0, GRAPHICS = 1, MPS_COMPUTE = 2 }; /* the modes of nvmlProcessDetailList_t */

struct process {
    unsigned int pid;
    unsigned long long bytes;
};

struct own_list {
    struct process entries[ALIQUOT_MAX_PROCESSES];
    unsigned count;
};

static nvmlReturn_t ask_driver(nvmlDevice_t device, enum list list, unsigned int *count,
                               nvmlProcessInfo_t *infos)
{
    const struct nvml_driver *real = nvml_driver();
    return list == COMPUTE ? real->nvmlDeviceGetComputeRunningProcesses_v3(device, count, infos)
           : list == GRAPHICS
               ? real->nvmlDeviceGetGraphicsRunningProcesses_v3(device, count, infos)
               : real->nvmlDeviceGetMPSComputeRunningProcesses_v3(device, count, infos);
}

/* Keep the kernel's processes of the driver's list: for lists that the agent does not know, such
 * as graphics. */
static nvmlReturn_t take_from_driver(nvmlDevice_t device, enum list list, unsigned int room,
                                     struct own_list *own)
{
    struct aliquot_agent_process known[ALIQUOT_MAX_PROCESSES];
    unsigned known_count = observer_processes(known);
    nvmlReturn_t result = NVML_ERROR_INSUFFICIENT_SIZE;
    for (int look = 0; look < LOOKS && result == NVML_ERROR_INSUFFICIENT_SIZE; look++) {
        unsigned int count = room + SLACK;
        nvmlProcessInfo_t *infos = calloc(count, sizeof *infos);
        if (infos == NULL)
            return NVML_ERROR_MEMORY;
        result = ask_driver(device, list, &count, infos);
        for (unsigned i = 0; result == NVML_SUCCESS && i < count; i++)
            for (unsigned k = 0; k < known_count && own->count < ALIQUOT_MAX_PROCESSES; k++)
                if ((unsigned int)known[k].pid == infos[i].pid) {
                    own->entries[own->count++] =
                        (struct process){(unsigned int)known[k].own_pid, infos[i].usedGpuMemory};
                    break; /* one entry for each of a process's devices */
                }
        free(infos);
        room = count;
    }
    return result;
}

static void take_from_agent(uint32_t device_index, struct own_list *own)
{
    struct aliquot_agent_process known[ALIQUOT_MAX_PROCESSES];
    unsigned known_count = observer_processes(known);
    for (unsigned i = 0; i < known_count; i++)
        if (known[i].device == device_index)
            own->entries[own->count++] =
                (struct process){(unsigned int)known[i].own_pid, known[i].charged_bytes};
}

/* The call goes to the driver in any case: the driver decides whether the handle is good, the
 * device there and the list supported. */
static nvmlReturn_t list_own(nvmlDevice_t device, enum list list, const struct observer_view *view,
                             struct own_list *own)
{
    unsigned int count = 0;
    nvmlReturn_t result = ask_driver(device, list, &count, NULL);
    own->count = 0;
    if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE)
        return result;
    if (!view->is_granted)
        return NVML_SUCCESS;
    if (list == (view->enforcer == ALIQUOT_ENFORCER_MPS ? MPS_COMPUTE : COMPUTE))
        take_from_agent(view->index, own);
    else if (count)
        return take_from_driver(device, list, count, own);
    return NVML_SUCCESS;
}

/* NVML always reports a list's length, and the entries if there is room for all. */
static nvmlReturn_t answer_length(const struct own_list *own, unsigned int *count, bool has_buffer)
{
    unsigned room = *count;
    *count = own->count;
    if (own->count > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    return own->count && !has_buffer ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

/* False: the driver's answer stands. */
static bool has_own_list(nvmlDevice_t device, const unsigned int *count, struct observer_view *view)
{
    return count && nvml_view(device, view);
}

#define LIST(name, info_type, list, ...)                                                   \
    nvmlReturn_t name(nvmlDevice_t device, unsigned int *infoCount, info_type *infos)      \
    {                                                                                      \
        struct observer_view view;                                                         \
        struct own_list own;                                                               \
        device = nvml_present(device);                                                     \
        if (!has_own_list(device, infoCount, &view))                                       \
            return nvml_driver()->name(device, infoCount, infos);                          \
        nvmlReturn_t result = list_own(device, list, &view, &own);                         \
        if (result == NVML_SUCCESS)                                                        \
            result = answer_length(&own, infoCount, infos != NULL);                        \
        for (unsigned i = 0; result == NVML_SUCCESS && i < own.count; i++)                 \
            infos[i] = (info_type){own.entries[i].pid, own.entries[i].bytes, __VA_ARGS__}; \
        return result;                                                                     \
    }

LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, COMPUTE, )
LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, COMPUTE, NO_INSTANCE,
     NO_INSTANCE)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, COMPUTE, NO_INSTANCE, NO_INSTANCE)
LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, GRAPHICS, )
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, GRAPHICS, NO_INSTANCE,
     NO_INSTANCE)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t, GRAPHICS, NO_INSTANCE,
     NO_INSTANCE)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, MPS_COMPUTE, )
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, MPS_COMPUTE, NO_INSTANCE,
     NO_INSTANCE)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t, MPS_COMPUTE, NO_INSTANCE,
     NO_INSTANCE)

/* A version that the hook does not know is refused: passed on, it would show the processes of other
 * kernels. */
nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                   nvmlProcessDetailList_t *plist)
{
    struct observer_view view;
    struct own_list own;
    device = nvml_present(device);
    if (!has_own_list(device, plist ? &plist->numProcArrayEntries : NULL, &view))
        return nvml_driver()->nvmlDeviceGetRunningProcessDetailList(device, plist);
    if (plist->version != nvmlProcessDetailList_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlProcessDetailList_t probe = {.version = plist->version, .mode = plist->mode};
    nvmlReturn_t result = nvml_driver()->nvmlDeviceGetRunningProcessDetailList(device, &probe);
    if (result == NVML_SUCCESS || result == NVML_ERROR_INSUFFICIENT_SIZE)
        result = list_own(device, (enum list)plist->mode, &view, &own);
    if (result == NVML_SUCCESS)
        result = answer_length(&own, &plist->numProcArrayEntries, plist->procArray != NULL);
    for (unsigned i = 0; result == NVML_SUCCESS && i < own.count; i++)
        plist->procArray[i] = (nvmlProcessDetail_v1_t){own.entries[i].pid, own.entries[i].bytes,
                                                       NO_INSTANCE, NO_INSTANCE, 0};
    return result;
}

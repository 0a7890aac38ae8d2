/* Lists of processes, from the slots. Each reading checks which processes are alive. Ids are those
 * of the caller's pid namespace. As with today's drivers, a process without an id there is left
 * out, though its bytes count. */
#include "nvml/nvml_observer.h"
#include "device/pids.h"
#include "device/slots.h"

#define NO_INSTANCE 0xFFFFFFFFu

enum mode { MODE_COMPUTE = 0, MODE_GRAPHICS = 1, MODE_MPS = 2 }; /* of nvmlProcessDetailList_t */

struct process {
    unsigned pid;
    unsigned long long bytes;
};

/* Live processes with a context or memory on the device; how many. */
static unsigned list_processes(struct attachment *attachment, unsigned index, struct process list[MACHINE_SLOTS])
{
    unsigned count = 0;
    slots_reap(attachment);
    for (int i = 0; i < MACHINE_SLOTS; i++) {
        struct slot *slot = &attachment->machine->slots[i];
        unsigned long long bytes = atomic_load(&slot->devices[index].bytes);
        int is_there = bytes || atomic_load(&slot->devices[index].contexts);
        unsigned pid = is_there ? (unsigned)pids_of_slot(attachment->machine, i) : 0;
        if (pid)
            list[count++] = (struct process){pid, bytes};
    }
    return count;
}

/* Shared by the three versions: fills *count, and says whether `list` may be copied out. */
static nvmlReturn_t answer_list(nvmlDevice_t device, unsigned *count, const void *infos, struct process *list,
                                unsigned *found)
{
    struct attachment *attachment;
    unsigned index;
    nvmlReturn_t result = observer_device(device, &attachment, &index);
    if (result || count == NULL)
        return result ? result : NVML_ERROR_INVALID_ARGUMENT;
    *found = list_processes(attachment, index, list);
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
    struct attachment *attachment;
    unsigned index;
    nvmlReturn_t result = observer_device(device, &attachment, &index);
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

EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *infoCount,
                                                               nvmlProcessInfo_v2_t *infos)
{
    return answer_none(device, infoCount);
}

EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned int *infoCount,
                                                            nvmlProcessInfo_v1_t *infos)
{
    return answer_none(device, infoCount);
}

EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *plist)
{
    struct process list[MACHINE_SLOTS];
    unsigned found = 0;
    if (plist == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (plist->version != nvmlProcessDetailList_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (plist->mode > MODE_MPS)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (plist->mode != MODE_COMPUTE)
        return answer_none(device, &plist->numProcArrayEntries);
    nvmlReturn_t result = answer_list(device, &plist->numProcArrayEntries, plist->procArray, list, &found);
    for (unsigned i = 0; result == NVML_SUCCESS && i < found; i++)
        plist->procArray[i] = (nvmlProcessDetail_v1_t){list[i].pid, list[i].bytes, NO_INSTANCE, NO_INSTANCE, 0};
    return result;
}

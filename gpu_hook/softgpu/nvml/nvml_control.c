/* Control symbols of our own, for tests and tools; NVML has no such functions. */
#include "device/engine.h"
#include "nvml/nvml_observer.h"
#include "device/pids.h"

EXPORT int aliquot_softgpu_set_lost(int device, int lost);
EXPORT int aliquot_softgpu_process_busy(int pid, int device, unsigned long long *nanoseconds);
EXPORT int aliquot_softgpu_hold_lock(int hold);

/* Makes a device vanish from every process's sight, or come back. 0, or -1 for a device that does
 * not exist. */
EXPORT int aliquot_softgpu_set_lost(int device, int lost)
{
    struct attachment *attachment;
    if (observer_attachment(&attachment) != NVML_SUCCESS || device < 0 ||
        (unsigned)device >= attachment->machine->device_count)
        return -1;
    atomic_store(&attachment->machine->devices[device].is_lost, lost != 0);
    return 0;
}

/* Exact busy time of a live process on a device since it joined. 0, or -1 when it is not there. */
EXPORT int aliquot_softgpu_process_busy(int pid, int device, unsigned long long *nanoseconds)
{
    struct attachment *attachment;
    if (observer_attachment(&attachment) != NVML_SUCCESS || device < 0 ||
        (unsigned)device >= attachment->machine->device_count)
        return -1;
    engine_settle(attachment, (unsigned)device);
    for (int i = 0; pid > 0 && i < MACHINE_SLOTS; i++)
        if (pids_of_slot(attachment->machine, i) == pid) {
            *nanoseconds = atomic_load(&attachment->machine->slots[i].devices[device].busy_nanoseconds);
            return 0;
        }
    return -1;
}

/* Takes or gives back the machine's lock, as a process does that is about to be stopped or
 * killed. */
EXPORT int aliquot_softgpu_hold_lock(int hold)
{
    struct attachment *attachment;
    if (observer_attachment(&attachment) != NVML_SUCCESS)
        return -1;
    if (hold)
        return machine_lock(attachment->machine);
    machine_unlock(attachment->machine);
    return 0;
}

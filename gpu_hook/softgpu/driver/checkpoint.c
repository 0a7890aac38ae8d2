#include "driver/checkpoint.h"

#include <cuda.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "driver/driver.h"
#include "driver/enter.h"
#include "implemented.h"
#include "device/cgroups.h"
#include "device/log.h"
#include "device/pids.h"

#define LOOK_NANOSECONDS 1000000

static struct slot *own_slot(void)
{
    return &driver.attachment.machine->slots[driver.attachment.slot];
}

void checkpoint_attend(void)
{
    enter_pause_on(&own_slot()->process_state);
}

void checkpoint_count_work(int change)
{
    if (driver.attachment.machine)
        atomic_fetch_add_explicit(&own_slot()->work_items, (uint32_t)change, memory_order_release);
}

void checkpoint_forbid(enum slot_unsaveable why)
{
    atomic_fetch_or_explicit(&own_slot()->unsaveable, why, memory_order_relaxed);
}

/* The slot of another process by its id; NULL: the machine has none. A process cannot act on itself
 * here: its own call would wait. */
static struct slot *find_target(int pid)
{
    struct machine *machine = driver.attachment.machine;
    for (int i = 0; pid > 0 && i < MACHINE_SLOTS; i++)
        if (i != driver.attachment.slot && pids_of_slot(machine, i) == pid)
            return &machine->slots[i];
    return NULL;
}

static CUprocessState state_of(const struct slot *slot)
{
    return (CUprocessState)atomic_load_explicit(&slot->process_state, memory_order_acquire);
}

static void set_state(struct slot *slot, CUprocessState state)
{
    atomic_store_explicit(&slot->process_state, state, memory_order_release);
    syscall(SYS_futex, &slot->process_state, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* With the machine's lock when it returns CUDA_SUCCESS. */
static CUresult begin(int pid, CUprocessState wanted, struct slot **target)
{
    *target = find_target(pid);
    if (*target == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (machine_lock(driver.attachment.machine) != 0)
        return CUDA_ERROR_SYSTEM_NOT_READY;
    if (state_of(*target) == wanted)
        return CUDA_SUCCESS;
    machine_unlock(driver.attachment.machine);
    return CUDA_ERROR_ILLEGAL_STATE;
}

static int is_zero(const void *bytes, size_t count)
{
    const unsigned char *byte = bytes;
    for (size_t i = 0; i < count; i++)
        if (byte[i])
            return 0;
    return 1;
}

/* Work queued before the lock still runs; calls that are in progress queue no more than they were
 * about to. */
static int drain(const struct slot *target, unsigned int timeout_milliseconds)
{
    const struct timespec look = {0, LOOK_NANOSECONDS};
    uint64_t start = machine_now();
    while (atomic_load_explicit(&target->work_items, memory_order_acquire)) {
        if (timeout_milliseconds && machine_now() - start > timeout_milliseconds * 1000000ull)
            return -1;
        if (!atomic_load_explicit(&target->pid, memory_order_relaxed))
            return -1;
        nanosleep(&look, NULL);
    }
    return 0;
}

CUresult impl_cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
    struct slot *target;
    if (args && (args->reserved0 || !is_zero(args->reserved1, sizeof args->reserved1)))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = begin(pid, CU_PROCESS_STATE_RUNNING, &target);
    if (result != CUDA_SUCCESS)
        return result;
    set_state(target, CU_PROCESS_STATE_LOCKED);
    machine_unlock(driver.attachment.machine);
    if (drain(target, args ? args->timeoutMs : 0) == 0)
        return CUDA_SUCCESS;
    set_state(target, CU_PROCESS_STATE_RUNNING);
    return CUDA_ERROR_NOT_READY;
}

CUresult impl_cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
    struct slot *target;
    struct machine *machine = driver.attachment.machine;
    if (args && !is_zero(args, sizeof *args))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = begin(pid, CU_PROCESS_STATE_LOCKED, &target);
    if (result != CUDA_SUCCESS)
        return result;
    uint32_t why = atomic_load(&target->unsaveable);
    for (unsigned d = 0; d < machine->device_count && !why; d++) {
        struct slot_device *device = &target->devices[d];
        device->saved_bytes = atomic_exchange(&device->bytes, 0);
        device->saved_contexts = atomic_exchange(&device->contexts, 0);
        machine->devices[d].used_bytes -= device->saved_bytes;
    }
    if (!why)
        set_state(target, CU_PROCESS_STATE_CHECKPOINTED);
    machine_unlock(machine);
    log_line("event=checkpoint process=%d refused=%u", pid, why);
    return why ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

static int find_device(const struct machine *machine, const CUuuid *uuid)
{
    for (unsigned d = 0; d < machine->device_count; d++)
        if (memcmp(machine->devices[d].uuid, uuid->bytes, sizeof machine->devices[d].uuid) == 0)
            return (int)d;
    return -1;
}

/* Reads which device replaces each. As with the driver, a map names every GPU of the machine,
 * whatever CUDA_VISIBLE_DEVICES leaves of them, and each once. Without a map each replaces itself. */
static CUresult read_map(const struct machine *machine, const CUcheckpointRestoreArgs *args,
                         uint8_t map[MACHINE_DEVICES])
{
    unsigned replaced = 0, taken = 0, all = (1u << machine->device_count) - 1;
    for (unsigned d = 0; d < MACHINE_DEVICES; d++)
        map[d] = (uint8_t)d;
    if (args == NULL || args->gpuPairsCount == 0)
        return CUDA_SUCCESS;
    if (args->gpuPairs == NULL || args->gpuPairsCount != machine->device_count)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < args->gpuPairsCount; i++) {
        int from = find_device(machine, &args->gpuPairs[i].oldUuid);
        int to = find_device(machine, &args->gpuPairs[i].newUuid);
        if (from < 0 || to < 0)
            return CUDA_ERROR_INVALID_VALUE;
        map[from] = (uint8_t)to;
        replaced |= 1u << from;
        taken |= 1u << to;
    }
    return replaced == all && taken == all ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static int has_room(const struct machine *machine, const struct slot *target, const uint8_t map[MACHINE_DEVICES])
{
    for (unsigned d = 0; d < machine->device_count; d++) {
        uint64_t bytes = target->devices[d].saved_bytes;
        if (bytes > machine->memory_bytes - machine->devices[map[d]].used_bytes ||
            !cgroups_allow(machine, target, map[d], bytes))
            return 0;
    }
    return 1;
}

/* Under the machine's lock. */
static void bring_back(struct machine *machine, struct slot *target, const uint8_t map[MACHINE_DEVICES])
{
    for (unsigned d = 0; d < machine->device_count; d++) {
        struct slot_device *from = &target->devices[d], *to = &target->devices[map[d]];
        atomic_fetch_add(&to->bytes, from->saved_bytes);
        atomic_store(&to->contexts, from->saved_contexts);
        machine->devices[map[d]].used_bytes += from->saved_bytes;
        from->saved_bytes = 0;
    }
    for (unsigned d = 0; d < machine->device_count; d++)
        atomic_store(&target->places[d], map[atomic_load(&target->places[d])]);
}

/* As in the drivers of today, one that meets too little room leaves the process stuck for good. A
 * map that is refused leaves it as it was. */
CUresult impl_cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
    struct slot *target;
    struct machine *machine = driver.attachment.machine;
    uint8_t map[MACHINE_DEVICES];
    CUresult result = begin(pid, CU_PROCESS_STATE_CHECKPOINTED, &target);
    if (result != CUDA_SUCCESS)
        return result;
    result = read_map(machine, args, map);
    if (result != CUDA_SUCCESS) {
        machine_unlock(machine);
        return result;
    }
    int fits = has_room(machine, target, map);
    if (fits)
        bring_back(machine, target, map);
    set_state(target, fits ? CU_PROCESS_STATE_LOCKED : CU_PROCESS_STATE_FAILED);
    machine_unlock(machine);
    log_line("event=restore process=%d fits=%d moved=%d", pid, fits, args && args->gpuPairsCount);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult impl_cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args)
{
    struct slot *target;
    if (args && !is_zero(args, sizeof *args))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = begin(pid, CU_PROCESS_STATE_LOCKED, &target);
    if (result != CUDA_SUCCESS)
        return result;
    set_state(target, CU_PROCESS_STATE_RUNNING);
    machine_unlock(driver.attachment.machine);
    return CUDA_SUCCESS;
}

CUresult impl_cuCheckpointProcessGetState(int pid, CUprocessState *state)
{
    const struct slot *target = find_target(pid);
    if (target == NULL || state == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *state = state_of(target);
    return CUDA_SUCCESS;
}

/* The thread that a debugger must let run for a restore: there is none here, the process's first
 * stands for it. */
CUresult impl_cuCheckpointProcessGetRestoreThreadId(int pid, int *tid)
{
    if (find_target(pid) == NULL || tid == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *tid = pid;
    return CUDA_SUCCESS;
}

/* Slots and charges. A slot is alive while its owner holds an OFD write lock on the slot's byte of
 * the state file: the kernel drops that lock with the process, whatever killed it and in whichever
 * pid namespace it lived. */
#include "device/slots.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "device/cgroups.h"
#include "device/log.h"
#include "device/pids.h"
#include "device/requests.h"

static struct flock slot_byte(int slot)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};
}

int slots_is_dead(const struct attachment *attachment, int slot)
{
    if (slot == attachment->slot)
        return 0;
    struct flock query = slot_byte(slot);
    return fcntl(attachment->descriptor, F_OFD_GETLK, &query) == 0 && query.l_type == F_UNLCK;
}

int slots_find(const struct attachment *attachment, uint64_t joined)
{
    for (int i = 0; joined && i < MACHINE_SLOTS; i++)
        if (atomic_load_explicit(&attachment->machine->slots[i].joined, memory_order_acquire) == joined &&
            atomic_load_explicit(&attachment->machine->slots[i].pid, memory_order_acquire))
            return slots_is_dead(attachment, i) ? -1 : i;
    return -1;
}

uint64_t slots_joined(const struct attachment *attachment)
{
    return atomic_load_explicit(&attachment->machine->slots[attachment->slot].joined, memory_order_relaxed);
}

/* Under the machine's lock. The pid goes first: a slot without a pid counts for nothing, so a kill
 * between any two of these stores leaves totals that machine_recount gets right. */
static void clear_slot(struct machine *machine, int index)
{
    struct slot *slot = &machine->slots[index];
    int32_t pid = atomic_exchange_explicit(&slot->pid, 0, memory_order_relaxed);
    for (unsigned d = 0; d < machine->device_count; d++) {
        uint64_t bytes = atomic_exchange_explicit(&slot->devices[d].bytes, 0, memory_order_relaxed);
        if (pid)
            machine->devices[d].used_bytes -= bytes;
        requests_forget(&machine->devices[d].engine, (uint32_t)index);
    }
    memset(slot->devices, 0, sizeof slot->devices);
    atomic_store_explicit(&slot->died, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->process_state, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->work_items, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->unsaveable, 0, memory_order_relaxed);
    if (pid)
        log_line("event=reaped process=%d slot=%d", pid, index);
}

/* A driver takes memory back some time after its process has ended. The first process that looks
 * notes that time. */
static int is_torn_down(const struct attachment *attachment, int index)
{
    struct slot *slot = &attachment->machine->slots[index];
    if (!atomic_load_explicit(&slot->pid, memory_order_relaxed) || !slots_is_dead(attachment, index))
        return 0;
    if (!attachment->machine->teardown_nanoseconds)
        return 1;
    uint64_t now = machine_now(), died = 0;
    if (atomic_compare_exchange_strong(&slot->died, &died, now))
        return 0;
    return now - died >= attachment->machine->teardown_nanoseconds;
}

int slots_reap_locked(struct attachment *attachment)
{
    int reaped = 0;
    for (int i = 0; i < MACHINE_SLOTS; i++)
        if (is_torn_down(attachment, i)) {
            clear_slot(attachment->machine, i);
            reaped++;
        }
    return reaped;
}

void slots_reap(struct attachment *attachment)
{
    int dead = 0;
    for (int i = 0; i < MACHINE_SLOTS && !dead; i++)
        dead = is_torn_down(attachment, i);
    if (!dead || machine_lock(attachment->machine))
        return;
    slots_reap_locked(attachment);
    machine_unlock(attachment->machine);
}

uint64_t slots_used(const struct machine *machine, unsigned device)
{
    uint64_t used = 0;
    for (int i = 0; i < MACHINE_SLOTS; i++)
        if (atomic_load_explicit(&machine->slots[i].pid, memory_order_relaxed))
            used += atomic_load_explicit(&machine->slots[i].devices[device].bytes, memory_order_relaxed);
    return used < machine->memory_bytes ? used : machine->memory_bytes;
}

static void describe_self(struct slot *slot)
{
    memset(slot->name, 0, sizeof slot->name);
    int descriptor = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    ssize_t length = descriptor < 0 ? 0 : read(descriptor, slot->name, sizeof slot->name - 1);
    if (descriptor >= 0)
        close(descriptor);
    if (length > 0 && slot->name[length - 1] == '\n')
        slot->name[length - 1] = '\0';
    slot->start_ticks = pids_own_start_ticks();
    slot->pid_namespace = pids_own_namespace();
}

int slots_join(struct attachment *attachment)
{
    if (machine_lock(attachment->machine))
        return -1;
    int others = 0, free_slot = -1;
    slots_reap_locked(attachment);
    for (int i = 0; i < MACHINE_SLOTS; i++) {
        struct slot *slot = &attachment->machine->slots[i];
        if (atomic_load_explicit(&slot->pid, memory_order_relaxed)) {
            others++;
            continue;
        }
        struct flock claim = slot_byte(i);
        if (free_slot < 0 && fcntl(attachment->descriptor, F_OFD_SETLK, &claim) == 0)
            free_slot = i;
    }
    /* a state file that outlived a reboot must not book engines into the far future */
    if (others == 0)
        for (unsigned d = 0; d < attachment->machine->device_count; d++)
            requests_reset(&attachment->machine->devices[d].engine);
    if (free_slot >= 0) {
        struct slot *slot = &attachment->machine->slots[free_slot];
        attachment->slot = free_slot;
        clear_slot(attachment->machine, free_slot);
        describe_self(slot);
        for (unsigned d = 0; d < MACHINE_DEVICES; d++)
            atomic_store_explicit(&slot->places[d], (uint8_t)d, memory_order_relaxed);
        atomic_store_explicit(&slot->joined, ++attachment->machine->joinings, memory_order_release);
        memcpy(slot->cgroups, attachment->cgroups, sizeof slot->cgroups);
        atomic_store_explicit(&slot->pid, (int32_t)getpid(), memory_order_release);
    }
    machine_unlock(attachment->machine);
    if (free_slot < 0)
        log_failure("all %d process slots of the software GPU are taken", MACHINE_SLOTS);
    return free_slot < 0 ? -1 : 0;
}

/* Under the machine's lock. */
static int fits(const struct attachment *attachment, unsigned device, uint64_t bytes)
{
    const struct machine *machine = attachment->machine;
    return bytes <= machine->memory_bytes - machine->devices[device].used_bytes &&
           cgroups_allow(machine, &machine->slots[attachment->slot], device, bytes);
}

static int charge(struct attachment *attachment, unsigned device, uint64_t bytes, int is_managed)
{
    struct machine *machine = attachment->machine;
    struct slot_device *own = &machine->slots[attachment->slot].devices[device];
    int failed = machine_lock(machine);
    if (failed)
        return failed;
    if (!fits(attachment, device, bytes)) {
        slots_reap_locked(attachment);
        /* a refund that met a stopped holder of the lock left the total too high */
        machine_recount(machine);
    }
    if (!fits(attachment, device, bytes)) {
        machine_unlock(machine);
        return ENOMEM;
    }
    atomic_fetch_add_explicit(&own->bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&own->managed_bytes, is_managed ? bytes : 0, memory_order_relaxed);
    machine->devices[device].used_bytes += bytes;
    machine_unlock(machine);
    return 0;
}

int slots_charge(struct attachment *attachment, unsigned device, uint64_t bytes)
{
    return charge(attachment, slots_place(attachment, device), bytes, 0);
}

int slots_charge_managed(struct attachment *attachment, unsigned device, uint64_t bytes)
{
    return charge(attachment, slots_place(attachment, device), bytes, 1);
}

static void refund(struct attachment *attachment, unsigned device, uint64_t bytes, int is_managed)
{
    struct machine *machine = attachment->machine;
    struct slot_device *own = &machine->slots[attachment->slot].devices[device];
    int failed = machine_lock(machine);
    if (is_managed) {
        /* others have that room already */
        uint64_t owed = atomic_load_explicit(&own->managed_owed, memory_order_relaxed);
        owed = owed < bytes ? owed : bytes;
        atomic_fetch_sub_explicit(&own->managed_owed, owed, memory_order_relaxed);
        bytes -= owed;
        atomic_fetch_sub_explicit(&own->managed_bytes, bytes, memory_order_relaxed);
    }
    atomic_fetch_sub_explicit(&own->bytes, bytes, memory_order_relaxed);
    /* the slot holds the truth; the total follows when the lock's holder goes on or dies */
    if (failed)
        return;
    machine->devices[device].used_bytes -= bytes;
    machine_unlock(machine);
}

void slots_refund(struct attachment *attachment, unsigned device, uint64_t bytes)
{
    refund(attachment, slots_place(attachment, device), bytes, 0);
}

void slots_refund_managed(struct attachment *attachment, unsigned device, uint64_t bytes)
{
    refund(attachment, slots_place(attachment, device), bytes, 1);
}

/* Under the machine's lock: the other process whose managed memory came to the device first, before
 * a time; NULL: none. */
static struct slot_device *find_oldest(const struct attachment *attachment, unsigned device, uint64_t before)
{
    struct slot_device *oldest = NULL;
    for (int i = 0; i < MACHINE_SLOTS; i++) {
        struct slot *slot = &attachment->machine->slots[i];
        struct slot_device *here = &slot->devices[device];
        uint64_t came = atomic_load_explicit(&here->managed_oldest, memory_order_relaxed);
        if (i == attachment->slot || !atomic_load_explicit(&slot->pid, memory_order_relaxed) ||
            !atomic_load_explicit(&here->managed_bytes, memory_order_relaxed) || came >= before)
            continue;
        oldest = here;
        before = came;
    }
    return oldest;
}

uint64_t slots_take_managed(struct attachment *attachment, unsigned device, uint64_t bytes, uint64_t before)
{
    struct machine *machine = attachment->machine;
    if (machine_lock(machine))
        return 0;
    device = slots_place(attachment, device);
    uint64_t room = machine->memory_bytes - machine->devices[device].used_bytes;
    uint64_t lacking = bytes > room ? bytes - room : 0;
    struct slot_device *from = lacking ? find_oldest(attachment, device, before) : NULL;
    uint64_t taken = from ? atomic_load_explicit(&from->managed_bytes, memory_order_relaxed) : 0;
    taken = taken < lacking ? taken : lacking;
    if (taken) {
        atomic_fetch_sub_explicit(&from->managed_bytes, taken, memory_order_relaxed);
        atomic_fetch_sub_explicit(&from->bytes, taken, memory_order_relaxed);
        atomic_fetch_add_explicit(&from->managed_owed, taken, memory_order_relaxed);
        machine->devices[device].used_bytes -= taken;
    }
    machine_unlock(machine);
    return taken;
}

uint64_t slots_owed(const struct attachment *attachment, unsigned device)
{
    const struct slot *own = &attachment->machine->slots[attachment->slot];
    return atomic_load_explicit(&own->devices[slots_place(attachment, device)].managed_owed, memory_order_relaxed);
}

void slots_tell_oldest(struct attachment *attachment, unsigned device, uint64_t came)
{
    struct slot *own = &attachment->machine->slots[attachment->slot];
    atomic_store_explicit(&own->devices[slots_place(attachment, device)].managed_oldest, came, memory_order_relaxed);
}

/* Under the machine's lock: whether another process has a context on the device. */
static int is_taken(const struct attachment *attachment, unsigned device)
{
    for (int i = 0; i < MACHINE_SLOTS; i++) {
        struct slot *slot = &attachment->machine->slots[i];
        if (i != attachment->slot && atomic_load_explicit(&slot->pid, memory_order_relaxed) &&
            atomic_load_explicit(&slot->devices[device].contexts, memory_order_relaxed))
            return 1;
    }
    return 0;
}

int slots_add_context(struct attachment *attachment, unsigned device)
{
    struct machine *machine = attachment->machine;
    device = slots_place(attachment, device);
    _Atomic uint32_t *own = &machine->slots[attachment->slot].devices[device].contexts;
    uint32_t mode = atomic_load_explicit(&machine->devices[device].compute_mode, memory_order_relaxed);
    if (mode == COMPUTE_MODE_PROHIBITED)
        return EBUSY;
    if (mode == COMPUTE_MODE_DEFAULT) {
        atomic_fetch_add(own, 1);
        return 0;
    }
    int failed = machine_lock(machine);
    if (failed)
        return failed;
    slots_reap_locked(attachment);
    failed = is_taken(attachment, device) ? EBUSY : 0;
    if (!failed)
        atomic_fetch_add(own, 1);
    machine_unlock(machine);
    return failed;
}

void slots_drop_context(struct attachment *attachment, unsigned device)
{
    device = slots_place(attachment, device);
    atomic_fetch_sub(&attachment->machine->slots[attachment->slot].devices[device].contexts, 1);
}

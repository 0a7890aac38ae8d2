/* The life of memory handles. */
#include "memory/physical.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver/driver.h"
#include "driver/handles.h"
#include "managed/managed.h"
#include "device/slots.h"
#include "memory/window_state.h"

/* The facts about shared memory that an importer needs. */
struct note {
    uint64_t machine; /* the state file's inode: another machine's memory cannot be imported */
    uint32_t device;
    int32_t location_type, location_id;
};

_Static_assert(sizeof(struct note) <= BACKING_NOTE_BYTES, "the note fits behind the memory");

static struct {
    struct physical *shared; /* under the window's lock */
    int (*make_room)(unsigned device); /* written at cuInit alone */
} handles;

void physical_on_full_device(int (*make_room)(unsigned device))
{
    handles.make_room = make_room;
}

static int open_backing(struct physical *physical)
{
    unsigned char bytes[BACKING_NOTE_BYTES] = {0};
    int is_device = physical->device != MACHINE_DEVICES;
    unsigned place = is_device ? slots_place(&driver.attachment, physical->device) : MACHINE_DEVICES;
    struct note note = {driver_machine_identity(), place, (int32_t)physical->properties.location.type,
                        physical->properties.location.id};
    memcpy(bytes, &note, sizeof note);
    return physical->properties.requestedHandleTypes ? backing_open_shared(physical->bytes, bytes, &physical->backing)
                                                     : backing_open(physical->bytes, &physical->backing);
}

/* The struct of a memory that exists. */
static CUresult publish(struct physical *physical)
{
    if (handles_add(HANDLE_PHYSICAL, physical) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    window_lock();
    physical->id = window_new_id();
    physical->references = 1;
    if (physical->backing.descriptor >= 0) {
        physical->next = handles.shared;
        handles.shared = physical;
    }
    window_unlock();
    return CUDA_SUCCESS;
}

static CUresult charge(unsigned device, uint64_t bytes)
{
    if (device == MACHINE_DEVICES)
        return CUDA_SUCCESS;
    int failed = managed_charge(device, bytes);
    if (failed == ENOMEM && handles.make_room(device))
        failed = managed_charge(device, bytes);
    if (failed)
        return failed == ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_SYSTEM_NOT_READY;
    return CUDA_SUCCESS;
}

CUresult physical_create(uint64_t bytes, const CUmemAllocationProp *properties, struct physical **made)
{
    struct physical *physical = calloc(1, sizeof *physical);
    if (physical == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    int is_device = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    physical->bytes = bytes;
    physical->properties = *properties;
    /* a request that is not granted reads as such */
    physical->properties.allocFlags.compressionType = 0;
    physical->device = is_device ? driver.physical[properties->location.id] : MACHINE_DEVICES;
    CUresult result = charge(physical->device, bytes);
    if (result) {
        free(physical);
        return result;
    }
    int has_backing = open_backing(physical) == 0;
    result = has_backing ? publish(physical) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result) {
        if (has_backing)
            backing_close(&physical->backing);
        if (is_device)
            slots_refund(&driver.attachment, physical->device, bytes);
        free(physical);
        return result;
    }
    *made = physical;
    return CUDA_SUCCESS;
}

/* One struct for a memory, however often it is imported: its references say when this process lets
 * go. */
static struct physical *find_shared(uint64_t identity)
{
    window_lock();
    struct physical *found = handles.shared;
    while (found && found->backing.identity != identity)
        found = found->next;
    if (found)
        found->references++;
    window_unlock();
    return found;
}

CUresult physical_import(int descriptor, struct physical **made)
{
    unsigned char bytes[BACKING_NOTE_BYTES];
    struct backing backing;
    struct note note;
    if (backing_adopt(descriptor, bytes, &backing) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&note, bytes, sizeof note);
    *made = find_shared(backing.identity);
    int is_device = note.location_type == CU_MEM_LOCATION_TYPE_DEVICE;
    int location = is_device ? driver_find_place(note.device) : note.location_id;
    int is_here = note.machine == driver_machine_identity() && (!is_device || location >= 0);
    struct physical *physical = *made ? NULL : calloc(1, sizeof *physical);
    CUresult result = *made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (physical) {
        physical->bytes = backing.bytes;
        physical->device = is_device && is_here ? driver.physical[location] : note.device;
        physical->is_imported = 1;
        physical->backing = backing;
        physical->properties = (CUmemAllocationProp){
            .type = CU_MEM_ALLOCATION_TYPE_PINNED,
            .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            .location = {.type = (CUmemLocationType)note.location_type, .id = location}};
        result = is_here ? publish(physical) : CUDA_ERROR_NOT_SUPPORTED;
        *made = physical;
    }
    if (result || physical == NULL)
        backing_close(&backing);
    if (result)
        free(physical);
    return result;
}

struct physical *physical_of(CUmemGenericAllocationHandle handle)
{
    struct physical *physical = (struct physical *)(uintptr_t)handle;
    return handles_has(HANDLE_PHYSICAL, physical) && physical->references > 0 ? physical : NULL;
}

int physical_let_go(struct physical *physical, int references, int mappings)
{
    physical->references -= references;
    physical->mappings -= mappings;
    if (physical->references || physical->mappings)
        return 0;
    handles_remove(HANDLE_PHYSICAL, physical);
    struct physical **link = &handles.shared;
    while (*link && *link != physical)
        link = &(*link)->next;
    if (*link)
        *link = physical->next;
    return 1;
}

void physical_free(struct physical *physical)
{
    backing_close(&physical->backing);
    if (!physical->is_imported && physical->device != MACHINE_DEVICES)
        slots_refund(&driver.attachment, physical->device, physical->bytes);
    free(physical);
}

void physical_forget(void)
{
    for (const struct physical *physical = handles.shared; physical; physical = physical->next)
        close(physical->backing.descriptor);
    backing_forget();
}

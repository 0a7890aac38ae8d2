/* Legacy IPC of memory. A handle names a file of the exporting process, which the importer opens
 * through /proc: the exporter must live then, be of the same user, and be in the importer's pid
 * namespace or below it. Only the exporter is charged. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver/checkpoint.h"
#include "driver/driver.h"
#include "implemented.h"
#include "driver/process_files.h"
#include "memory/ipc_memory.h"
#include "device/ranges.h"
#include "memory/shares.h"
#include "device/slots.h"
#include "queue/streams.h"
#include "memory/window_state.h"

struct memory_handle {
    uint64_t machine, identity, offset, mapped_bytes, bytes;
    uint64_t inset; /* of the allocation, in what is mapped */
    uint32_t joined; /* of the exporter; no machine lives for more joinings */
    int32_t descriptor;
    uint32_t device, serial;
};

_Static_assert(sizeof(struct memory_handle) <= sizeof(CUipcMemHandle), "the handle holds it");

/* An opened handle. Kept as long as any context of this process has it open. */
struct opened {
    struct memory_handle handle;
    struct context *context;
    uint64_t address;
    unsigned references;
    struct opened *next;
};

static struct {
    pthread_mutex_t mutex; /* guards the list, and is held over opening and closing */
    struct opened *all;
} imports = {.mutex = PTHREAD_MUTEX_INITIALIZER};

CUresult impl_cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    struct context *context;
    struct allocation found;
    struct share_place place;
    CUresult result = context_current(&context);
    if (result)
        return result;
    if (pHandle == NULL || window_find(dptr, &found) != 0 || found.kind != ALLOCATION_PLAIN || found.pool)
        return CUDA_ERROR_INVALID_VALUE;
    if (shares_make(found.start, found.charged, &place) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct memory_handle handle = {driver_machine_identity(), place.identity, place.offset, place.bytes, found.bytes,
                                   found.start - place.start, (uint32_t)slots_joined(&driver.attachment), place.descriptor,
                                   slots_place(&driver.attachment, found.device), (uint32_t)found.id};
    memset(pHandle, 0, sizeof *pHandle);
    memcpy(pHandle, &handle, sizeof handle);
    checkpoint_forbid(SLOT_HAS_IPC);
    return CUDA_SUCCESS;
}

/* The file that the handle names, if it still is the one. */
static int adopt(const struct memory_handle *handle, struct backing *backing)
{
    unsigned char note[BACKING_NOTE_BYTES];
    int descriptor = process_file_open(handle->joined, handle->descriptor);
    int failed = descriptor < 0 ? -1 : backing_adopt(descriptor, note, backing);
    if (descriptor >= 0)
        close(descriptor);
    if (failed)
        return -1;
    if (backing->identity == handle->identity && handle->offset <= backing->bytes &&
        handle->mapped_bytes <= backing->bytes - handle->offset && handle->inset <= handle->mapped_bytes &&
        handle->bytes <= handle->mapped_bytes - handle->inset) {
        backing->offset = handle->offset;
        backing->bytes = handle->mapped_bytes;
        return 0;
    }
    backing_close(backing);
    return -1;
}

/* Under the mutex. */
static struct opened **find(const struct memory_handle *handle, const struct context *context)
{
    struct opened **link = &imports.all;
    while (*link && ((*link)->context != context || memcmp(&(*link)->handle, handle, sizeof *handle) != 0))
        link = &(*link)->next;
    return link;
}

/* Under the mutex. */
static CUresult open_new(const struct memory_handle *handle, struct context *context, struct opened **made)
{
    struct backing backing;
    struct allocation imported = {.bytes = handle->bytes, .context = context, .device = handle->device};
    if (adopt(handle, &backing) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct opened *opened = calloc(1, sizeof *opened);
    int failed = opened == NULL || window_import(&imported, &backing, handle->inset, &opened->address) != 0;
    backing_close(&backing); /* what is mapped stays */
    if (failed) {
        free(opened);
        return CUDA_ERROR_MAP_FAILED;
    }
    opened->handle = *handle;
    opened->context = context;
    opened->next = imports.all;
    imports.all = opened;
    *made = opened;
    return CUDA_SUCCESS;
}

/* As with the driver, a process cannot open what it exported itself. */
CUresult impl_cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    struct context *context;
    struct memory_handle own;
    CUresult result = context_current(&context);
    if (result || pdptr == NULL || Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    memcpy(&own, &handle, sizeof own);
    int device = driver_find_place(own.device);
    if (own.machine != driver_machine_identity() || device < 0)
        return CUDA_ERROR_INVALID_VALUE;
    own.device = driver.physical[device];
    if (own.joined == (uint32_t)slots_joined(&driver.attachment))
        return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&imports.mutex);
    struct opened *opened = *find(&own, context);
    result = opened ? CUDA_SUCCESS : open_new(&own, context, &opened);
    if (result == CUDA_SUCCESS) {
        opened->references++;
        *pdptr = opened->address;
        checkpoint_forbid(SLOT_HAS_IPC);
    }
    pthread_mutex_unlock(&imports.mutex);
    return result;
}

/* Takes the record of an address out of the list, with its last reference or with all of them. */
static struct opened *let_go(uint64_t address, const struct context *context)
{
    struct opened **link = &imports.all;
    while (*link && (context ? (*link)->context != context : (*link)->address != address))
        link = &(*link)->next;
    struct opened *opened = *link;
    if (opened && (context || --opened->references == 0))
        *link = opened->next;
    return opened;
}

CUresult impl_cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    struct context *context;
    CUresult result = context_current(&context);
    if (result)
        return result;
    pthread_mutex_lock(&imports.mutex);
    struct opened *opened = let_go(dptr, NULL);
    int is_last = opened && opened->references == 0;
    pthread_mutex_unlock(&imports.mutex);
    if (opened == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (is_last) {
        result = streams_drain(opened->context);
        window_give_import(dptr);
        free(opened);
    }
    return result;
}

void ipc_forget_context(const struct context *context)
{
    for (;;) {
        pthread_mutex_lock(&imports.mutex);
        struct opened *opened = let_go(0, context);
        pthread_mutex_unlock(&imports.mutex);
        if (opened == NULL)
            return;
        free(opened);
    }
}

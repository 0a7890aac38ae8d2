/* Legacy IPC of events. Its handles work as those of ipc_memory.c. */
#include <string.h>

#include "driver/driver.h"
#include "queue/event_shares.h"
#include "queue/events.h"
#include "driver/handles.h"
#include "implemented.h"
#include "device/slots.h"

struct event_handle {
    uint64_t machine, identity, joined;
    int32_t descriptor;
};

_Static_assert(sizeof(struct event_handle) <= sizeof(CUipcEventHandle), "the handle holds it");

CUresult impl_cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent event)
{
    struct event *own = (struct event *)event;
    if (!handles_has(HANDLE_EVENT, event) || !(own->flags & CU_EVENT_INTERPROCESS) || own->place.descriptor < 0)
        return CUDA_ERROR_INVALID_HANDLE;
    if (pHandle == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct event_handle handle = {driver_machine_identity(), own->place.identity, slots_joined(&driver.attachment),
                                  own->place.descriptor};
    memset(pHandle, 0, sizeof *pHandle);
    memcpy(pHandle, &handle, sizeof handle);
    return CUDA_SUCCESS;
}

CUresult impl_cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle)
{
    struct context *context;
    struct event_handle own;
    CUresult result = context_current(&context);
    if (result || phEvent == NULL)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    memcpy(&own, &handle, sizeof own);
    if (own.machine != driver_machine_identity())
        return CUDA_ERROR_INVALID_VALUE;
    if (own.joined == slots_joined(&driver.attachment))
        return CUDA_ERROR_INVALID_CONTEXT;
    struct event_place place = {own.identity, own.descriptor};
    struct event_share *share = event_share_open(own.joined, &place);
    if (share == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct event *event = event_new(context, CU_EVENT_DISABLE_TIMING, share);
    if (event == NULL) {
        event_share_drop(share);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *phEvent = (CUevent)event;
    return CUDA_SUCCESS;
}

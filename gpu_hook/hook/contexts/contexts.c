#include "contexts/contexts.h"

#include "accounting/devices.h"
#include "interpose/driver.h"
#include "gate/threads.h"

#include <pthread.h>
#include <stdlib.h>

/* Held over calls that make or end a context: a driver gives a new context the address of an ended
 * one, whose allocations must be refunded before a thread can allocate in the new one. */
static pthread_mutex_t lifecycle = PTHREAD_MUTEX_INITIALIZER;

void contexts_reset(void)
{
    pthread_mutex_init(&lifecycle, NULL);
    context_list_reset();
}

bool contexts_is_primary_active(CUdevice device)
{
    unsigned int flags;
    int is_active = 0;
    return driver()->cuDevicePrimaryCtxGetState(device, &flags, &is_active) == CUDA_SUCCESS &&
           is_active;
}

/* One more use of the context gives its handle, since a call that the hook does not see may have
 * made it. */
CUcontext contexts_find_primary(CUdevice device)
{
    CUcontext context = NULL;
    if (contexts_is_primary_active(device) &&
        driver()->cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS)
        driver()->cuDevicePrimaryCtxRelease_v2(device);
    return context;
}

void contexts_hold(void)
{
    threads_check_marked("contexts_hold");
    pthread_mutex_lock(&lifecycle);
}

void contexts_release(void)
{
    pthread_mutex_unlock(&lifecycle);
}

bool contexts_list(struct live_context **list, size_t *count)
{
    size_t room = context_list_count();
    *count = 0;
    *list = calloc(room + (size_t)devices_count() + 1, sizeof **list);
    if (!*list || !context_list_is_whole())
        return false;
    *count = context_list_read(*list, room);
    for (int device = 0; device < devices_count(); device++) {
        CUcontext primary = contexts_find_primary(device);
        if (primary)
            (*list)[(*count)++] = (struct live_context){primary, device, 0};
    }
    return true;
}

CUcontext contexts_find(CUdevice device)
{
    struct live_context *list;
    size_t count;
    CUcontext found = contexts_find_primary(device);
    contexts_list(&list, &count);
    for (size_t i = 0; i < count && !found; i++)
        if (list[i].device == device)
            found = list[i].context;
    free(list);
    return found;
}

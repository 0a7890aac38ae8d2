/* The peers whose access a context allowed. Copies between devices need no permission here: this
 * only answers as the driver does. */
#include "driver/contexts.h"
#include "driver/driver.h"
#include "driver/handles.h"
#include "implemented.h"

static struct {
    pthread_mutex_t mutex; /* guards every context's list of peers */
} peers = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Peers reach each other through the host: every device of this machine can. */
CUresult impl_cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
    if (canAccessPeer == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (driver_check_device(dev) || driver_check_device(peerDev))
        return CUDA_ERROR_INVALID_DEVICE;
    *canAccessPeer = dev != peerDev;
    return CUDA_SUCCESS;
}

/* Under the mutex: where `peer` is in the list, or with NULL a free place; NULL when there is
 * none. */
static struct context **find(struct context *context, const struct context *peer)
{
    for (int i = 0; i < CONTEXT_PEERS_MAX; i++)
        if (context->peers[i] == peer)
            return &context->peers[i];
    return NULL;
}

/* Two live contexts, of which the calling thread's is not the peer. */
static CUresult check(CUcontext handle, struct context **context)
{
    CUresult result = context_current(context);
    if (result)
        return result;
    struct context *peer = (struct context *)handle;
    return context_is_live(peer) && peer != *context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult impl_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
    struct context *context, *peer = (struct context *)peerContext;
    CUresult result = check(peerContext, &context);
    if (result || Flags)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    if (peer->device == context->device)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    pthread_mutex_lock(&peers.mutex);
    struct context **place = find(context, NULL);
    if (find(context, peer))
        result = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    else if (place == NULL)
        result = CUDA_ERROR_TOO_MANY_PEERS;
    else
        *place = peer;
    pthread_mutex_unlock(&peers.mutex);
    return result;
}

CUresult impl_cuCtxDisablePeerAccess(CUcontext peerContext)
{
    struct context *context;
    CUresult result = check(peerContext, &context);
    if (result)
        return result;
    pthread_mutex_lock(&peers.mutex);
    struct context **place = find(context, (struct context *)peerContext);
    if (place)
        *place = NULL;
    pthread_mutex_unlock(&peers.mutex);
    return place ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

/* Multiprocessors as a resource: a program asks a device for them, splits them, and describes them
 * for a green context. */
#include <stdlib.h>
#include <string.h>

#include "driver/driver.h"
#include "driver/green.h"
#include "driver/handles.h"
#include "implemented.h"

/* Of compute capability 8.x; without co-scheduling each two go together. */
#define LEAST_SMS 4u
#define SM_STEP 2u
#define ORIGIN_MAGIC 0x47524e52u
#define SPLIT_FLAGS (CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING | CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE)

/* In a resource's padding, which belongs to the driver. */
struct origin {
    uint32_t magic;
    CUdevice device;
    /* number of the split that it came from; 0: none, so that it can be split */
    unsigned long long split;
};

static _Atomic unsigned long long next_split = 1;

static struct origin origin_of(const CUdevResource *resource)
{
    struct origin origin;
    memcpy(&origin, resource->_internal_padding, sizeof origin);
    return origin;
}

static CUdevResource resource_of(struct origin origin, unsigned sm_count)
{
    CUdevResource resource = {.type = CU_DEV_RESOURCE_TYPE_SM, .sm = {sm_count, LEAST_SMS, SM_STEP}};
    memcpy(resource._internal_padding, &origin, sizeof origin);
    return resource;
}

CUdevResource green_whole_device(CUdevice device)
{
    return resource_of((struct origin){ORIGIN_MAGIC, device, 0}, driver.attachment.machine->sm_count);
}

static CUresult check_type(const void *resource, CUdevResourceType type)
{
    if (resource == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return type == CU_DEV_RESOURCE_TYPE_SM ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_TYPE;
}

static CUresult check_resource(const CUdevResource *resource)
{
    CUresult result = resource ? check_type(resource, resource->type) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && origin_of(resource).magic != ORIGIN_MAGIC)
        result = CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    return result;
}

CUresult impl_cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
    CUresult result = driver_check_device(device);
    result = result ? result : check_type(resource, type);
    if (result == CUDA_SUCCESS)
        *resource = green_whole_device(device);
    return result;
}

CUresult impl_cuCtxGetDevResource(CUcontext hCtx, CUdevResource *resource, CUdevResourceType type)
{
    const struct context *context = (const struct context *)hCtx;
    CUresult result = handles_has(HANDLE_CONTEXT, context) ? check_type(resource, type) : CUDA_ERROR_INVALID_CONTEXT;
    if (result)
        return result;
    struct green *green = green_of_context(context);
    *resource = green ? green->resource : green_whole_device(context->device);
    return CUDA_SUCCESS;
}

CUresult impl_cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource *resource, CUdevResourceType type)
{
    if (!handles_has(HANDLE_GREEN, hCtx))
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = check_type(resource, type);
    if (result == CUDA_SUCCESS)
        *resource = ((struct green *)hCtx)->resource;
    return result;
}

CUresult impl_cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *nbGroups, const CUdevResource *input,
                                          CUdevResource *remaining, unsigned int useFlags, unsigned int minCount)
{
    CUresult refused = check_resource(input);
    if (refused || nbGroups == NULL || useFlags & ~(unsigned)SPLIT_FLAGS || minCount > input->sm.smCount)
        return refused ? refused : CUDA_ERROR_INVALID_VALUE;
    struct origin origin = origin_of(input);
    if (origin.split) /* it has to go through a green context first */
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    unsigned least = useFlags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING ? SM_STEP : LEAST_SMS;
    unsigned each = minCount < least ? least : (minCount + SM_STEP - 1) / SM_STEP * SM_STEP;
    unsigned groups = input->sm.smCount / each;
    if (groups == 0)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (result && *nbGroups < groups)
        groups = *nbGroups;
    *nbGroups = groups;
    if (result == NULL)
        return CUDA_SUCCESS;
    origin.split = atomic_fetch_add(&next_split, 1);
    for (unsigned i = 0; i < groups; i++)
        result[i] = resource_of(origin, each);
    unsigned left = input->sm.smCount - groups * each;
    if (remaining && left)
        *remaining = resource_of(origin, left);
    else if (remaining)
        *remaining = (CUdevResource){.type = CU_DEV_RESOURCE_TYPE_INVALID};
    return CUDA_SUCCESS;
}

CUresult impl_cuDevResourceGenerateDesc(CUdevResourceDesc *phDesc, CUdevResource *resources, unsigned int nbResources)
{
    unsigned sm_count = 0;
    if (phDesc == NULL || resources == NULL || nbResources == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < nbResources; i++) {
        CUresult result = check_resource(&resources[i]);
        struct origin first = origin_of(&resources[0]), origin = origin_of(&resources[i]);
        if (result)
            return result;
        if (i && (origin.device != first.device || origin.split == 0 || origin.split != first.split))
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        sm_count += resources[i].sm.smCount;
    }
    if (sm_count > driver.attachment.machine->sm_count)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    struct resource_desc *desc = calloc(1, sizeof *desc);
    if (desc == NULL || handles_add(HANDLE_RESOURCES, desc) != 0) {
        free(desc);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    desc->device = origin_of(&resources[0]).device;
    desc->resource = resource_of((struct origin){ORIGIN_MAGIC, desc->device, 0}, sm_count);
    *phDesc = (CUdevResourceDesc)desc;
    return CUDA_SUCCESS;
}

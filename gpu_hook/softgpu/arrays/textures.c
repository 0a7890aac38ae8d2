/* Texture and surface objects. */
#include "arrays/textures.h"

#include <stdlib.h>
#include <string.h>

#include "arrays/arrays.h"
#include "driver/handles.h"
#include "implemented.h"
#include "memory/window.h"

/* A CUtexObject and a CUsurfObject are addresses of this. */
struct object {
    enum handle_kind kind;
    struct context *context;
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    CUDA_RESOURCE_VIEW_DESC view;
    int has_view;
    struct object *next, **link; /* what points to it */
};

static struct {
    pthread_mutex_t mutex;
    struct object *all;
} objects = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static int is_within(uint64_t value, CUdevice_attribute attribute, CUdevice device)
{
    int most = 0;
    return impl_cuDeviceGetAttribute(&most, attribute, device) == CUDA_SUCCESS && value <= (uint64_t)most;
}

static int is_aligned(uint64_t value, CUdevice_attribute attribute, CUdevice device)
{
    int unit = 1;
    return impl_cuDeviceGetAttribute(&unit, attribute, device) == CUDA_SUCCESS && value % (uint64_t)unit == 0;
}

static int is_address(CUdeviceptr address, CUdevice device)
{
    struct allocation found;
    return is_aligned(address, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, device) && window_find(address, &found) == 0;
}

static CUresult check_linear(const CUDA_RESOURCE_DESC *resource, CUdevice device)
{
    struct element element;
    size_t bytes = resource->res.linear.sizeInBytes;
    int is_valid = array_element(resource->res.linear.format, resource->res.linear.numChannels, &element) == 0 &&
                   is_address(resource->res.linear.devPtr, device) && bytes >= element.bytes &&
                   is_within(bytes / element.bytes, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, device);
    return is_valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_pitched(const CUDA_RESOURCE_DESC *resource, CUdevice device)
{
    struct element element;
    size_t width = resource->res.pitch2D.width, height = resource->res.pitch2D.height;
    size_t pitch = resource->res.pitch2D.pitchInBytes;
    int is_valid = array_element(resource->res.pitch2D.format, resource->res.pitch2D.numChannels, &element) == 0 &&
                   is_address(resource->res.pitch2D.devPtr, device) && width && height &&
                   is_within(width, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH, device) &&
                   is_within(height, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT, device) &&
                   is_within(pitch, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH, device) &&
                   is_aligned(pitch, CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, device) &&
                   pitch >= width * element.bytes;
    return is_valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult texture_check_resource(const CUDA_RESOURCE_DESC *resource, CUdevice device)
{
    if (resource->flags)
        return CUDA_ERROR_INVALID_VALUE;
    switch ((int)resource->resType) {
    case CU_RESOURCE_TYPE_ARRAY:
        return array_of(resource->res.array.hArray) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        return handles_has(HANDLE_MIPMAP, resource->res.mipmap.hMipmappedArray) ? CUDA_SUCCESS
                                                                                 : CUDA_ERROR_INVALID_VALUE;
    case CU_RESOURCE_TYPE_LINEAR:
        return check_linear(resource, device);
    case CU_RESOURCE_TYPE_PITCH2D:
        return check_pitched(resource, device);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static int is_array(const CUDA_RESOURCE_DESC *resource)
{
    return resource->resType == CU_RESOURCE_TYPE_ARRAY || resource->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
}

static CUresult check_texture(const CUDA_RESOURCE_DESC *resource, const CUDA_TEXTURE_DESC *texture)
{
    const unsigned known = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_SRGB |
                           CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION | CU_TRSF_SEAMLESS_CUBEMAP;
    int is_mipmapped = resource->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    if (texture->flags & ~known || (is_mipmapped && !(texture->flags & CU_TRSF_NORMALIZED_COORDINATES)) ||
        (unsigned)texture->filterMode > CU_TR_FILTER_MODE_LINEAR)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < 3; i++)
        if ((unsigned)texture->addressMode[i] > CU_TR_ADDRESS_MODE_BORDER)
            return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static struct object *add_object(enum handle_kind kind, struct context *context, const CUDA_RESOURCE_DESC *resource)
{
    struct object *object = calloc(1, sizeof *object);
    if (object == NULL || handles_add(kind, object) != 0) {
        free(object);
        return NULL;
    }
    object->kind = kind;
    object->context = context;
    object->resource = *resource;
    pthread_mutex_lock(&objects.mutex);
    object->next = objects.all;
    object->link = &objects.all;
    if (object->next)
        object->next->link = &object->next;
    objects.all = object;
    pthread_mutex_unlock(&objects.mutex);
    return object;
}

CUresult impl_cuTexObjectCreate(CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc,
                                const CUDA_TEXTURE_DESC *pTexDesc, const CUDA_RESOURCE_VIEW_DESC *pResViewDesc)
{
    struct context *context;
    CUresult result = context_current(&context);
    if (result || pTexObject == NULL || pResDesc == NULL || pTexDesc == NULL)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    result = texture_check_resource(pResDesc, context->device);
    result = result ? result : check_texture(pResDesc, pTexDesc);
    if (result || (pResViewDesc && !is_array(pResDesc)))
        return CUDA_ERROR_INVALID_VALUE;
    struct object *object = add_object(HANDLE_TEXTURE, context, pResDesc);
    if (object == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    object->texture = *pTexDesc;
    object->has_view = pResViewDesc != NULL;
    if (pResViewDesc)
        object->view = *pResViewDesc;
    *pTexObject = (CUtexObject)(uintptr_t)object;
    return CUDA_SUCCESS;
}

CUresult impl_cuSurfObjectCreate(CUsurfObject *pSurfObject, const CUDA_RESOURCE_DESC *pResDesc)
{
    struct context *context;
    CUresult result = context_current(&context);
    if (result || pSurfObject == NULL || pResDesc == NULL)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    if (pResDesc->resType != CU_RESOURCE_TYPE_ARRAY || texture_check_resource(pResDesc, context->device) ||
        !(array_of(pResDesc->res.array.hArray)->descriptor.Flags & CUDA_ARRAY3D_SURFACE_LDST))
        return CUDA_ERROR_INVALID_VALUE;
    struct object *object = add_object(HANDLE_SURFACE, context, pResDesc);
    if (object == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pSurfObject = (CUsurfObject)(uintptr_t)object;
    return CUDA_SUCCESS;
}

/* Under the mutex; its handle is gone. */
static void unlink_and_free(struct object *object)
{
    *object->link = object->next;
    if (object->next)
        object->next->link = object->link;
    free(object);
}

static CUresult destroy(enum handle_kind kind, unsigned long long handle)
{
    struct object *object = (struct object *)(uintptr_t)handle;
    struct context *context;
    CUresult result = context_current(&context);
    if (result || !handles_remove(kind, object))
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&objects.mutex);
    unlink_and_free(object);
    pthread_mutex_unlock(&objects.mutex);
    return CUDA_SUCCESS;
}

CUresult impl_cuTexObjectDestroy(CUtexObject texObject)
{
    return destroy(HANDLE_TEXTURE, texObject);
}

CUresult impl_cuSurfObjectDestroy(CUsurfObject surfObject)
{
    return destroy(HANDLE_SURFACE, surfObject);
}

/* NULL for a stale handle, or when there is nowhere to write. */
static struct object *object_of(enum handle_kind kind, unsigned long long handle, const void *out)
{
    return out && handles_has(kind, (void *)(uintptr_t)handle) ? (struct object *)(uintptr_t)handle : NULL;
}

CUresult impl_cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUtexObject texObject)
{
    struct object *object = object_of(HANDLE_TEXTURE, texObject, pResDesc);
    if (object)
        *pResDesc = object->resource;
    return object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *pTexDesc, CUtexObject texObject)
{
    struct object *object = object_of(HANDLE_TEXTURE, texObject, pTexDesc);
    if (object)
        *pTexDesc = object->texture;
    return object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *pResViewDesc, CUtexObject texObject)
{
    struct object *object = object_of(HANDLE_TEXTURE, texObject, pResViewDesc);
    if (object == NULL || !object->has_view)
        return CUDA_ERROR_INVALID_VALUE;
    *pResViewDesc = object->view;
    return CUDA_SUCCESS;
}

CUresult impl_cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUsurfObject surfObject)
{
    struct object *object = object_of(HANDLE_SURFACE, surfObject, pResDesc);
    if (object)
        *pResDesc = object->resource;
    return object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void textures_close_all(struct context *context)
{
    pthread_mutex_lock(&objects.mutex);
    for (struct object *object = objects.all, *next; object; object = next) {
        next = object->next;
        if (object->context == context && handles_remove(object->kind, object))
            unlink_and_free(object);
    }
    pthread_mutex_unlock(&objects.mutex);
}

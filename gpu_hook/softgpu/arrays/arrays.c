/* The life of arrays: the shapes that exist, their limits, and the memory behind them. */
#include "arrays/arrays.h"

#include <stdlib.h>

#include "driver/driver.h"
#include "driver/handles.h"
#include "implemented.h"
#include "pools/pools.h"
#include "queue/streams.h"
#include "memory/window.h"

/* A tile of an array: 64 bytes by 8 rows; an array takes whole pages of 64 KiB. */
#define TILE_BYTES 64ull
#define TILE_ROWS 8ull
#define PAGE_BYTES 65536ull

static struct {
    pthread_mutex_t mutex;
    struct storage *all;
} arrays = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

#define IS_LAYERED(flags) (((flags) & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0)

struct limits {
    int width, height, depth; /* the attributes that bound them; 0: the extent must be 0 */
};

#define LIMIT(name) CU_DEVICE_ATTRIBUTE_MAXIMUM_##name

static struct limits limits_of(const CUDA_ARRAY3D_DESCRIPTOR *array, int is_mipmapped)
{
    if (array->Flags & CUDA_ARRAY3D_CUBEMAP && array->Flags & CUDA_ARRAY3D_LAYERED)
        return (struct limits){LIMIT(TEXTURECUBEMAP_LAYERED_WIDTH), LIMIT(TEXTURECUBEMAP_LAYERED_WIDTH),
                               LIMIT(TEXTURECUBEMAP_LAYERED_LAYERS)};
    if (array->Flags & CUDA_ARRAY3D_CUBEMAP)
        return (struct limits){LIMIT(TEXTURECUBEMAP_WIDTH), LIMIT(TEXTURECUBEMAP_WIDTH),
                               LIMIT(TEXTURECUBEMAP_LAYERED_LAYERS)};
    if (array->Flags & CUDA_ARRAY3D_LAYERED && array->Height)
        return (struct limits){LIMIT(TEXTURE2D_LAYERED_WIDTH), LIMIT(TEXTURE2D_LAYERED_HEIGHT),
                               LIMIT(TEXTURE2D_LAYERED_LAYERS)};
    if (array->Flags & CUDA_ARRAY3D_LAYERED)
        return (struct limits){LIMIT(TEXTURE1D_LAYERED_WIDTH), 0, LIMIT(TEXTURE1D_LAYERED_LAYERS)};
    if (array->Depth)
        return (struct limits){LIMIT(TEXTURE3D_WIDTH), LIMIT(TEXTURE3D_HEIGHT), LIMIT(TEXTURE3D_DEPTH)};
    if (array->Flags & CUDA_ARRAY3D_TEXTURE_GATHER)
        return (struct limits){LIMIT(TEXTURE2D_GATHER_WIDTH), LIMIT(TEXTURE2D_GATHER_HEIGHT), 0};
    if (array->Height && is_mipmapped)
        return (struct limits){LIMIT(TEXTURE2D_MIPMAPPED_WIDTH), LIMIT(TEXTURE2D_MIPMAPPED_HEIGHT), 0};
    if (array->Height)
        return (struct limits){LIMIT(TEXTURE2D_WIDTH), LIMIT(TEXTURE2D_HEIGHT), 0};
    if (array->Flags & CUDA_ARRAY3D_SURFACE_LDST)
        return (struct limits){LIMIT(SURFACE1D_WIDTH), 0, 0};
    return (struct limits){is_mipmapped ? LIMIT(TEXTURE1D_MIPMAPPED_WIDTH) : LIMIT(TEXTURE1D_WIDTH), 0, 0};
}

/* An extent lies from 1 to its attribute's value; without an attribute it is 0. */
static int is_within(uint64_t extent, int attribute, CUdevice device)
{
    int most = 0;
    if (attribute)
        impl_cuDeviceGetAttribute(&most, (CUdevice_attribute)attribute, device);
    return attribute ? extent >= 1 && extent <= (uint64_t)most : extent == 0;
}

static CUresult check_descriptor(const CUDA_ARRAY3D_DESCRIPTOR *array, int is_mipmapped, CUdevice device)
{
    const unsigned known = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP |
                           CUDA_ARRAY3D_TEXTURE_GATHER | CUDA_ARRAY3D_DEPTH_TEXTURE | CUDA_ARRAY3D_COLOR_ATTACHMENT |
                           CUDA_ARRAY3D_DEFERRED_MAPPING;
    const unsigned absent = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;
    struct limits limits = limits_of(array, is_mipmapped);
    if (array->Flags & ~(known | absent) || !is_within(array->Width, limits.width, device) ||
        !is_within(array->Height, limits.height, device) || !is_within(array->Depth, limits.depth, device))
        return CUDA_ERROR_INVALID_VALUE;
    if (array->Flags & CUDA_ARRAY3D_CUBEMAP &&
        (array->Width != array->Height || array->Depth % 6 ||
         (array->Depth != 6 && !(array->Flags & CUDA_ARRAY3D_LAYERED))))
        return CUDA_ERROR_INVALID_VALUE;
    if (array->Flags & CUDA_ARRAY3D_TEXTURE_GATHER && (array->Height == 0 || array->Depth))
        return CUDA_ERROR_INVALID_VALUE;
    return array->Flags & absent ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

static uint64_t shrink(uint64_t extent, unsigned level)
{
    uint64_t smaller = extent >> level;
    return extent && smaller == 0 ? 1 : smaller;
}

/* Lays a level out behind the levels before it. */
static void lay_out(struct array *level, const CUDA_ARRAY3D_DESCRIPTOR *whole, struct element element, unsigned index,
                    uint64_t *bytes)
{
    level->descriptor = *whole;
    level->descriptor.Width = shrink(whole->Width, index);
    level->descriptor.Height = shrink(whole->Height, index);
    if (!IS_LAYERED(whole->Flags))
        level->descriptor.Depth = shrink(whole->Depth, index);
    level->element = element;
    level->row_bytes = (level->descriptor.Width + element.edge - 1) / element.edge * element.bytes;
    level->rows = level->descriptor.Height ? (level->descriptor.Height + element.edge - 1) / element.edge : 1;
    level->slices = level->descriptor.Depth ? level->descriptor.Depth : 1;
    level->pitch = round_up(level->row_bytes, TILE_BYTES);
    level->padded_rows = level->rows == 1 ? 1 : round_up(level->rows, TILE_ROWS);
    level->offset = *bytes;
    *bytes += level->pitch * level->padded_rows * level->slices;
}

static void free_storage(struct storage *storage)
{
    for (unsigned i = 0; i < storage->level_count; i++)
        handles_remove(HANDLE_ARRAY, &storage->levels[i]);
    handles_remove(HANDLE_MIPMAP, storage);
    free(storage);
}

static CUresult take_memory(struct storage *storage)
{
    unsigned physical = storage->context->physical;
    CUresult result = window_allocate(storage->context, storage->bytes, &storage->address);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && pools_make_room(physical))
        result = window_allocate(storage->context, storage->bytes, &storage->address);
    return result;
}

static int add_handles(struct storage *storage)
{
    for (unsigned i = 0; i < storage->level_count; i++)
        if (handles_add(HANDLE_ARRAY, &storage->levels[i]) != 0)
            return -1;
    return storage->is_mipmapped ? handles_add(HANDLE_MIPMAP, storage) : 0;
}

CUresult storage_open(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned level_count, int is_mipmapped,
                      struct storage **made)
{
    struct context *context;
    struct element element;
    CUresult result = context_current(&context);
    result = result ? result : array_element(descriptor->Format, descriptor->NumChannels, &element);
    result = result ? result : check_descriptor(descriptor, is_mipmapped, context->device);
    if (result)
        return result;
    struct storage *storage = calloc(1, sizeof *storage + level_count * sizeof *storage->levels);
    if (storage == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    storage->context = context;
    storage->is_mipmapped = is_mipmapped;
    storage->level_count = level_count;
    for (unsigned i = 0; i < level_count; i++) {
        storage->levels[i].storage = storage;
        lay_out(&storage->levels[i], descriptor, element, i, &storage->bytes);
    }
    storage->bytes = window_round(round_up(storage->bytes, PAGE_BYTES));
    result = descriptor->Flags & CUDA_ARRAY3D_DEFERRED_MAPPING ? CUDA_SUCCESS : take_memory(storage);
    if (result == CUDA_SUCCESS && add_handles(storage) != 0) {
        window_free(storage->address);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result) {
        free_storage(storage);
        return result;
    }
    pthread_mutex_lock(&arrays.mutex);
    storage->next = arrays.all;
    storage->link = &arrays.all;
    if (storage->next)
        storage->next->link = &storage->next;
    arrays.all = storage;
    pthread_mutex_unlock(&arrays.mutex);
    *made = storage;
    return CUDA_SUCCESS;
}

void storage_close(struct storage *storage)
{
    streams_drain(storage->context);
    pthread_mutex_lock(&arrays.mutex);
    *storage->link = storage->next;
    if (storage->next)
        storage->next->link = storage->link;
    pthread_mutex_unlock(&arrays.mutex);
    if (storage->address)
        window_free(storage->address);
    free_storage(storage);
}

void arrays_close_all(struct context *context)
{
    for (;;) {
        pthread_mutex_lock(&arrays.mutex);
        struct storage *storage = arrays.all;
        while (storage && storage->context != context)
            storage = storage->next;
        pthread_mutex_unlock(&arrays.mutex);
        if (storage == NULL)
            return;
        storage_close(storage);
    }
}

struct array *array_of(CUarray handle)
{
    return handles_has(HANDLE_ARRAY, handle) ? (struct array *)handle : NULL;
}

static int fits(uint64_t start, uint64_t extent, uint64_t bound)
{
    return start <= bound && extent <= bound - start;
}

CUresult array_place(CUarray handle, uint64_t x_bytes, uint64_t y, uint64_t z, const struct shape *shape,
                     struct place *place)
{
    struct array *array = array_of(handle);
    if (array == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (array->storage->address == 0 || x_bytes % array->element.bytes ||
        !fits(x_bytes, shape->width, array->row_bytes) || !fits(y, shape->height, array->rows) ||
        !fits(z, shape->depth, array->slices))
        return CUDA_ERROR_INVALID_VALUE;
    place->pitch = array->pitch;
    place->height = array->padded_rows;
    place->address =
        array->storage->address + array->offset + (z * array->padded_rows + y) * array->pitch + x_bytes;
    return CUDA_SUCCESS;
}

/* The one copier and the one filler. Both check addresses twice: at the call (INVALID_VALUE), and
 * when the turn of the work comes (ILLEGAL_ADDRESS, which the context does not survive). */
#include "copies/copies.h"

#include <string.h>

#include "queue/captures.h"
#include "driver/driver.h"
#include "device/engine.h"
#include "memory/host_memory.h"
#include "managed/managed.h"
#include "queue/streams.h"
#include "memory/accesses.h"
#include "memory/window.h"

struct copy {
    struct place to, from;
    struct shape shape;
    uint32_t value; /* of a fill */
    unsigned element_bytes;
    int is_fill;
    /* at the call: it may be freed before its turn, as in a graph */
    int to_is_managed, from_is_managed;
};

int place_reach(uint64_t address, uint64_t bytes, unsigned device, enum rights rights, void **view)
{
    if (window_is_device(address)) {
        *view = window_bytes(address);
        return window_backs(address, bytes, device, rights) ? 0 : -1;
    }
    *view = managed_view(address);
    struct managed_cost cost = {0}; /* the copy itself is what takes time */
    managed_use(address, bytes, device, rights == RIGHTS_WRITE, &cost);
    return 0;
}

/* From the first byte to the last that the shape touches; 0 when that is beyond all addresses. */
static uint64_t extent(const struct place *place, const struct shape *shape)
{
    uint64_t rows, bytes, end;
    int is_beyond = __builtin_mul_overflow(shape->depth - 1, place->height, &rows) ||
                    __builtin_add_overflow(rows, shape->height - 1, &rows) ||
                    __builtin_mul_overflow(rows, place->pitch, &bytes) ||
                    __builtin_add_overflow(bytes, shape->width, &bytes) ||
                    __builtin_add_overflow(place->address, bytes, &end);
    return is_beyond ? 0 : bytes;
}

static void fill_row(void *row, uint32_t value, unsigned element_bytes, uint64_t bytes)
{
    if (element_bytes == 1) {
        memset(row, (int)(uint8_t)value, bytes);
    } else if (element_bytes == 2) {
        for (uint64_t i = 0; i < bytes / 2; i++)
            ((uint16_t *)row)[i] = (uint16_t)value;
    } else {
        for (uint64_t i = 0; i < bytes / 4; i++)
            ((uint32_t *)row)[i] = value;
    }
}

static void move_rows(const struct copy *copy, char *to, const char *from)
{
    struct shape shape = copy->shape;
    if (!copy->is_fill && shape.height * shape.depth > 1 && copy->to.pitch == shape.width &&
        copy->from.pitch == shape.width && (shape.depth == 1 || (copy->to.height == shape.height &&
                                                                 copy->from.height == shape.height)))
        shape = (struct shape){shape.width * shape.height * shape.depth, 1, 1};
    for (uint64_t z = 0; z < shape.depth; z++)
        for (uint64_t y = 0; y < shape.height; y++) {
            char *row = to + (z * copy->to.height + y) * copy->to.pitch;
            if (copy->is_fill)
                fill_row(row, copy->value, copy->element_bytes, shape.width);
            else
                memmove(row, from + (z * copy->from.height + y) * copy->from.pitch, shape.width);
        }
}

static int has_lost_memory(const struct copy *copy)
{
    return (copy->to_is_managed && !managed_holds(copy->to.address, extent(&copy->to, &copy->shape))) ||
           (copy->from_is_managed && !managed_holds(copy->from.address, extent(&copy->from, &copy->shape)));
}

/* With a use of memory begun. */
static CUresult move_now(const struct copy *copy, unsigned device)
{
    void *to, *from = NULL;
    if (has_lost_memory(copy))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (place_reach(copy->to.address, extent(&copy->to, &copy->shape), device, RIGHTS_WRITE, &to) != 0)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (!copy->is_fill &&
        place_reach(copy->from.address, extent(&copy->from, &copy->shape), device, RIGHTS_READ, &from) != 0)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    move_rows(copy, to, from);
    return CUDA_SUCCESS;
}

static CUresult run_copy(struct work_item *work, uint64_t *clock)
{
    const struct copy *copy = (const struct copy *)work->payload;
    unsigned device = work->stream->context->physical;
    accesses_begin();
    CUresult result = move_now(copy, device);
    accesses_end();
    int to_device = window_is_device(copy->to.address);
    int from_device = !copy->is_fill && window_is_device(copy->from.address);
    if (result == CUDA_SUCCESS && !copy->is_fill && to_device != from_device)
        *clock = engine_copy(&driver.attachment, device, to_device ? COPY_TO_DEVICE : COPY_TO_HOST, *clock,
                             copy->shape.width * copy->shape.height * copy->shape.depth);
    return result;
}

static int is_pageable(uint64_t address)
{
    struct host_range found;
    return !window_is_device(address) && host_memory_find(address, &found) != 0 && !managed_holds(address, 1);
}

static int check_place(const struct place *place, const struct shape *shape, unsigned device, enum rights rights)
{
    uint64_t bytes = extent(place, shape);
    if (place->address == 0 || bytes == 0 || (shape->height > 1 && place->pitch < shape->width) ||
        (shape->depth > 1 && place->height < shape->height))
        return -1;
    if (window_is_device(place->address))
        return window_allows(place->address, bytes, device, rights) ? 0 : -1;
    return !managed_holds(place->address, 1) || managed_holds(place->address, bytes) ? 0 : -1;
}

static CUresult prepare(const struct copy *copy, unsigned device, struct work_item **work)
{
    *work = NULL;
    if (copy->shape.width == 0 || copy->shape.height == 0 || copy->shape.depth == 0)
        return CUDA_SUCCESS;
    if (check_place(&copy->to, &copy->shape, device, RIGHTS_WRITE) != 0 ||
        (!copy->is_fill && check_place(&copy->from, &copy->shape, device, RIGHTS_READ) != 0))
        return CUDA_ERROR_INVALID_VALUE;
    *work = work_new(run_copy, sizeof *copy);
    if (*work == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct copy *own = (struct copy *)(*work)->payload;
    *own = *copy;
    own->to_is_managed = managed_holds(copy->to.address, 1);
    own->from_is_managed = !copy->is_fill && managed_holds(copy->from.address, 1);
    return CUDA_SUCCESS;
}

static CUresult submit(const struct copy *copy, CUstream handle, int is_async)
{
    struct stream *stream;
    struct context *context;
    struct work_item *work;
    CUresult result = stream_resolve(handle, &stream, &context);
    if (result)
        return result;
    if (capture_takes(stream, &result)) {
        if (!is_async)
            return captures->refuse(stream);
        return copy->is_fill ? captures->fill(stream, copy->to, copy->value, copy->element_bytes, copy->shape)
                             : captures->copy(stream, copy->to, copy->from, copy->shape);
    }
    if (result == CUDA_SUCCESS && !is_async && capture_is_on())
        result = capture_check_unsafe();
    result = result ? result : stream_await_room(stream);
    result = result ? result : prepare(copy, context->physical, &work);
    if (result || work == NULL)
        return result;
    if (is_pageable(copy->to.address) || (!copy->is_fill && is_pageable(copy->from.address)))
        is_async = 0;
    return is_async ? stream_enqueue(stream, work) : stream_run(stream, work);
}

CUresult copy_check(struct place to, struct place from, struct shape shape, unsigned device)
{
    if (shape.width == 0 || shape.height == 0 || shape.depth == 0)
        return CUDA_SUCCESS;
    int is_possible = check_place(&to, &shape, device, RIGHTS_WRITE) == 0 &&
                      check_place(&from, &shape, device, RIGHTS_READ) == 0;
    return is_possible ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult copy_work(struct place to, struct place from, struct shape shape, unsigned device, struct work_item **work)
{
    struct copy copy = {.to = to, .from = from, .shape = shape};
    return prepare(&copy, device, work);
}

CUresult copy_shape(struct place to, struct place from, struct shape shape, CUstream stream, int is_async)
{
    struct copy copy = {.to = to, .from = from, .shape = shape};
    return submit(&copy, stream, is_async);
}

/* -1: the fill is malformed; else its bytes are in fill->shape. */
static int describe_fill(struct place to, uint32_t value, unsigned element_bytes, struct shape shape,
                         struct copy *fill)
{
    *fill = (struct copy){.to = to, .shape = shape, .value = value, .element_bytes = element_bytes, .is_fill = 1};
    return to.address % element_bytes || (shape.height > 1 && to.pitch % element_bytes) ||
                   !(window_is_device(to.address) || managed_holds(to.address, 1)) ||
                   __builtin_mul_overflow(shape.width, element_bytes, &fill->shape.width)
               ? -1
               : 0;
}

CUresult fill_work(struct place to, uint32_t value, unsigned element_bytes, struct shape shape, unsigned device,
                   struct work_item **work)
{
    struct copy fill;
    if (describe_fill(to, value, element_bytes, shape, &fill) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return prepare(&fill, device, work);
}

CUresult fill_shape(struct place to, uint32_t value, unsigned element_bytes, struct shape shape, CUstream stream,
                    int is_async)
{
    struct copy fill;
    if (describe_fill(to, value, element_bytes, shape, &fill) == 0)
        return submit(&fill, stream, is_async);
    CUresult result = stream_check(stream);
    return result || shape.width == 0 || shape.height == 0 ? result : CUDA_ERROR_INVALID_VALUE;
}

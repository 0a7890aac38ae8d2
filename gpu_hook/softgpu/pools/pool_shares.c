/* Pools between processes. A pool that may be exported has its memory in one file: a descriptor of
 * it is the pool's handle, and a place in it is an allocation's. Importers are charged nothing, and
 * map the places that they are given. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "device/slots.h"
#include "driver/driver.h"
#include "driver/handles.h"
#include "implemented.h"
#include "pools/pools_state.h"

#define FILE_BYTES (1ull << 46)

/* The facts about a pool that an importer needs. */
struct note {
    uint64_t magic, machine;
    uint32_t device;
};

#define NOTE_MAGIC 0x4c4f4f50515541ull /* "AUQPOOL" */

/* The facts about an allocation that an importer needs. */
struct pointer_data {
    uint64_t identity; /* of the pool's file */
    uint64_t offset, bytes;
};

_Static_assert(sizeof(struct note) <= BACKING_NOTE_BYTES, "the note fits behind the memory");
_Static_assert(sizeof(struct pointer_data) <= sizeof(CUmemPoolPtrExportData), "the data hold it");

int pool_share(struct pool *pool)
{
    unsigned char bytes[BACKING_NOTE_BYTES] = {0};
    struct note note = {NOTE_MAGIC, driver_machine_identity(), slots_place(&driver.attachment, pool->physical)};
    memcpy(bytes, &note, sizeof note);
    if (ranges_insert(&pool->pieces, MACHINE_LARGE_UNIT, FILE_BYTES - MACHINE_LARGE_UNIT, NULL) != 0)
        return -1;
    if (backing_open_shared(FILE_BYTES, bytes, &pool->backing) != 0) {
        ranges_remove(&pool->pieces, MACHINE_LARGE_UNIT);
        return -1;
    }
    pool->is_shareable = 1;
    return 0;
}

int pool_share_chunk(struct pool *pool, struct chunk *chunk)
{
    if (!pool->is_shareable)
        return 0;
    chunk->piece = ranges_take(&pool->pieces, chunk->bytes, chunk);
    struct backing piece = {.descriptor = pool->backing.descriptor, .offset = chunk->piece, .bytes = chunk->bytes};
    return chunk->piece && backing_map(&piece, window_bytes(chunk->start), chunk->bytes, PROT_READ | PROT_WRITE) == 0
               ? 0
               : -1;
}

void pool_unshare_chunk(struct pool *pool, struct chunk *chunk)
{
    uint64_t free_start, free_end;
    if (!chunk->piece)
        return;
    window_lock();
    window_clear(chunk->start, chunk->bytes);
    window_unlock();
    fallocate(pool->backing.descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)chunk->piece,
              (off_t)chunk->bytes);
    ranges_give_back(&pool->pieces, chunk->piece, &free_start, &free_end);
}

void pool_close_share(struct pool *pool)
{
    if (pool->is_shareable)
        ranges_remove(&pool->pieces, MACHINE_LARGE_UNIT);
    if (pool->is_shareable || pool->is_imported)
        backing_close(&pool->backing);
}

CUresult impl_cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool, CUmemAllocationHandleType handleType,
                                               unsigned long long flags)
{
    int descriptor = -1;
    if (handle_out == NULL || flags || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&pools.mutex);
    struct pool *own = (struct pool *)pool;
    int is_shareable = handles_has(HANDLE_POOL, own) && own->is_shareable;
    if (is_shareable)
        descriptor = backing_duplicate(&own->backing);
    pthread_mutex_unlock(&pools.mutex);
    if (!is_shareable)
        return CUDA_ERROR_INVALID_VALUE;
    if (descriptor < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *(int *)handle_out = descriptor;
    return CUDA_SUCCESS;
}

/* The descriptor stays the caller's. */
CUresult impl_cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
                                                 CUmemAllocationHandleType handleType, unsigned long long flags)
{
    unsigned char bytes[BACKING_NOTE_BYTES];
    struct backing backing;
    struct note note;
    if (pool_out == NULL || flags || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        backing_adopt((int)(uintptr_t)handle, bytes, &backing) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&note, bytes, sizeof note);
    int device = driver_find_place(note.device);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&pools.mutex);
    if (note.magic == NOTE_MAGIC && note.machine == driver_machine_identity() && device >= 0) {
        struct pool *pool = pool_new(device, 0);
        result = pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        if (pool) {
            pool->is_imported = 1;
            pool->backing = backing;
            *pool_out = (CUmemoryPool)pool;
        }
    }
    pthread_mutex_unlock(&pools.mutex);
    if (result)
        backing_close(&backing);
    return result;
}

CUresult impl_cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (shareData_out == NULL)
        return result;
    pthread_mutex_lock(&pools.mutex);
    const struct part *part = pool_part(ptr);
    if (part && part->allocation.pool->is_shareable) {
        struct pointer_data data = {part->allocation.pool->backing.identity,
                                    part->chunk->piece + (part->allocation.start - part->chunk->start),
                                    part->allocation.bytes};
        memset(shareData_out, 0, sizeof *shareData_out);
        memcpy(shareData_out, &data, sizeof data);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&pools.mutex);
    return result;
}

/* Under the mutex: maps the units of 2 MiB that hold the allocation. */
static CUresult map_pointer(struct pool *pool, const struct pointer_data *data, uint64_t *address)
{
    const uint64_t unit = MACHINE_LARGE_UNIT;
    if (data->identity != pool->backing.identity || data->bytes == 0 || data->offset >= FILE_BYTES ||
        data->bytes > FILE_BYTES - data->offset)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t first = data->offset & ~(unit - 1), end = (data->offset + data->bytes + unit - 1) & ~(unit - 1);
    struct backing place = pool->backing;
    place.offset = first;
    place.bytes = end - first;
    struct allocation imported = {.bytes = data->bytes, .device = pool->physical, .pool = pool};
    if (window_import(&imported, &place, data->offset - first, address) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pool->imports++;
    return CUDA_SUCCESS;
}

CUresult impl_cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData *shareData)
{
    struct pointer_data data;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    uint64_t address;
    if (ptr_out == NULL || shareData == NULL)
        return result;
    memcpy(&data, shareData, sizeof data);
    pthread_mutex_lock(&pools.mutex);
    if (handles_has(HANDLE_POOL, pool) && ((struct pool *)pool)->is_imported)
        result = map_pointer((struct pool *)pool, &data, &address);
    pthread_mutex_unlock(&pools.mutex);
    if (result == CUDA_SUCCESS)
        *ptr_out = address;
    return result;
}

int pool_give_import(uint64_t address)
{
    struct allocation found;
    if (window_find(address, &found) != 0 || found.kind != ALLOCATION_IMPORTED || !found.pool ||
        found.start != address || window_give_import(address) != 0)
        return -1;
    found.pool->imports--;
    pool_end_if_empty(found.pool);
    return 0;
}

void pools_forget(void)
{
    for (struct pool *pool = pools.all; pool; pool = pool->next)
        if (pool->is_shareable || pool->is_imported)
            backing_close(&pool->backing);
}

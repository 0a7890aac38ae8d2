/* Entry points of linear, pitched and managed memory: each charges, calls, and records or refunds.
 * Managed memory is charged in full, wherever it lies: the quota bounds it when all of it comes to
 * the device. */
#include "charging/charge.h"
#include "swappable/swappable.h"
#include "contexts/green_owners.h"
#include "base/log.h"
#include "swappable/managed_mode.h"
#include "ordered/ordered_pools.h"
#include "charging/retry.h"
#include "accounting/nccl.h"
#include "accounting/swappability.h"

/* A pitch is a multiple of this on every device so far; the true one is known after the call. */
#define PITCH_GRAIN 512u
#define MANAGED_GRAIN 65536u
#define MOST_PITCH 0x7FFFFFFFu /* CU_DEVICE_ATTRIBUTE_MAX_PITCH of every device so far */

CUresult cuMemAlloc(CUdeviceptr_v1 *pointer, unsigned int bytes)
{
    struct charge charge;
    CUresult result = charge_begin(&charge, CHARGE_CURRENT, quota_rounded(bytes), !pointer);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver()->cuMemAlloc(pointer, bytes);
    if (charge_end(&charge, result, result == CUDA_SUCCESS ? *pointer : 0, ALLOCATION_LINEAR))
        return result;
    driver()->cuMemFree(*pointer);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Make room on a device that is full of memory that pools hold unused: the driver, asked for plain
 * memory, makes the pools release it. */
static CUresult make_room(size_t bytes)
{
    CUdeviceptr plain;
    CUresult result = driver()->cuMemAlloc_v2(&plain, bytes);
    return result == CUDA_SUCCESS ? driver()->cuMemFree_v2(plain) : result;
}

/* Between charge_begin and charge_end. False: the allocation is to be plain. */
static bool allocate_swappable(struct charge *charge, CUdeviceptr *pointer, size_t bytes,
                               CUresult *result)
{
    CUcontext context = NULL;
    if (!charge->acts || charge->is_late || !swappability_wants(charge->device, bytes))
        return false;
    *result = swappable_ask_context();
    if (*result != CUDA_SUCCESS)
        return true;
    if (!charge_change(charge, swappability_rounded(charge->device, bytes))) {
        *result = charge_refusal();
        return true;
    }
    swappable_sweep();
    driver()->cuCtxGetCurrent(&context);
    struct retry retry = RETRY_NONE;
    do {
        *result = swappable_allocate(charge->device, green_owner(context), bytes, pointer);
        if (*result == CUDA_ERROR_OUT_OF_MEMORY && make_room(bytes) == CUDA_SUCCESS)
            *result = swappable_allocate(charge->device, green_owner(context), bytes, pointer);
    } while (retry_is_due(&retry, charge, *result, bytes));
    if (*result == CUDA_SUCCESS || *result == CUDA_ERROR_OUT_OF_MEMORY)
        return true;
    LOG("event=allocation_is_plain device=%d bytes=%zu code=%d", charge->device, bytes,
        (int)*result);
    return false;
}

/* Allocate in residency mode `managed`. */
static bool allocate_paged(struct charge *charge, CUdeviceptr *pointer, size_t bytes,
                           CUresult *result)
{
    CUcontext context = NULL;
    if (!charge->acts || charge->is_late || !managed_mode_wants(charge->device, bytes))
        return false;
    if (!charge_change(charge, managed_mode_rounded(bytes))) {
        *result = charge_refusal();
        return true;
    }
    driver()->cuCtxGetCurrent(&context);
    *result = managed_mode_allocate(charge->device, green_owner(context), bytes, pointer);
    return true;
}

static CUresult end_paged(struct charge *charge, const CUdeviceptr *pointer, CUresult result)
{
    if (charge_end(charge, result, result == CUDA_SUCCESS ? *pointer : 0, ALLOCATION_PAGED))
        return result;
    managed_mode_free(*pointer);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult end_swappable(struct charge *charge, const CUdeviceptr *pointer, CUresult result)
{
    if (charge_end(charge, result, result == CUDA_SUCCESS ? *pointer : 0, ALLOCATION_SWAPPABLE))
        return result;
    swappable_undo(*pointer);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    struct charge charge;
    CUresult result = charge_begin(&charge, CHARGE_CURRENT, quota_rounded(bytes), !pointer);
    if (result != CUDA_SUCCESS)
        return result;
    /* shared by legacy IPC, which swappable memory is not */
    if (charge.acts && swappability_wants(charge.device, bytes) &&
        nccl_calls(__builtin_return_address(0)))
        charge.pin_reasons = ALIQUOT_PIN_NCCL;
    else if (allocate_swappable(&charge, pointer, bytes, &result))
        return end_swappable(&charge, pointer, result);
    if (allocate_paged(&charge, pointer, bytes, &result))
        return end_paged(&charge, pointer, result);
    struct retry retry = RETRY_NONE;
    do
        result = driver()->cuMemAlloc_v2(pointer, bytes);
    while (retry_is_due(&retry, &charge, result, bytes));
    if (charge_end(&charge, result, result == CUDA_SUCCESS ? *pointer : 0, ALLOCATION_LINEAR))
        return result;
    driver()->cuMemFree_v2(*pointer);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Managed memory comes to the device in pages of 64 KiB at least. */
static uint64_t managed_bytes(uint64_t bytes)
{
    uint64_t rounded = quota_rounded(bytes);
    return rounded < UINT64_MAX - MANAGED_GRAIN
               ? (rounded + MANAGED_GRAIN - 1) / MANAGED_GRAIN * MANAGED_GRAIN
               : rounded;
}

CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags)
{
    struct charge charge;
    bool looks_wrong = !pointer || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST);
    CUresult result = charge_begin(&charge, CHARGE_CURRENT, managed_bytes(bytes), looks_wrong);
    if (result != CUDA_SUCCESS)
        return result;
    charge.pin_reasons = ALIQUOT_PIN_MANAGED;
    result = driver()->cuMemAllocManaged(pointer, bytes, flags);
    if (charge_end(&charge, result, result == CUDA_SUCCESS ? *pointer : 0, ALLOCATION_LINEAR))
        return result;
    driver()->cuMemFree_v2(*pointer);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static uint64_t guess_pitched_bytes(uint64_t width, uint64_t height)
{
    uint64_t bytes;
    if (width > UINT64_MAX - PITCH_GRAIN)
        return UINT64_MAX;
    uint64_t pitch = (width + PITCH_GRAIN - 1) / PITCH_GRAIN * PITCH_GRAIN;
    return __builtin_mul_overflow(pitch, height, &bytes) ? UINT64_MAX : quota_rounded(bytes);
}

static bool is_pitched_badly(const void *pointer, const void *pitch, uint64_t width,
                             unsigned int element_bytes)
{
    return !pointer || !pitch || width > MOST_PITCH ||
           (element_bytes != 4 && element_bytes != 8 && element_bytes != 16);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *pointer, unsigned int *pitch, unsigned int width,
                         unsigned int height, unsigned int element_bytes)
{
    struct charge charge;
    CUresult result = charge_begin(&charge, CHARGE_CURRENT, guess_pitched_bytes(width, height),
                                   is_pitched_badly(pointer, pitch, width, element_bytes));
    if (result != CUDA_SUCCESS)
        return result;
    result = driver()->cuMemAllocPitch(pointer, pitch, width, height, element_bytes);
    bool fits =
        result != CUDA_SUCCESS || charge_change(&charge, quota_rounded((uint64_t)*pitch * height));
    if (charge_end(&charge, fits ? result : CUDA_ERROR_OUT_OF_MEMORY,
                   result == CUDA_SUCCESS ? *pointer : 0, ALLOCATION_LINEAR) &&
        fits)
        return result;
    driver()->cuMemFree(*pointer);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Rows start at multiples of a number that the driver tells by example, once. 0: it does not. */
static size_t pitch_grain(void)
{
    static size_t grain; /* every thread writes the same */
    size_t found = __atomic_load_n(&grain, __ATOMIC_RELAXED);
    CUdeviceptr example;
    if (!found && driver()->cuMemAllocPitch_v2(&example, &found, 1, 1, 4) == CUDA_SUCCESS) {
        driver()->cuMemFree_v2(example);
        __atomic_store_n(&grain, found, __ATOMIC_RELAXED);
    }
    return found;
}

/* A pitch of ours and what the rows take with it. False: the allocation is to be plain. */
static bool plan_pitch(const struct charge *charge, size_t width, size_t height, size_t *pitch,
                       size_t *bytes)
{
    size_t wide, grain;
    bool may_be = charge->acts && !charge->is_late &&
                  (swappability_wants(charge->device, charge->bytes) ||
                   managed_mode_wants(charge->device, charge->bytes));
    if (!may_be || !(grain = pitch_grain()) || __builtin_add_overflow(width, grain - 1, &wide))
        return false;
    *pitch = wide / grain * grain;
    return !__builtin_mul_overflow(*pitch, height, bytes);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                            unsigned int element_bytes)
{
    struct charge charge;
    CUresult result = charge_begin(&charge, CHARGE_CURRENT, guess_pitched_bytes(width, height),
                                   is_pitched_badly(pointer, pitch, width, element_bytes));
    if (result != CUDA_SUCCESS)
        return result;
    size_t planned, bytes;
    if (plan_pitch(&charge, width, height, &planned, &bytes)) {
        bool is_swappable = allocate_swappable(&charge, pointer, bytes, &result);
        if (is_swappable || allocate_paged(&charge, pointer, bytes, &result)) {
            result = is_swappable ? end_swappable(&charge, pointer, result)
                                  : end_paged(&charge, pointer, result);
            if (result == CUDA_SUCCESS)
                *pitch = planned;
            return result;
        }
    }
    struct retry retry = RETRY_NONE;
    do
        result = driver()->cuMemAllocPitch_v2(pointer, pitch, width, height, element_bytes);
    while (retry_is_due(&retry, &charge, result, charge.bytes));
    bool fits =
        result != CUDA_SUCCESS || charge_change(&charge, quota_rounded((uint64_t)*pitch * height));
    if (charge_end(&charge, fits ? result : CUDA_ERROR_OUT_OF_MEMORY,
                   result == CUDA_SUCCESS ? *pointer : 0, ALLOCATION_LINEAR) &&
        fits)
        return result;
    driver()->cuMemFree_v2(*pointer);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemFree(CUdeviceptr_v1 pointer)
{
    struct release release;
    release_begin(&release, pointer, SPACE_POINTER);
    CUresult result = driver()->cuMemFree(pointer);
    release_end(&release, result);
    return result;
}

/* Refunds by itself, perhaps later. */
static CUresult free_swappable(struct release *release)
{
    CUresult result = swappable_free(&release->allocation);
    release->is_known = result != CUDA_SUCCESS;
    release_end(release, result);
    return result;
}

CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    struct release release;
    release_begin(&release, pointer, SPACE_POINTER);
    if (release.is_known && release.allocation.kind == ALLOCATION_SWAPPABLE)
        return free_swappable(&release);
    enum allocation_kind kind = release.is_known ? release.allocation.kind : ALLOCATION_NONE;
    CUresult result = kind == ALLOCATION_PAGED     ? managed_mode_free(pointer)
                      : kind == ALLOCATION_ORDERED ? ordered_free_now(&release.allocation)
                                                   : driver()->cuMemFree_v2(pointer);
    release_end(&release, result);
    return result;
}

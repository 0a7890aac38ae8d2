/* Entry points that report to a program how much memory there is: the program sees the quota,
 * not the device. */
#include "base/guard.h"
#include "accounting/devices.h"
#include "interpose/driver.h"
#include "agent_link/page.h"
#include "accounting/quota.h"
#include "accounting/pin_reasons.h"

#include <limits.h>

static uint64_t lesser(uint64_t left, uint64_t right)
{
    return left < right ? left : right;
}

static unsigned int saturate(uint64_t bytes)
{
    return bytes < UINT_MAX ? (unsigned int)bytes : UINT_MAX;
}

/* Bound the free memory by the device's free memory, since other processes may be on it. This
 * does not hold where memory is swapped: other kernels give borrowed room back for this one, and
 * this kernel's memory is its own, on the device or out. */
static uint64_t show_free(const struct quota_view *view, int device, uint64_t real_free,
                          uint64_t real_total)
{
    bool is_lent =
        __atomic_load_n(&page_agent()->residency_mode, __ATOMIC_RELAXED) != ALIQUOT_RESIDENCY_OFF;
    if (is_lent && view->total_bytes <= real_total)
        return view->free_bytes;
    uint64_t out = pin_reasons_out(device);
    return lesser(view->free_bytes, real_free > out ? real_free - out : 0);
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    size_t real_free = 0, real_total = 0;
    bool acts = guard_enter();
    if (!acts)
        return driver()->cuMemGetInfo_v2(free_bytes, total_bytes);
    CUresult result = driver()->cuMemGetInfo_v2(&real_free, &real_total);
    struct quota_view view;
    if (result == CUDA_SUCCESS) {
        int device = devices_current();
        if (!quota_view(device, &view))
            view = (struct quota_view){.total_bytes = real_total, .free_bytes = 0};
        if (free_bytes)
            *free_bytes = show_free(&view, device, real_free, real_total);
        if (total_bytes)
            *total_bytes = lesser(view.total_bytes, real_total);
    }
    guard_leave();
    return result;
}

CUresult cuMemGetInfo(unsigned int *free_bytes, unsigned int *total_bytes)
{
    size_t wide_free = 0, wide_total = 0;
    bool acts = guard_enter();
    if (!acts)
        return driver()->cuMemGetInfo(free_bytes, total_bytes);
    guard_leave();
    CUresult result = cuMemGetInfo_v2(&wide_free, &wide_total);
    if (result == CUDA_SUCCESS) {
        if (free_bytes)
            *free_bytes = saturate(wide_free);
        if (total_bytes)
            *total_bytes = saturate(wide_total);
    }
    return result;
}

static void limit_total(CUdevice device, uint64_t *bytes)
{
    struct quota_view view;
    if (!guard_enter())
        return;
    if (quota_view(device, &view))
        *bytes = lesser(view.total_bytes, *bytes);
    guard_leave();
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    CUresult result = driver()->cuDeviceTotalMem_v2(bytes, device);
    if (result == CUDA_SUCCESS) {
        uint64_t limited = *bytes;
        limit_total(device, &limited);
        *bytes = limited;
    }
    return result;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device)
{
    CUresult result = driver()->cuDeviceTotalMem(bytes, device);
    if (result == CUDA_SUCCESS) {
        uint64_t limited = *bytes;
        limit_total(device, &limited);
        *bytes = saturate(limited);
    }
    return result;
}

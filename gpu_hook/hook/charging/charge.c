#include "charging/charge.h"

#include "base/guard.h"
#include "accounting/devices.h"
#include "contexts/green_owners.h"
#include "gate/gate.h"
#include "base/log.h"
#include "agent_link/page.h"
#include "charging/pools.h"
#include "gate/residency.h"
#include "accounting/pin_reasons.h"
#include "accounting/swappability.h"

static bool charge_or_refuse(int device, uint64_t bytes)
{
    if (pools_charge(device, bytes))
        return true;
    quota_refuse(device, bytes);
    return false;
}

CUresult charge_refusal(void)
{
    size_t free_bytes, total_bytes;
    CUresult result = driver()->cuMemGetInfo_v2(&free_bytes, &total_bytes);
    bool has_none =
        result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return result == CUDA_SUCCESS || has_none ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

/* No bytes are charged, and the driver is not called. */
static CUresult abandon(struct charge *charge)
{
    charge->acts = false;
    guard_leave();
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult charge_begin(struct charge *charge, int device, uint64_t bytes, bool looks_wrong)
{
    *charge = (struct charge){.acts = device != CHARGE_NOTHING && guard_enter(),
                              .is_late = looks_wrong,
                              .device = device,
                              .bytes = bytes};
    if (!charge->acts)
        return CUDA_SUCCESS;
    if (!gate_is_open() && !gate_pass())
        return abandon(charge);
    if (device == CHARGE_CURRENT)
        charge->device = devices_current();
    /* Without a context, or for 0 bytes, the driver refuses; its own error is the right one. */
    if (charge->device < 0 || bytes == 0) {
        charge->acts = false;
        guard_leave();
        return CUDA_SUCCESS;
    }
    if (!looks_wrong && !charge_or_refuse(charge->device, bytes)) {
        abandon(charge);
        return charge_refusal();
    }
    charge->is_on_device = charge->device != QUOTA_HOST;
    if (!charge->is_on_device || residency_enter())
        return CUDA_SUCCESS;
    if (!looks_wrong)
        quota_refund(charge->device, bytes);
    return abandon(charge);
}

/* Called between begin and end. Leave residency for the moment: credit may have to wait until
 * this very process is moved. */
static bool charge_more(struct charge *charge, uint64_t bytes)
{
    if (!charge->is_on_device)
        return charge_or_refuse(charge->device, bytes);
    residency_leave();
    bool is_charged = charge_or_refuse(charge->device, bytes);
    charge->is_on_device = residency_enter();
    if (is_charged && !charge->is_on_device)
        quota_refund(charge->device, bytes);
    return is_charged && charge->is_on_device;
}

bool charge_change(struct charge *charge, uint64_t bytes)
{
    if (!charge->acts || bytes == charge->bytes)
        return true;
    if (!charge->is_late && bytes < charge->bytes)
        quota_refund(charge->device, charge->bytes - bytes);
    else if (!charge->is_late && !charge_more(charge, bytes - charge->bytes))
        return false;
    charge->bytes = bytes;
    return true;
}

/* Pools are charged by what they have reserved, not by their allocations. */
static void count_pinned(const struct allocation *allocation, int sign)
{
    if (allocation->device != QUOTA_HOST && allocation->kind != ALLOCATION_POOL)
        pin_reasons_change(allocation->device, allocation->pin_reasons,
                           sign * (int64_t)allocation->bytes);
}

void charge_refund(const struct allocation *allocation)
{
    count_pinned(allocation, -1);
    if (allocation->device != QUOTA_HOST)
        quota_count(allocation->device, -1);
    if (allocation->kind == ALLOCATION_POOL)
        pools_release(allocation->pool, allocation->bytes, 0);
    else
        quota_refund(allocation->device, allocation->bytes);
}

bool charge_record(const struct allocation *allocation)
{
    struct allocation replaced;
    if (!allocations_add(allocation, &replaced)) {
        LOG("event=no_memory_for_record key=%llx", (unsigned long long)allocation->key);
        return false;
    }
    count_pinned(allocation, 1);
    if (allocation->device != QUOTA_HOST)
        quota_count(allocation->device, 1);
    if (replaced.kind != ALLOCATION_NONE)
        charge_refund(&replaced);
    return true;
}

static uint32_t pin_reason_of(const struct charge *charge, enum allocation_kind kind)
{
    bool may_leave =
        kind == ALLOCATION_SWAPPABLE || kind == ALLOCATION_PAGED || kind == ALLOCATION_HANDLE;
    if (charge->pin_reasons || may_leave || charge->device == QUOTA_HOST)
        return charge->pin_reasons;
    uint32_t refusal = swappability_refusal(charge->device, charge->bytes);
    return kind == ALLOCATION_ARRAY && refusal != ALIQUOT_PIN_MODE ? ALIQUOT_PIN_ARRAY
                                                                     : refusal;
}

static bool record(const struct charge *charge, uint64_t key, enum allocation_kind kind)
{
    struct allocation allocation = {
        .key = key, .bytes = charge->bytes, .device = charge->device, .kind = kind,
        .pin_reasons = pin_reason_of(charge, kind)};
    CUcontext context = NULL;
    if (kind != ALLOCATION_HANDLE)
        driver()->cuCtxGetCurrent(&context);
    allocation.context = green_owner(context);
    return charge_record(&allocation);
}

bool charge_end(struct charge *charge, CUresult result, uint64_t key, enum allocation_kind kind)
{
    if (!charge->acts)
        return true;
    bool is_charged =
        !charge->is_late || (result == CUDA_SUCCESS && charge_more(charge, charge->bytes));
    bool is_recorded = result != CUDA_SUCCESS || (is_charged && record(charge, key, kind));
    if (is_charged && (result != CUDA_SUCCESS || !is_recorded))
        quota_refund(charge->device, charge->bytes);
    pools_refresh();
    if (charge->is_on_device)
        residency_leave();
    guard_leave();
    return is_recorded;
}

void release_begin(struct release *release, uint64_t key, enum allocation_space space)
{
    *release = (struct release){.acts = guard_enter()};
    if (release->acts && !gate_is_open())
        gate_pass();
    if (release->acts && key)
        release->is_known = allocations_take(key, space, &release->allocation);
}

void release_end(struct release *release, CUresult result)
{
    if (!release->acts)
        return;
    if (release->is_known) {
        struct allocation replaced;
        if (result == CUDA_SUCCESS || !allocations_add(&release->allocation, &replaced))
            charge_refund(&release->allocation);
    }
    pools_refresh();
    guard_leave();
}

void charge_unaccounted(void)
{
    if (!guard_enter())
        return;
    page_add(&page_hook()->unaccounted_calls, 1);
    guard_leave();
}

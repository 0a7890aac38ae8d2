#include "charge.h"

#include "activation.h"
#include "devices.h"
#include "log.h"
#include "page.h"
#include "quota.h"

CUresult charge_begin(struct charge *charge, int device, uint64_t bytes)
{
    *charge = (struct charge){.acts = activation_enter(), .device = device, .bytes = bytes};
    if (!charge->acts)
        return CUDA_SUCCESS;
    if (device == CHARGE_CURRENT)
        charge->device = devices_current();
    /* Without a context, or for 0 bytes, the driver refuses; its own error is the right one. */
    if (charge->device < 0 || bytes == 0) {
        charge->acts = false;
        activation_leave();
        return CUDA_SUCCESS;
    }
    if (!quota_charge(charge->device, bytes)) {
        activation_leave();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

bool charge_raise(struct charge *charge, uint64_t bytes)
{
    if (!charge->acts || bytes == charge->bytes)
        return true;
    if (bytes < charge->bytes)
        quota_refund(charge->device, charge->bytes - bytes);
    else if (!quota_charge(charge->device, bytes - charge->bytes))
        return false;
    charge->bytes = bytes;
    return true;
}

void charge_refund(const struct allocation *allocation)
{
    quota_count(allocation->device, -1);
    quota_refund(allocation->device, allocation->bytes);
}

bool charge_end(struct charge *charge, CUresult result, uint64_t key, enum allocation_kind kind)
{
    if (!charge->acts)
        return true;
    bool is_recorded = true;
    if (result == CUDA_SUCCESS) {
        CUcontext context = NULL;
        if (kind != ALLOCATION_HANDLE)
            driver()->cuCtxGetCurrent(&context);
        struct allocation replaced, allocation = {.key = key,
                                                  .bytes = charge->bytes,
                                                  .context = context,
                                                  .device = charge->device,
                                                  .kind = kind,
                                                  .references = 1};
        is_recorded = allocations_add(&allocation, &replaced);
        if (is_recorded) {
            quota_count(charge->device, 1);
            if (replaced.kind != ALLOCATION_NONE)
                charge_refund(&replaced);
        } else {
            LOG("event=no_memory_for_record key=%llx", (unsigned long long)key);
        }
    }
    if (result != CUDA_SUCCESS || !is_recorded)
        quota_refund(charge->device, charge->bytes);
    activation_leave();
    return is_recorded;
}

void release_begin(struct release *release, uint64_t key)
{
    *release = (struct release){.acts = activation_enter()};
    if (release->acts && key)
        release->is_known = allocations_take(key, false, &release->allocation);
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
    activation_leave();
}

void charge_unaccounted(void)
{
    if (!activation_enter())
        return;
    page_add(&page_hook()->unaccounted_calls, 1);
    activation_leave();
}

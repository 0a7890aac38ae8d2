#include "accounting/pin_reasons.h"

#include "accounting/devices.h"

#include <string.h>

#define REASONS 12 /* PIN_NONE, and each bit of enum aliquot_pin_reason */
#define OUT REASONS

_Static_assert(ALIQUOT_PIN_NCCL == 1u << (REASONS - 2), "the last reason");

static struct {
    int64_t bytes[DEVICES_MAX][REASONS + 1]; /* atomic, each by itself */
    uint32_t has_ipc;                        /* atomic */
} state;

static int place_of(uint32_t reason)
{
    return reason ? __builtin_ctz(reason) + 1 : 0;
}

void pin_reasons_change(int device, uint32_t reason, int64_t bytes)
{
    if (device >= 0 && device < DEVICES_MAX)
        __atomic_fetch_add(&state.bytes[device][place_of(reason)], bytes, __ATOMIC_RELAXED);
}

static uint64_t read(int device, int place)
{
    int64_t bytes = __atomic_load_n(&state.bytes[device][place], __ATOMIC_RELAXED);
    return bytes > 0 ? (uint64_t)bytes : 0;
}

uint64_t pin_reasons_bytes(int device, uint32_t reason)
{
    return device >= 0 && device < DEVICES_MAX ? read(device, place_of(reason)) : 0;
}

void pin_reasons_change_out(int device, int64_t bytes)
{
    if (device >= 0 && device < DEVICES_MAX)
        __atomic_fetch_add(&state.bytes[device][OUT], bytes, __ATOMIC_RELAXED);
}

uint64_t pin_reasons_out(int device)
{
    return device >= 0 && device < DEVICES_MAX ? read(device, OUT) : 0;
}

uint32_t pin_reasons_of(int device, uint64_t *bytes)
{
    uint32_t reasons = 0;
    *bytes = 0;
    for (int place = 1; place < REASONS; place++) {
        uint64_t found = read(device, place);
        *bytes += found;
        reasons |= found ? 1u << (place - 1) : 0;
    }
    return reasons;
}

void pin_reasons_note_ipc(void)
{
    __atomic_store_n(&state.has_ipc, 1, __ATOMIC_RELAXED);
}

bool pin_reasons_has_ipc(void)
{
    return __atomic_load_n(&state.has_ipc, __ATOMIC_RELAXED) != 0;
}

void pin_reasons_reset(void)
{
    memset(&state, 0, sizeof state);
}

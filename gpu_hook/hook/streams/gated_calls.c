#include "streams/gated_calls.h"

#include "interpose/driver.h"
#include "interpose/entry_points.h"
#include "gate/gate.h"
#include "base/guard.h"
#include "base/log.h"
#include "compute/pacing.h"
#include "gate/residency.h"
#include "base/settings.h"
#include "interpose/unknown_functions.h"

static CUresult answer_out_of_memory(void)
{
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Make a record where the hook is off, too: a thread that has one takes the fast way. */
void *entry_gate(unsigned index, uint32_t *is_marked)
{
    bool is_spare = index >= entry_count;
    void *target = is_spare ? unknown_functions_target(index - entry_count) : entry_resolve(index);
    *is_marked = 0;
    if (guard_enter()) {
        *is_marked = residency_enter();
        pacing_close();
        guard_leave();
        if (!*is_marked)
            return (void *)answer_out_of_memory;
    } else if (gate_is_off()) {
        threads_take();
        return target;
    }
    if (is_spare) /* with its mark: a swap that waits for the call sees it (swap_steps.c) */
        unknown_functions_note_call(index - entry_count);
    return target;
}

void entry_gate_leave(uint32_t is_marked)
{
    if (is_marked)
        residency_leave();
}

static CUresult answer_not_permitted(void)
{
    return CUDA_ERROR_NOT_PERMITTED;
}

void *entry_deny(unsigned index)
{
    if (!settings()->is_on)
        return entry_resolve(index);
    LOG("event=denied name=%s", entry_name(index));
    return (void *)answer_not_permitted;
}

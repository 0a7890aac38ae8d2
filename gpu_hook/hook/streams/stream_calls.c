/* Entry points that make streams. A stream takes memory of the device, so the call waits until the
 * process is resident. */
#include "base/guard.h"
#include "interpose/driver.h"
#include "compute/pacing.h"
#include "gate/residency.h"

/* False: an interrupt ended the wait, and the call answers out of memory. */
static bool begin(unsigned int flags)
{
    if (!residency_enter()) {
        guard_leave();
        return false;
    }
    pacing_note_stream(flags);
    return true;
}

static CUresult end(CUresult result)
{
    residency_leave();
    guard_leave();
    return result;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    if (!guard_enter())
        return driver()->cuStreamCreate(stream, flags);
    return begin(flags) ? end(driver()->cuStreamCreate(stream, flags)) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    if (!guard_enter())
        return driver()->cuStreamCreateWithPriority(stream, flags, priority);
    return begin(flags) ? end(driver()->cuStreamCreateWithPriority(stream, flags, priority))
                        : CUDA_ERROR_OUT_OF_MEMORY;
}

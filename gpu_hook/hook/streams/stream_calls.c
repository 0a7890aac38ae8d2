/* Entry points that make streams. A stream takes memory of the device, so the call waits until the process is resident. */
#include "activation.h"
#include "interpose/driver.h"
#include "compute/pacing.h"
#include "swap/residency.h"

/* False: an interrupt ended the wait, and the call answers out of memory. */
static bool begin(unsigned int flags)
{
    if (!residency_enter()) {
        activation_leave();
        return false;
    }
    pacing_note_stream(flags);
    return true;
}

static CUresult end(CUresult result)
{
    residency_leave();
    activation_leave();
    return result;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    if (!activation_enter())
        return driver()->cuStreamCreate(stream, flags);
    return begin(flags) ? end(driver()->cuStreamCreate(stream, flags)) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    if (!activation_enter())
        return driver()->cuStreamCreateWithPriority(stream, flags, priority);
    return begin(flags) ? end(driver()->cuStreamCreateWithPriority(stream, flags, priority)) : CUDA_ERROR_OUT_OF_MEMORY;
}

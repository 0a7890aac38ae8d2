/* How the program makes streams, and what it reads of them. */
#include "activation.h"
#include "interpose/driver.h"
#include "streams/green.h"
#include "compute/pacing.h"
#include "swap/residency.h"
#include "streams/stream_priority.h"

#define DEFAULT_PRIORITY 0 /* of a stream whose maker names none */

static CUresult create(CUstream *stream, unsigned int flags, struct priority_wish wish)
{
    int given;
    bool is_chosen = stream_priority_choose(&wish, &given);
    int priority = is_chosen ? given : wish.asked;
    pacing_note_stream(flags);
    bool is_made = green_make_stream(stream, flags, priority);
    if (!is_made && !is_chosen && !wish.is_explicit)
        return driver()->cuStreamCreate(stream, flags);
    CUresult result = is_made ? CUDA_SUCCESS : driver()->cuStreamCreateWithPriority(stream, flags, priority);
    if (is_chosen && result == CUDA_SUCCESS)
        stream_priority_remember(*stream, wish, given);
    return result;
}

/* A stream takes memory of the device, which another kernel may fill while this one is out. */
static CUresult create_when_resident(CUstream *stream, unsigned int flags, struct priority_wish wish)
{
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (residency_enter()) {
        result = create(stream, flags, wish);
        residency_leave();
    }
    activation_leave();
    return result;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    if (!activation_enter())
        return driver()->cuStreamCreate(stream, flags);
    return create_when_resident(stream, flags, (struct priority_wish){DEFAULT_PRIORITY, false});
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    if (!activation_enter())
        return driver()->cuStreamCreateWithPriority(stream, flags, priority);
    return create_when_resident(stream, flags, (struct priority_wish){priority, true});
}

static CUresult get_priority(CUstream stream, int *priority, CUresult (*real)(CUstream, int *))
{
    CUresult result = real(stream, priority);
    if (result == CUDA_SUCCESS && priority)
        *priority = stream_priority_shown(stream, *priority);
    return result;
}

CUresult cuStreamGetPriority(CUstream stream, int *priority)
{
    return get_priority(stream, priority, driver()->cuStreamGetPriority);
}

CUresult cuStreamGetPriority_ptsz(CUstream stream, int *priority)
{
    return get_priority(stream, priority, driver()->cuStreamGetPriority_ptsz);
}

/* A green context of the hook's is not the program's: it sees the primary one that it made the stream in. */
static CUresult get_context(CUstream stream, CUcontext *context, CUresult (*real)(CUstream, CUcontext *))
{
    CUresult result = real(stream, context);
    if (result == CUDA_SUCCESS && context)
        *context = green_context_shown(*context);
    return result;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
    return get_context(stream, context, driver()->cuStreamGetCtx);
}

CUresult cuStreamGetCtx_ptsz(CUstream stream, CUcontext *context)
{
    return get_context(stream, context, driver()->cuStreamGetCtx_ptsz);
}

static CUresult get_contexts(CUresult result, CUcontext *context, CUgreenCtx *green)
{
    if (result == CUDA_SUCCESS && context)
        *context = green_context_shown(*context);
    if (result == CUDA_SUCCESS && green && green_is_ours(*green))
        *green = NULL;
    return result;
}

CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *context, CUgreenCtx *green)
{
    return get_contexts(driver()->cuStreamGetCtx_v2(stream, context, green), context, green);
}

CUresult cuStreamGetCtx_v2_ptsz(CUstream stream, CUcontext *context, CUgreenCtx *green)
{
    return get_contexts(driver()->cuStreamGetCtx_v2_ptsz(stream, context, green), context, green);
}

CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx *green)
{
    return get_contexts(driver()->cuStreamGetGreenCtx(stream, green), NULL, green);
}

/* How the program makes streams, and what it reads of them. */
#include "activation.h"
#include "driver.h"
#include "stream_priority.h"

#define DEFAULT_PRIORITY 0 /* of a stream whose maker names none */

static CUresult create(CUstream *stream, unsigned int flags, struct priority_wish wish)
{
    int given;
    bool is_chosen = stream_priority_choose(wish, &given);
    if (!is_chosen && !wish.is_explicit)
        return driver()->cuStreamCreate(stream, flags);
    CUresult result = driver()->cuStreamCreateWithPriority(stream, flags, is_chosen ? given : wish.asked);
    if (is_chosen && result == CUDA_SUCCESS)
        stream_priority_remember(*stream, wish, given);
    return result;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    if (!activation_enter())
        return driver()->cuStreamCreate(stream, flags);
    CUresult result = create(stream, flags, (struct priority_wish){DEFAULT_PRIORITY, false});
    activation_leave();
    return result;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    if (!activation_enter())
        return driver()->cuStreamCreateWithPriority(stream, flags, priority);
    CUresult result = create(stream, flags, (struct priority_wish){priority, true});
    activation_leave();
    return result;
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

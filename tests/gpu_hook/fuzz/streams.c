/* Streams and events. */
#include "fuzz.h"

static void create(void)
{
    CUstream stream = (CUstream)UNTOUCHED;
    struct object *slot = room(STREAM);
    if (!slot)
        return;
    CUstream *result = chance(2) ? NULL : &stream;
    unsigned flags = chance(4) ? 6 : (unsigned)draw(2);
    CUresult code = chance(60) ? CALL(cuStreamCreate(result, flags))
                               : CALL(cuStreamCreateWithPriority(result, flags, (int)draw(9) - 6));
    if (code == CUDA_SUCCESS && result)
        keep_owned(slot, (uint64_t)stream, 0);
    else
        note_untouched("stream", (uint64_t)stream);
}

static void destroy(void)
{
    struct object *at;
    CUstream stream = (CUstream)pick(STREAM, &at);
    settle();
    if (CALL(cuStreamDestroy_v2(stream)) == CUDA_SUCCESS && at)
        drop(at);
}

static CUresult without_haste(CUresult code)
{
    return code == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : code;
}

static void wait(void)
{
    struct object *at;
    CUstream stream = pick_stream();
    CUevent event = (CUevent)pick(EVENT, &at);
    switch (draw(4)) {
    case 0:
        note_code("cuStreamQuery", without_haste(cuStreamQuery(stream)));
        break;
    case 1:
        settle();
        CALL(cuStreamSynchronize(stream));
        break;
    case 2:
        note_code("cuEventQuery", without_haste(cuEventQuery(event)));
        break;
    default:
        settle();
        CALL(cuEventSynchronize(event));
    }
}

static void ask(void)
{
    CUstream stream = pick_stream();
    unsigned flags = 55;
    int priority = 55;
    CUcontext context = (CUcontext)UNTOUCHED;
    CUdevice device = 55;
    CALL(cuStreamGetFlags(stream, &flags));
    note("flags", flags);
    CALL(cuStreamGetPriority(stream, chance(3) ? NULL : &priority));
    note("priority", (uint64_t)priority);
    CALL(cuStreamGetCtx(stream, &context));
    note_handle("context", CONTEXT, (uint64_t)context);
    CALL(cuStreamGetDevice(stream, &device));
    note("device", (uint64_t)device);
}

static void event_create(void)
{
    CUevent event = (CUevent)UNTOUCHED;
    struct object *slot = room(EVENT);
    if (!slot)
        return;
    CUevent *result = chance(2) ? NULL : &event;
    if (CALL(cuEventCreate(result, chance(5) ? 4 : (unsigned)draw(4))) == CUDA_SUCCESS && result)
        keep(slot, (uint64_t)event, 0);
    else
        note_untouched("event", (uint64_t)event);
}

static void event_destroy(void)
{
    struct object *at;
    CUevent event = (CUevent)pick(EVENT, &at);
    settle();
    if (CALL(cuEventDestroy_v2(event)) == CUDA_SUCCESS && at)
        drop(at);
}

static void record(void)
{
    struct object *at;
    CUstream stream = pick_stream();
    CUevent event = (CUevent)pick(EVENT, &at);
    unsigned way = (unsigned)draw(4);
    begin_work(way == 0 ? per_thread(stream) : stream);
    if (way == 0)
        CALL(cuEventRecord_ptsz(event, stream));
    else if (way == 1)
        CALL(cuEventRecord(event, stream));
    else
        CALL(cuEventRecordWithFlags(event, stream, has_managed() ? (unsigned)draw(3) : 0));
    settle();
}

static void wait_in_stream(void)
{
    struct object *at;
    CUstream stream = pick_stream();
    if (!has_managed() && is_modest())
        return; /* a capture over several streams makes branches */
    begin_work(stream);
    CALL(cuStreamWaitEvent(stream, (CUevent)pick(EVENT, &at), chance(5) ? 4 : has_managed() ? (unsigned)draw(2) : 0));
    settle();
}

static void elapsed(void)
{
    struct object *at, *other;
    float milliseconds = 0;
    CUevent start = (CUevent)pick(EVENT, &at), end = (CUevent)pick(EVENT, &other);
    settle();
    CALL(cuEventElapsedTime_v2(chance(2) ? NULL : &milliseconds, start, end));
}

static unsigned count; /* of host functions that ran; settled before it is read */

static void CUDA_CB add_one(void *unused)
{
    (void)unused;
    __atomic_fetch_add(&count, 1, __ATOMIC_SEQ_CST);
}

static void CUDA_CB add_one_more(CUstream stream, CUresult result, void *unused)
{
    (void)stream;
    (void)result;
    (void)unused;
    __atomic_fetch_add(&count, 1, __ATOMIC_SEQ_CST);
}

static void host_function(void)
{
    CUstream stream = pick_stream();
    settle();
    unsigned before = __atomic_load_n(&count, __ATOMIC_SEQ_CST);
    begin_work(stream);
    if (chance(70))
        CALL(cuLaunchHostFunc(stream, chance(3) ? NULL : add_one, NULL));
    else
        CALL(cuStreamAddCallback(stream, chance(3) ? NULL : add_one_more, NULL, chance(4) ? 1 : 0));
    settle();
    note("ran", __atomic_load_n(&count, __ATOMIC_SEQ_CST) - before);
}

static void attach(void)
{
    uint64_t bytes;
    CUstream stream = pick_stream();
    CUdeviceptr pointer = pick_memory(&bytes);
    begin_work(stream);
    CALL(cuStreamAttachMemAsync(stream, pointer, chance(70) ? 0 : bytes, 1u << draw(4)));
    settle();
}

static const struct operation operations[] = {
    {"stream_create", 4, create},  {"stream_destroy", 3, destroy},     {"wait", 6, wait},
    {"stream_ask", 2, ask},        {"event_create", 4, event_create},  {"event_destroy", 3, event_destroy},
    {"event_record", 5, record},   {"stream_wait", 4, wait_in_stream}, {"event_elapsed", 2, elapsed},
    {"host_function", 4, host_function}, {"attach", 1, attach},
};
const struct family stream_family = FAMILY(operations);

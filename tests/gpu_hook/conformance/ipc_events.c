/* Legacy IPC of events: cuIpcGetEventHandle, cuIpcOpenEventHandle, and what waits across processes. */
#include "processes.h"

#define SHARED_EVENT (CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING)
#define LAZY CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

struct parcel {
    CUipcEventHandle event;
    CUipcMemHandle memory;
};

static void start_shared(void)
{
    int is_supported = 0;
    check_start();
    EXPECT_OK(cuDeviceGetAttribute(&is_supported, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 0));
    if (!is_supported)
        SKIP("device 0 shares no events");
}

static void spin(CUstream stream, uint64_t nanoseconds)
{
    void *arguments[] = {&nanoseconds};
    EXPECT_OK(cuLaunchKernel(check_builtin("aliquot_spin"), 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
}

static CUevent open_event(CUipcEventHandle handle)
{
    CUevent event;
    EXPECT_OK(cuIpcOpenEventHandle(&event, handle));
    return event;
}

/* Has its stream wait for the other's record, and reads what was written before it. */
static void wait_on_the_stream(int socket)
{
    struct parcel parcel;
    CUdeviceptr memory;
    CUstream stream;
    uint32_t word = 0;
    start_shared();
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    peer_say(socket); /* ready: what follows is quick against the other's 300 ms */
    peer_receive(socket, &parcel, sizeof parcel);
    CUevent event = open_event(parcel.event);
    EXPECT_OK(cuIpcOpenMemHandle(&memory, parcel.memory, LAZY));
    EXPECT_OK(cuStreamWaitEvent(stream, event, 0));
    EXPECT_OK(cuMemcpyDtoHAsync(&word, memory, sizeof word, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_EQUAL(word, 61);
    EXPECT_OK(cuEventQuery(event));
    EXPECT_OK(cuEventDestroy(event));
    EXPECT_OK(cuIpcCloseMemHandle(memory));
}

TEST(a_stream_waits_for_another_processs_record)
{
    struct peer peer = peer_start(wait_on_the_stream);
    struct parcel parcel;
    CUevent event;
    CUstream stream;
    CUdeviceptr memory;
    start_shared();
    check_builtin("aliquot_spin");
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuEventCreate(&event, SHARED_EVENT));
    EXPECT_OK(cuMemAlloc(&memory, 4096));
    EXPECT_OK(cuMemsetD32(memory, 60, 1));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_OK(cuIpcGetEventHandle(&parcel.event, event));
    EXPECT_OK(cuIpcGetMemHandle(&parcel.memory, memory));
    peer_hear(peer.socket);
    spin(stream, 300000000);
    EXPECT_OK(cuMemsetD32Async(memory, 61, 1, stream));
    EXPECT_OK(cuEventRecord(event, stream));
    peer_send(peer.socket, &parcel, sizeof parcel, -1);
    peer_end(peer);
    EXPECT_OK(cuEventQuery(event));
    EXPECT_OK(cuEventDestroy(event));
}

/* Records when told; the other process sees it. */
static void record_when_told(int socket)
{
    struct parcel parcel;
    CUstream stream;
    start_shared();
    check_builtin("aliquot_spin");
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    peer_receive(socket, &parcel, sizeof parcel);
    CUevent event = open_event(parcel.event);
    EXPECT_OK(cuEventQuery(event)); /* never recorded: nothing to wait for */
    spin(stream, 200000000);
    EXPECT_OK(cuEventRecord(event, stream));
    peer_say(socket);
    EXPECT_OK(cuEventSynchronize(event));
    peer_hear(socket);
}

TEST(an_opened_event_may_be_recorded_and_its_maker_sees_it)
{
    struct peer peer = peer_start(record_when_told);
    struct parcel parcel;
    CUevent event;
    start_shared();
    memset(&parcel, 0, sizeof parcel);
    EXPECT_OK(cuEventCreate(&event, SHARED_EVENT));
    EXPECT_OK(cuIpcGetEventHandle(&parcel.event, event));
    peer_send(peer.socket, &parcel, sizeof parcel, -1);
    peer_hear(peer.socket);
    EXPECT_CODE(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    EXPECT_OK(cuEventSynchronize(event));
    EXPECT_OK(cuEventQuery(event));
    peer_say(peer.socket);
    peer_end(peer);
}

TEST(a_shared_event_serves_its_own_process_as_any)
{
    CUevent event;
    CUstream first, second;
    start_shared();
    check_builtin("aliquot_spin");
    EXPECT_OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuEventCreate(&event, SHARED_EVENT));
    EXPECT_OK(cuEventQuery(event));
    spin(first, 100000000);
    EXPECT_OK(cuEventRecord(event, first));
    EXPECT_CODE(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    EXPECT_OK(cuStreamWaitEvent(second, event, 0));
    EXPECT_CODE(cuStreamQuery(second), CUDA_ERROR_NOT_READY);
    EXPECT_OK(cuStreamSynchronize(second));
    EXPECT_OK(cuStreamQuery(first));
    EXPECT_OK(cuEventDestroy(event));
}

TEST(only_events_made_for_it_are_shared)
{
    CUevent plain, shared, opened;
    CUipcEventHandle handle;
    start_shared();
    EXPECT_CODE(cuEventCreate(&shared, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    EXPECT(cuIpcGetEventHandle(&handle, plain) != CUDA_SUCCESS);
    EXPECT_OK(cuEventCreate(&shared, SHARED_EVENT));
    EXPECT_CODE(cuIpcGetEventHandle(NULL, shared), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuIpcGetEventHandle(&handle, shared));
    EXPECT(cuIpcOpenEventHandle(&opened, handle) != CUDA_SUCCESS); /* by the process that made it */
    EXPECT_OK(cuEventDestroy(shared));
    ONLY_ON_THE_SOFTWARE_GPU();
    EXPECT_CODE(cuIpcGetEventHandle(&handle, shared), CUDA_ERROR_INVALID_HANDLE);
}

#include "mover_lanes.h"

#include "contexts.h"

int lanes_find(const struct lanes *lanes, int device)
{
    for (unsigned i = 0; i < lanes->count; i++)
        if (lanes->rows[i].device == device)
            return (int)i;
    return -1;
}

static CUresult open_one(struct lane *lane, int device)
{
    *lane = (struct lane){.device = device, .context = contexts_find(device)};
    if (lane->context)
        return CUDA_SUCCESS;
    CUresult result = driver()->cuDevicePrimaryCtxRetain(&lane->context, device);
    lane->is_borrowed = result == CUDA_SUCCESS;
    return result;
}

CUresult lanes_open(struct lanes *lanes, const struct piece *pieces, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (lanes_find(lanes, pieces[i].device) >= 0)
            continue;
        if (lanes->count == ALIQUOT_MAX_DEVICES)
            return CUDA_ERROR_INVALID_DEVICE;
        CUresult result = open_one(&lanes->rows[lanes->count], pieces[i].device);
        if (result != CUDA_SUCCESS)
            return result;
        lanes->count++;
    }
    return CUDA_SUCCESS;
}

CUresult lanes_make_streams(struct lanes *lanes, unsigned stream_count)
{
    lanes->stream_count = stream_count < LANE_STREAMS_MAX ? stream_count : LANE_STREAMS_MAX;
    for (unsigned i = 0; i < lanes->count; i++) {
        CUresult result = driver()->cuCtxSetCurrent(lanes->rows[i].context);
        for (unsigned j = 0; j < lanes->stream_count && result == CUDA_SUCCESS; j++)
            result = driver()->cuStreamCreate(&lanes->rows[i].streams[j], CU_STREAM_NON_BLOCKING);
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

CUresult lanes_wait(const struct lanes *lanes)
{
    CUresult first = CUDA_SUCCESS;
    for (unsigned i = 0; i < lanes->count; i++) {
        CUresult result = driver()->cuCtxSetCurrent(lanes->rows[i].context);
        for (unsigned j = 0; j < lanes->stream_count && lanes->rows[i].streams[j]; j++) {
            CUresult waited = driver()->cuStreamSynchronize(lanes->rows[i].streams[j]);
            result = result != CUDA_SUCCESS ? result : waited;
        }
        first = first != CUDA_SUCCESS ? first : result;
    }
    return first;
}

void lanes_close(struct lanes *lanes)
{
    for (unsigned i = 0; i < lanes->count; i++) {
        driver()->cuCtxSetCurrent(lanes->rows[i].context);
        for (unsigned j = 0; j < LANE_STREAMS_MAX && lanes->rows[i].streams[j]; j++)
            driver()->cuStreamDestroy_v2(lanes->rows[i].streams[j]);
        if (lanes->rows[i].is_borrowed)
            driver()->cuDevicePrimaryCtxRelease_v2(lanes->rows[i].device);
    }
    lanes->count = 0;
}

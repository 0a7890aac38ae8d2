/* Copies and fills, at once and in streams, in one to three dimensions. */
#include <string.h>

#include "fuzz.h"

static size_t some(uint64_t most)
{
    size_t bytes = most && most < BUFFER_BYTES ? most : BUFFER_BYTES;
    return chance(4) ? most + draw(4096) : 1 + draw(bytes);
}

static void to_device(void)
{
    uint64_t most;
    CUdeviceptr to = pick_memory(&most);
    size_t bytes = some(most);
    if (bytes > BUFFER_BYTES)
        return;
    fill_buffer(bytes);
    settle();
    if (chance(70)) {
        CALL(cuMemcpyHtoD_v2(to, buffer, bytes));
        return;
    }
    CUstream stream = pick_stream();
    begin_work(stream);
    CALL(cuMemcpyHtoDAsync_v2(to, buffer, bytes, stream));
    settle(); /* the buffer is used again */
}

static void from_device(void)
{
    uint64_t most;
    CUdeviceptr from = pick_memory(&most);
    size_t bytes = some(most);
    if (bytes > BUFFER_BYTES)
        return;
    memset(buffer, 0x55, bytes);
    settle();
    if (chance(70)) {
        CALL(cuMemcpyDtoH_v2(buffer, from, bytes));
    } else {
        CUstream stream = pick_stream();
        begin_work(stream);
        CALL(cuMemcpyDtoHAsync_v2(buffer, from, bytes, stream));
        settle();
    }
    note_bytes("content", buffer, bytes);
}

static void within(void)
{
    uint64_t most, other_most;
    CUdeviceptr to = pick_memory(&most), from = pick_memory(&other_most);
    size_t bytes = some(most < other_most ? most : other_most);
    unsigned way = (unsigned)draw(5);
    CUstream stream = way < 4 ? pick_stream() : CU_STREAM_PER_THREAD;
    begin_work(stream);
    if (way == 0)
        CALL(cuMemcpyDtoD_v2(to, from, bytes));
    else if (way == 1)
        CALL(cuMemcpyDtoDAsync_v2(to, from, bytes, stream));
    else if (way == 2)
        CALL(cuMemcpy(to, from, bytes));
    else if (way == 3)
        CALL(cuMemcpyAsync(to, from, bytes, stream));
    else
        CALL(cuMemcpyAsync_ptsz(to, from, bytes, NULL));
    settle();
}

static void peers(void)
{
    struct object *at, *other;
    uint64_t most, other_most;
    CUdeviceptr to = pick_memory(&most), from = pick_memory(&other_most);
    CUcontext there = (CUcontext)pick(CONTEXT, &at), here = (CUcontext)pick(CONTEXT, &other);
    size_t bytes = some(most < other_most ? most : other_most);
    settle();
    if (chance(60)) {
        CALL(cuMemcpyPeer(to, there, from, here, bytes));
        return;
    }
    CUstream stream = pick_stream();
    begin_work(stream);
    CALL(cuMemcpyPeerAsync(to, there, from, here, bytes, stream));
    settle();
}

static void rows(void)
{
    uint64_t most, other_most;
    CUdeviceptr to = pick_memory(&most), from = pick_memory(&other_most);
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = from, .srcPitch = draw(600),
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = to, .dstPitch = draw(600),
                          .WidthInBytes = 1 + draw(256), .Height = draw(40), .dstXInBytes = draw(8), .srcY = draw(3)};
    bool reads = chance(30);
    if (reads) {
        copy.dstMemoryType = CU_MEMORYTYPE_HOST;
        copy.dstHost = buffer;
        memset(buffer, 0x55, BUFFER_BYTES);
    }
    if (chance(3))
        copy.dstMemoryType = (CUmemorytype)9;
    settle();
    CUstream stream = pick_stream();
    begin_work(stream);
    if (chance(40))
        CALL(cuMemcpy2D_v2(&copy));
    else if (chance(50))
        CALL(cuMemcpy2DUnaligned_v2(&copy));
    else
        CALL(cuMemcpy2DAsync_v2(&copy, stream));
    settle();
    if (reads)
        note_bytes("content", buffer, BUFFER_BYTES);
}

static void blocks(void)
{
    uint64_t most, other_most;
    CUdeviceptr to = pick_memory(&most), from = pick_memory(&other_most);
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = from, .srcPitch = draw(128),
                          .srcHeight = draw(16), .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = to,
                          .dstPitch = draw(128), .dstHeight = draw(16), .WidthInBytes = 1 + draw(64),
                          .Height = draw(8), .Depth = draw(4)};
    CUstream stream = pick_stream();
    begin_work(stream);
    if (chance(50))
        CALL(cuMemcpy3D_v2(&copy));
    else
        CALL(cuMemcpy3DAsync_v2(&copy, stream));
    settle();
}

static void fill(void)
{
    uint64_t most;
    CUdeviceptr to = pick_memory(&most);
    size_t bytes = some(most);
    unsigned value = (unsigned)draw_bits();
    CUstream stream = pick_stream();
    begin_work(stream);
    switch (draw(7)) {
    case 0:
        CALL(cuMemsetD8_v2(to, (unsigned char)value, bytes));
        break;
    case 1:
        CALL(cuMemsetD16_v2(to, (unsigned short)value, bytes / 2));
        break;
    case 2:
        CALL(cuMemsetD32_v2(to, value, bytes / 4));
        break;
    case 3:
        CALL(cuMemsetD8Async(to, (unsigned char)value, bytes, stream));
        break;
    case 4:
        CALL(cuMemsetD32Async(to, value, bytes / 4, stream));
        break;
    case 5:
        CALL(cuMemsetD2D8_v2(to, draw(300), (unsigned char)value, 1 + draw(300), draw(30)));
        break;
    default:
        CALL(cuMemsetD2D32Async(to, draw(300) * 4, value, 1 + draw(64), draw(30), stream));
    }
    if (chance(40))
        settle();
}

static const struct operation operations[] = {
    {"to_device", 8, to_device}, {"from_device", 8, from_device}, {"within_device", 6, within}, {"copy_peer", 2, peers},
    {"copy_rows", 3, rows},      {"copy_blocks", 2, blocks},      {"fill", 8, fill},
};
const struct family copy_family = FAMILY(operations);

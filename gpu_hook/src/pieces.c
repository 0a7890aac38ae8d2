#include "pieces.h"

#include "devices.h"
#include "page.h"

/* Nothing leaves yet: every allocation is plain. */
size_t pieces_list(struct piece **pieces)
{
    *pieces = NULL;
    return 0;
}

CUresult pieces_take_out(const struct piece *pieces, size_t count)
{
    (void)pieces;
    return count ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult pieces_bring_in(const struct piece *pieces, size_t count)
{
    (void)pieces;
    return count ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

void pieces_finish(void)
{
}

uint32_t pieces_staying(int device, uint64_t *bytes)
{
    int index = devices_page_index(device);
    *bytes = index < 0 ? 0 : page_read(&page_hook()->devices[index].charged_bytes);
    return *bytes ? ALIQUOT_STAYS_MODE : 0;
}

uint64_t pieces_elastic_bytes(int device)
{
    (void)device;
    return 0;
}

uint64_t pieces_swapped_bytes(int device)
{
    (void)device;
    return 0;
}

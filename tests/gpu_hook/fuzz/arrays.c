/* Arrays, mipmapped arrays, their copies, textures and surfaces. */
#include <string.h>

#include "fuzz.h"

static CUDA_ARRAY3D_DESCRIPTOR shape(void)
{
    static const CUarray_format formats[] = {CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_FLOAT, CU_AD_FORMAT_HALF,
                                             CU_AD_FORMAT_SIGNED_INT32, (CUarray_format)0x7F};
    static const unsigned flags[] = {0, CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_SURFACE_LDST, CUDA_ARRAY3D_CUBEMAP,
                                     CUDA_ARRAY3D_DEFERRED_MAPPING, CUDA_ARRAY3D_SPARSE, 0x8000};
    CUDA_ARRAY3D_DESCRIPTOR wanted;
    memset(&wanted, 0, sizeof wanted);
    wanted.Width = chance(3) ? draw_bytes() : 1 + draw(500);
    wanted.Height = chance(30) ? 0 : draw(200);
    wanted.Depth = chance(60) ? 0 : draw(12);
    wanted.Format = formats[draw(chance(5) ? 5 : 4)];
    wanted.NumChannels = chance(5) ? 3 : 1u << draw(3);
    wanted.Flags = chance(60) ? 0 : flags[draw(7)];
    return wanted;
}

static void create(void)
{
    CUarray array = (CUarray)UNTOUCHED;
    CUDA_ARRAY3D_DESCRIPTOR wanted = shape();
    CUDA_ARRAY_DESCRIPTOR flat = {wanted.Width, wanted.Height, wanted.Format, wanted.NumChannels};
    struct object *slot = room(ARRAY);
    if (!slot)
        return;
    settle();
    CUarray *result = chance(2) ? NULL : &array;
    CUresult code = chance(40) ? CALL(cuArrayCreate_v2(result, chance(2) ? NULL : &flat))
                               : CALL(cuArray3DCreate_v2(result, chance(2) ? NULL : &wanted));
    if (code == CUDA_SUCCESS && result)
        keep_owned(slot, (uint64_t)array, wanted.Width);
    else
        note_untouched("array", (uint64_t)array);
}

static void destroy(void)
{
    struct object *at;
    CUarray array = (CUarray)pick(ARRAY, &at);
    settle();
    if (CALL(cuArrayDestroy(array)) == CUDA_SUCCESS && at)
        drop(at);
}

static void ask(void)
{
    struct object *at;
    CUarray array = (CUarray)pick(ARRAY, &at);
    CUDA_ARRAY3D_DESCRIPTOR found;
    CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
    memset(&found, 0, sizeof found);
    memset(&needs, 0, sizeof needs);
    CALL(cuArray3DGetDescriptor_v2(chance(3) ? NULL : &found, array));
    note("width", found.Width);
    note("height", found.Height);
    note("flags", found.Flags);
    CALL(cuArrayGetMemoryRequirements(&needs, array, draw_device()));
    note("bytes", needs.size);
}

static void copy(void)
{
    struct object *at;
    uint64_t most;
    CUarray array = (CUarray)pick(ARRAY, &at);
    CUdeviceptr pointer = pick_memory(&most);
    size_t bytes = 1 + draw(600), offset = chance(70) ? 0 : draw(64);
    memset(buffer, 0x55, bytes);
    settle();
    switch (draw(4)) {
    case 0:
        fill_buffer(bytes);
        CALL(cuMemcpyHtoA_v2(array, offset, buffer, bytes));
        break;
    case 1:
        CALL(cuMemcpyAtoH_v2(buffer, array, offset, bytes));
        note_bytes("content", buffer, bytes);
        break;
    case 2:
        CALL(cuMemcpyAtoD_v2(pointer, array, offset, bytes));
        break;
    default:
        CALL(cuMemcpyDtoA_v2(array, offset, pointer, bytes));
    }
}

static void mipmap_create(void)
{
    CUmipmappedArray array = (CUmipmappedArray)UNTOUCHED;
    CUDA_ARRAY3D_DESCRIPTOR wanted = shape();
    struct object *slot = room(MIPMAP);
    if (!slot)
        return;
    settle();
    CUmipmappedArray *result = chance(2) ? NULL : &array;
    if (CALL(cuMipmappedArrayCreate(result, chance(2) ? NULL : &wanted, (unsigned)draw(7))) == CUDA_SUCCESS && result)
        keep_owned(slot, (uint64_t)array, 0);
    else
        note_untouched("array", (uint64_t)array);
}

static void mipmap_destroy(void)
{
    struct object *at;
    CUmipmappedArray array = (CUmipmappedArray)pick(MIPMAP, &at);
    settle();
    if (CALL(cuMipmappedArrayDestroy(array)) == CUDA_SUCCESS && at)
        drop(at);
}

static void mipmap_level(void)
{
    struct object *at;
    CUarray level = (CUarray)UNTOUCHED;
    CUmipmappedArray array = (CUmipmappedArray)pick(MIPMAP, &at);
    if (CALL(cuMipmappedArrayGetLevel(&level, array, (unsigned)draw(6))) == CUDA_SUCCESS)
        CALL(cuArrayDestroy(level)); /* a part of another: an error */
    else
        note_untouched("level", (uint64_t)level);
}

static void bind(void)
{
    struct object *at, *slot = room(chance(60) ? TEXTURE : SURFACE);
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    CUtexObject object = UNTOUCHED;
    memset(&resource, 0, sizeof resource);
    memset(&texture, 0, sizeof texture);
    resource.resType = chance(5) ? (CUresourcetype)draw(9) : CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = (CUarray)pick(ARRAY, &at);
    texture.filterMode = (CUfilter_mode)draw(chance(4) ? 4 : 2);
    if (!slot)
        return;
    bool is_texture = slot >= objects[TEXTURE] && slot < objects[TEXTURE] + SLOTS;
    CUresult code = is_texture ? CALL(cuTexObjectCreate(&object, &resource, &texture, NULL))
                               : CALL(cuSurfObjectCreate(&object, &resource));
    if (code == CUDA_SUCCESS)
        keep_owned(slot, object, 0);
    else
        note_untouched("object", object);
}

static void unbind(void)
{
    struct object *at;
    CUresult code = chance(60) ? CALL(cuTexObjectDestroy(pick(TEXTURE, &at)))
                               : CALL(cuSurfObjectDestroy(pick(SURFACE, &at)));
    if (code == CUDA_SUCCESS && at)
        drop(at);
}

static const struct operation operations[] = {
    {"array_create", 6, create},         {"array_destroy", 4, destroy},         {"array_ask", 2, ask},
    {"array_copy", 5, copy},             {"mipmap_create", 2, mipmap_create},   {"mipmap_destroy", 2, mipmap_destroy},
    {"mipmap_level", 1, mipmap_level},   {"bind", 2, bind},                     {"unbind", 2, unbind},
};
const struct family array_family = FAMILY(operations);

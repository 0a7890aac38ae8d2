/* The driver's answers about an address. */
#include <string.h>

#include "fuzz.h"

static CUdeviceptr any_address(void)
{
    struct object *at;
    uint64_t bytes;
    return chance(80) ? pick_memory(&bytes) : pick(chance(50) ? HOST : REGISTERED, &at);
}

/* Attributes that are handles, addresses or numbers of their process are noted by what they mean. */
static void note_attribute(CUpointer_attribute attribute, const unsigned char *data)
{
    uint64_t value;
    memcpy(&value, data, sizeof value);
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        note_handle("context", CONTEXT, value);
        return;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        note_address("address", value);
        return;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        note_handle("pool", POOL, value);
        return;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: /* numbers that a refused call may use up */
        note("has_number", value != 0);
        return;
    default:
        note("value", value);
    }
}

static void one_attribute(void)
{
    unsigned char data[64];
    CUdeviceptr address = any_address();
    CUpointer_attribute attribute = (CUpointer_attribute)draw(24);
    memset(data, 0x55, sizeof data);
    settle();
    CALL(cuPointerGetAttribute(chance(2) ? NULL : data, attribute, address));
    note_attribute(attribute, data);
}

static void all_attributes(void)
{
    static CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                               CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                               CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
    uint64_t values[5] = {0, 0, 0, 0, 0};
    void *data[] = {&values[0], &values[1], &values[2], &values[3], &values[4]};
    CUdeviceptr address = any_address();
    settle();
    CALL(cuPointerGetAttributes((unsigned)(chance(4) ? 0 : 5), attributes, data, address));
    for (int i = 0; i < 4; i++)
        note("value", values[i]);
    note_address("start", values[4]);
}

static void set_attribute(void)
{
    unsigned value = (unsigned)draw(2);
    CALL(cuPointerSetAttribute(chance(3) ? NULL : &value,
                               chance(80) ? CU_POINTER_ATTRIBUTE_SYNC_MEMOPS : (CUpointer_attribute)draw(12),
                               any_address()));
}

static void range(void)
{
    CUdeviceptr start = UNTOUCHED;
    size_t bytes = UNTOUCHED;
    settle();
    if (CALL(cuMemGetAddressRange_v2(chance(10) ? NULL : &start, chance(10) ? NULL : &bytes, any_address())) ==
            CUDA_SUCCESS && start != UNTOUCHED)
        note_address("start", start);
    else
        note_untouched("start", start);
    note("bytes", bytes);
}

static const struct operation operations[] = {
    {"pointer_attribute", 6, one_attribute},
    {"pointer_attributes", 2, all_attributes},
    {"pointer_set", 1, set_attribute},
    {"address_range", 3, range},
};
const struct family pointer_family = FAMILY(operations);

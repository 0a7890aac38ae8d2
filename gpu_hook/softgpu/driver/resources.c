#include "driver/resources.h"

#include "driver/driver.h"
#include "device/slots.h"

static struct {
    uint64_t bytes; /* set once, before the first context */
} resources;

void resources_set_bytes(uint64_t bytes)
{
    resources.bytes = bytes;
}

int resource_take(struct context *context)
{
    if (resources.bytes == 0)
        return 0;
    if (slots_charge(&driver.attachment, context->physical, resources.bytes) != 0)
        return -1;
    atomic_fetch_add(&context->resources, 1);
    return 0;
}

void resource_give(struct context *context)
{
    unsigned count = atomic_load(&context->resources);
    while (count && !atomic_compare_exchange_weak(&context->resources, &count, count - 1))
        ;
    if (count)
        slots_refund(&driver.attachment, context->physical, resources.bytes);
}

void resources_give_all(struct context *context)
{
    unsigned count = atomic_exchange(&context->resources, 0);
    if (count)
        slots_refund(&driver.attachment, context->physical, count * resources.bytes);
}

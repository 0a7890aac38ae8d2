/* Device memory that a card spends on streams, events and registrations of host memory. Each costs
 * the bytes that ALIQUOT_SOFTGPU_RESOURCE says, 0 by default. */
#ifndef SOFTGPU_RESOURCES_H
#define SOFTGPU_RESOURCES_H

#include "driver/contexts.h"

void resources_set_bytes(uint64_t bytes); /* once, before the first context */

int resource_take(struct context *context); /* 0, or -1: the device is full */
void resource_give(struct context *context); /* nothing, where the context has ended */
void resources_give_all(struct context *context); /* at the context's end */

#endif

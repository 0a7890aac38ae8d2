/* NVML's view of the machine: it observes, and holds no slot. */
#ifndef SOFTGPU_NVML_OBSERVER_H
#define SOFTGPU_NVML_OBSERVER_H

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#include "device/machine.h"

#define EXPORT __attribute__((visibility("default")))

/* NVML_SUCCESS and the machine, or UNINITIALIZED. */
nvmlReturn_t observer_attachment(struct attachment **attachment);
/* Checks a handle: SUCCESS with the device's index, INVALID_ARGUMENT, GPU_IS_LOST or
 * UNINITIALIZED. */
nvmlReturn_t observer_device(nvmlDevice_t handle, struct attachment **attachment, unsigned *index);
nvmlDevice_t observer_handle(unsigned index);
/* Copies a string into a caller's buffer: SUCCESS or INSUFFICIENT_SIZE. */
nvmlReturn_t observer_text(char *buffer, unsigned length, const char *text);

#endif

/* The device of the kernel's grant that belongs to an NVML handle. */
#ifndef ALIQUOT_NVML_VIEW_H
#define ALIQUOT_NVML_VIEW_H

#include "nvml/nvml_driver.h"
#include "nvml/observer.h"

/* Return the device where the kernel is now for the one where it began, which CUDA_VISIBLE_DEVICES
 * goes on to name after a move; any other is itself. */
nvmlDevice_t nvml_present(nvmlDevice_t device);

/* False: no agent, or no whole GPU (a MIG device); then the real answer stands. */
bool nvml_view(nvmlDevice_t device, struct observer_view *view);

#endif

/* Residency mode `managed`: linear allocations are CUDA unified memory, which the driver pages. Knows their ranges, where
 * they should be, and how they move as a whole; the driver moves the rest by itself. */
#ifndef ALIQUOT_MANAGED_MODE_H
#define ALIQUOT_MANAGED_MODE_H

#include "driver.h"

#include <stdbool.h>

/* Prefetches all of them to the host, or back to their devices, and waits for it. Called on the mover's thread while calls
 * are stopped. Nothing is lost where it fails: the driver brings in what is touched. */
CUresult managed_mode_move(bool out);

#endif

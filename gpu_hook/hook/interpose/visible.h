/* The meaning of CUDA_VISIBLE_DEVICES in a kernel: the kernel's own devices, by their place in its
 * grant or by their UUIDs, never another kernel's. The driver reads the variable in cuInit; the
 * hook gives it UUIDs there. */
#ifndef ALIQUOT_VISIBLE_H
#define ALIQUOT_VISIBLE_H

#include <stdbool.h>
#include <stddef.h>

/* Put the driver's meaning of the user's choice into the environment, where it differs. True:
 * visible_end is due. */
bool visible_begin(void);
void visible_end(void);

/* Write what the driver is to read. `granted` is a list of UUIDs; `chosen` is the user's, NULL: all
 * that was granted. As in CUDA, the list ends at its first entry that names no device of the grant;
 * it also ends where there is no room. */
void visible_translate(const char *granted, const char *chosen, char *text, size_t size);

#endif

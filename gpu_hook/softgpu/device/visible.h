/* CUDA_VISIBLE_DEVICES, read as the CUDA documentation says. */
#ifndef SOFTGPU_VISIBLE_H
#define SOFTGPU_VISIBLE_H

#include "device/machine.h"

/* Fills `physical` and returns how many devices are visible. `list` NULL: all. */
int visible_parse(const struct machine *machine, const char *list, unsigned physical[MACHINE_DEVICES]);
void visible_format_uuid(const uint8_t uuid[16], char text[41]);

#endif

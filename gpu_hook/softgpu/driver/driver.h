/* The driver in this process: its attachment to the machine, and the devices that
 * CUDA_VISIBLE_DEVICES leaves visible. */
#ifndef SOFTGPU_DRIVER_H
#define SOFTGPU_DRIVER_H

#include <cuda.h>

#include "device/machine.h"

struct driver {
    struct attachment attachment;
    int device_count;                   /* visible */
    unsigned physical[MACHINE_DEVICES]; /* visible ordinal to index in the machine */
    unsigned stale; /* enum driver_identity: what it tells of the device before a restore */
};

enum driver_identity { DRIVER_BUS = 1, DRIVER_UUID = 2 };

/* Valid after cuInit succeeded. */
extern struct driver driver;

/* CUDA_SUCCESS when `device` is a visible ordinal. */
CUresult driver_check_device(CUdevice device);
/* The visible ordinal of a device by `physical`, that is, as this process knows it. */
CUdevice driver_ordinal(unsigned physical);
/* The device of the machine behind a visible ordinal: another one, once the process was restored there. */
unsigned driver_place(CUdevice device);
/* The same, as an answer of that kind tells it: some drivers go on to tell the device before a
 * restore (NVIDIA/cuda-checkpoint#48). */
unsigned driver_told_place(CUdevice device, enum driver_identity kind);
/* The visible ordinal of that device of the machine; -1: this process does not see it. */
int driver_find_place(unsigned place);
/* An identity of the machine, the same in all of its processes and in no others. */
uint64_t driver_machine_identity(void);
int driver_is_lost(CUdevice device);

#endif

/* An NVML function that this GPU does not have. The header is not included: its prototypes differ
 * from name to name, the answer does not. */
#ifndef SOFTGPU_NVML_MISSING_H
#define SOFTGPU_NVML_MISSING_H

/* NOT_SUPPORTED, or UNINITIALIZED. */
int nvml_missing(const char *name);

#define NVML_MISSING(name)                                                                                             \
    __attribute__((visibility("default"))) int name(void);                                                             \
    int name(void)                                                                                                     \
    {                                                                                                                  \
        return nvml_missing(#name);                                                                                    \
    }

#endif

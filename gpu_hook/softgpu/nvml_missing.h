/* An NVML function that this GPU does not have. The header is not included: its prototypes differ from name to name, the
 * answer does not. */
#ifndef SOFTGPU_NVML_MISSING_H
#define SOFTGPU_NVML_MISSING_H

#define NVML_NOT_SUPPORTED 3 /* NVML_ERROR_NOT_SUPPORTED */
#define NVML_MISSING(name)                                                                                             \
    __attribute__((visibility("default"))) int name(void);                                                             \
    int name(void)                                                                                                     \
    {                                                                                                                  \
        return NVML_NOT_SUPPORTED;                                                                                     \
    }

#endif

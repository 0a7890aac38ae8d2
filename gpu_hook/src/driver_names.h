/* The file names that a driver's libraries go by: libcuda.so, libcuda.so.1, libcuda.so.550.163.01 and the same of
 * libnvidia-ml, with or without a folder. Shared by the two libraries that find the hook's callers by their file. */
#ifndef ALIQUOT_DRIVER_NAMES_H
#define ALIQUOT_DRIVER_NAMES_H

#include <stdbool.h>
#include <string.h>

#define CUDA_FILE "libcuda.so"
#define NVML_FILE "libnvidia-ml.so"

static inline const char *file_of_path(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static inline bool has_versions_only(const char *rest)
{
    while (*rest == '.' && rest[1] >= '0' && rest[1] <= '9')
        rest += 1 + strspn(rest + 1, "0123456789");
    return *rest == '\0';
}

/* The shim's file of that library; NULL: the path names no library of the driver. */
static inline const char *find_shim_file(const char *path)
{
    static const struct {
        const char *stem, *shim;
    } rows[] = {{CUDA_FILE, CUDA_FILE ".1"}, {NVML_FILE, NVML_FILE ".1"}};
    const char *file = file_of_path(path);
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t length = strlen(rows[i].stem);
        if (strncmp(file, rows[i].stem, length) == 0 && has_versions_only(file + length))
            return rows[i].shim;
    }
    return NULL;
}

#endif

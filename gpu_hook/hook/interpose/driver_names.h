/* The file names that a driver's libraries go by: libcuda.so, libcuda.so.1, libcuda.so.550.163.01
 * and the same of libnvidia-ml, with or without a folder. Shared by the two libraries that find the
 * hook's callers by their file, of which one has no C library. */
#ifndef ALIQUOT_DRIVER_NAMES_H
#define ALIQUOT_DRIVER_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#define CUDA_FILE "libcuda.so"
#define NVML_FILE "libnvidia-ml.so"

static inline const char *file_of_path(const char *path)
{
    const char *file = path;
    for (; *path; path++)
        if (*path == '/')
            file = path + 1;
    return file;
}

/* Return the text after `head`; NULL: the text begins otherwise. */
static inline const char *text_after(const char *text, const char *head)
{
    for (; *head; head++, text++)
        if (*text != *head)
            return NULL;
    return text;
}

static inline bool has_versions_only(const char *rest)
{
    while (*rest == '.' && rest[1] >= '0' && rest[1] <= '9')
        for (rest++; *rest >= '0' && *rest <= '9'; rest++)
            ;
    return *rest == '\0';
}

/* The shim's file of that library; NULL: the path names no library of the driver. */
static inline const char *find_shim_file(const char *path)
{
    static const struct {
        char stem[sizeof NVML_FILE], shim[sizeof NVML_FILE ".1"];
    } rows[] = {{CUDA_FILE, CUDA_FILE ".1"}, {NVML_FILE, NVML_FILE ".1"}};
    const char *file = file_of_path(path);
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *rest = text_after(file, rows[i].stem);
        if (rest && has_versions_only(rest))
            return rows[i].shim;
    }
    return NULL;
}

#endif
